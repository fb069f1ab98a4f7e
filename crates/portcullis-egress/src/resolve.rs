use std::{io, net::IpAddr, net::SocketAddr, sync::Arc};

use futures::future::BoxFuture;

use crate::{EgressRules, Refusal};

/// Turns a name into addresses. Tests and hosts with their own name service give theirs.
pub trait Resolver: Send + Sync + 'static {
    /// The addresses of `host`, a name in its ASCII form. They are checked before any is connected to.
    fn resolve(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The system's own resolver: hosts file, then DNS.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// The hook through which the client resolves: only addresses that the rules allow come out of it, and only those
/// are connected to. That closes the gap in which a name could change its answer between check and use.
pub(crate) struct CheckedResolver {
    pub(crate) rules: Arc<EgressRules>,
    pub(crate) resolver: Arc<dyn Resolver>,
}

/// What the hook reports through the client's error chain.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveFailure {
    #[error(transparent)]
    Refused(Refusal),
    #[error("the resolver failed")]
    Resolver(#[source] io::Error),
}

impl CheckedResolver {
    pub(crate) async fn addresses(
        rules: &EgressRules,
        resolver: &dyn Resolver,
        host: &str,
    ) -> Result<Vec<IpAddr>, ResolveFailure> {
        let found = resolver
            .resolve(host.to_owned())
            .await
            .map_err(ResolveFailure::Resolver)?;
        let mut refused = None;
        let mut allowed = Vec::new();
        for address in found {
            match rules.check_resolved(host, address) {
                Ok(()) => allowed.push(address),
                Err(refusal) => refused = refused.or(Some(refusal)),
            }
        }
        match (allowed.is_empty(), refused) {
            (false, _) => Ok(allowed),
            (true, Some(refusal)) => Err(ResolveFailure::Refused(refusal)),
            (true, None) => {
                let none = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
                Err(ResolveFailure::Resolver(none))
            }
        }
    }
}

impl reqwest::dns::Resolve for CheckedResolver {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let (rules, resolver) = (Arc::clone(&self.rules), Arc::clone(&self.resolver));
        Box::pin(async move {
            let addresses = Self::addresses(&rules, resolver.as_ref(), name.as_str()).await?;
            // Port 0 stands for the port of the URL; any other would replace it.
            let addresses = addresses.into_iter().map(|address| SocketAddr::new(address, 0));
            let addresses: reqwest::dns::Addrs = Box::new(addresses);
            Ok(addresses)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Vec<&'static str>);

    impl Resolver for Fixed {
        fn resolve(&self, _: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
            let addresses = self.0.iter().map(|address| address.parse().unwrap()).collect();
            Box::pin(async move { Ok(addresses) })
        }
    }

    async fn check(answers: &[&'static str], expected: Result<&[&str], &str>) {
        let rules = EgressRules::new(vec!["api.test".parse().unwrap()]);
        let found = CheckedResolver::addresses(&rules, &Fixed(answers.to_vec()), "api.test").await;
        let found = found.map(|found| found.iter().map(ToString::to_string).collect::<Vec<_>>());
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(ResolveFailure::Refused(refusal)), Err(code)) => assert_eq!(refusal.code(), code),
            (Err(ResolveFailure::Resolver(error)), Err(text)) => assert_eq!(error.to_string(), text),
            (found, expected) => panic!("{found:?} is not {expected:?}"),
        }
    }

    #[tokio::test]
    async fn only_addresses_that_are_allowed_come_out() {
        check(&["8.8.8.8"], Ok(&["8.8.8.8"])).await;
        check(&["127.0.0.1", "8.8.8.8", "::1"], Ok(&["8.8.8.8"])).await;
        check(&["127.0.0.1", "::ffff:8.8.8.8"], Err("address_not_allowed")).await;
        check(&[], Err("the name has no address")).await;
    }
}
