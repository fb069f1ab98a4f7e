//! Judges the way to an HTTP server: the proxy, and the roots.

use std::path::{Path, PathBuf};

use portcullis_types::EgressRule;
use url::Url;

use super::{
    Context,
    http::{covers, rule_for, short},
    if_enabled, literal_secret, open_text, template,
};
use crate::{
    Code, Egress, ProxySpec,
    draft::Draft,
    network::{ProxyDraft, ThroughDraft},
    secrets,
    source::{Sink, quote},
    value::{Span, Spanned},
};

/// What stands at the start of each certificate in PEM (RFC 7468, section 5).
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";

/// A proxy that cannot be told: its server is not to be reached without it.
pub(super) struct Unusable;

/// The proxy of a server: its own, or the one that its document names for all. Needs a rule as any host does.
pub(super) fn proxy(
    draft: &Draft,
    egress: &Egress,
    context: &Context<'_>,
    sink: &mut Sink<'_>,
) -> Result<Option<ProxySpec>, Unusable> {
    let through = match draft.network.proxy.as_ref().or(context.network.proxy.as_ref()) {
        None | Some(ProxyDraft::Direct) => return Ok(None),
        Some(ProxyDraft::Through(through)) => through,
    };
    let ThroughDraft {
        url: text,
        username,
        password,
    } = through;
    let written = open_text(draft, text, "proxy", context, sink).ok_or(Unusable)?;
    let url = parse(&written, text.span, sink).ok_or(Unusable)?;
    let rule = rule_for(&url);
    let connects = |rule: &EgressRule| rule.methods.is_empty() || rule.methods.contains("CONNECT");
    if !egress.iter().any(|rule| covers(rule, &url) && connects(rule)) {
        let message = format!("the proxy is {}, which is not allowed", quote(&short(&rule)));
        let help = format!(
            "add `- \"{}\"` to `allowedHosts`, or to the server's `egress`",
            short(&rule)
        );
        sink.error(Code::HostNotAllowed, text.span, message, help);
    }
    let mut login = |text: &Option<Spanned<String>>, field: &str| {
        let text = text.as_ref()?;
        Some(template(draft, char::is_control, text, field, context, sink))
    };
    let (user, pass) = (
        login(username, "proxy.username"),
        login(password, "proxy.password"),
    );
    if let Some(text) = password
        && secrets::holds(&text.value, true)
    {
        literal_secret(text.span, "proxy.password", "PROXY_PASSWORD", sink);
    }
    Ok(Some(ProxySpec {
        url,
        username: user,
        password: pass,
    }))
}

fn parse(written: &str, span: Span, sink: &mut Sink<'_>) -> Option<Url> {
    // Quoted nowhere, as a server's url: it may hold a password.
    let mut refuse = |message: &str, help: &str| {
        sink.error(Code::BadUrl, span, message, help);
        None
    };
    let whole = "write it whole: `http://proxy.example.com:3128`";
    let Ok(url) = Url::parse(written) else {
        return refuse("`proxy` is no url", whole);
    };
    if !url.username().is_empty() || url.password().is_some() {
        let help = "write `proxy: {url: …, username: …, password: \"${env:PROXY_PASSWORD}\"}`";
        return refuse("`proxy` holds a user or a password in its url", help);
    }
    // Without one, what stands before the port reads as a scheme.
    if !written.contains("://") {
        return refuse("`proxy` has no scheme", whole);
    }
    if !matches!(url.scheme(), "http" | "https") {
        let message = format!("`proxy` has the scheme {}", quote(url.scheme()));
        return refuse(
            &message,
            "an `http://` or `https://` proxy is used; SOCKS is not supported",
        );
    }
    if url.host().is_none() {
        return refuse("`proxy` names no host", whole);
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return refuse("`proxy` has more than a scheme, a host and a port", whole);
    }
    if url.port() == Some(0) {
        return refuse(
            "`proxy` has the port 0",
            "give the port that the proxy listens on",
        );
    }
    Some(url)
}

/// The files of roots: those of the document for all, then the server's own.
pub(super) fn root_certificates(draft: &Draft, context: &Context<'_>, sink: &mut Sink<'_>) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for text in context
        .network
        .root_certificates
        .iter()
        .chain(&draft.network.root_certificates)
    {
        let Some(path) = open_text(draft, text, "rootCertificates", context, sink) else {
            continue;
        };
        if !Path::new(&path).is_absolute() {
            let message = format!("the file {} is no absolute path", quote(&path));
            let help = "write the whole path, or start it with `${HOME}`; `~` is not expanded";
            sink.report(if_enabled(draft), Code::BadValue, text.span, message, help);
            continue;
        }
        match context.environment.file(&path) {
            Some(content) if content.contains(BEGIN) => {}
            Some(_) => {
                let message = format!("the file {} holds no root certificate", quote(&path));
                let help = format!("give a file in PEM, which has `{BEGIN}` in it");
                sink.report(if_enabled(draft), Code::BadValue, text.span, message, help);
            }
            None => {
                let message = format!("`rootCertificates` names {}, which cannot be read", quote(&path));
                let help = "give the absolute path of a file in PEM that this user may read";
                sink.report(if_enabled(draft), Code::UnsetReference, text.span, message, help);
            }
        }
        let path = PathBuf::from(path);
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}
