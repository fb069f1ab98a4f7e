use std::{collections::BTreeMap, fmt, sync::Arc};

use futures::future::BoxFuture;
use portcullis_config::{ServerSpec, TransportSpec};
use portcullis_policy::ElicitationQuestion;
use portcullis_supervisor::{ElicitationReply, ElicitationRequest, ElicitationResponder};
use portcullis_types::{AgentId, Answer, ServerId, Source, Tier};
use url::Url;

use crate::{
    approval::ElicitationHandler,
    event::{ElicitationAnswer, ElicitationMode, Event, EventBus},
    policies::Policies,
    router::RouterOptions,
};

/// Stands between a server's question and the host's handler: the policies decide first.
pub(crate) struct PermittedElicitation {
    policies: Arc<Policies>,
    handler: Arc<dyn ElicitationHandler>,
    agent: AgentId,
    profile: AgentId,
    tier: Tier,
    transports: BTreeMap<ServerId, &'static str>,
    events: EventBus,
}

impl PermittedElicitation {
    /// The responder for the supervisor; none where the host has no handler, and then each is declined at once.
    pub(crate) fn responder(
        options: &RouterOptions,
        specs: &[ServerSpec],
        events: EventBus,
        policies: &Arc<Policies>,
    ) -> Option<Arc<dyn ElicitationResponder>> {
        let handler = Arc::clone(options.elicitation.as_ref()?);
        let transport = |spec: &ServerSpec| match spec.transport {
            TransportSpec::Stdio(_) => "stdio",
            TransportSpec::Http(_) => "http",
        };
        Some(Arc::new(Self {
            policies: Arc::clone(policies),
            handler,
            agent: options.agent.clone(),
            profile: options.profile_of(&options.agent),
            tier: options.tier,
            transports: specs
                .iter()
                .map(|spec| (spec.id.clone(), transport(spec)))
                .collect(),
            events,
        }))
    }
}

impl ElicitationResponder for PermittedElicitation {
    fn respond(&self, server: ServerId, request: ElicitationRequest) -> BoxFuture<'_, ElicitationReply> {
        Box::pin(async move {
            let (mode, host) = match &request {
                ElicitationRequest::Form { .. } => (ElicitationMode::Form, String::new()),
                ElicitationRequest::Url { url, .. } => (ElicitationMode::Url, host_of(url)),
            };
            let transport = self.transports.get(&server).copied().unwrap_or("stdio");
            let decision = self.policies.current().decide_elicitation(&ElicitationQuestion {
                agent: &self.agent,
                profile: &self.profile,
                tier: self.tier,
                source: Source::Mcp,
                server: &server,
                transport,
                mode: &mode.to_string(),
                host: &host,
            });
            let mut told = Told {
                events: &self.events,
                server: server.clone(),
                mode,
                answer: ElicitationAnswer::Unanswered,
            };
            if decision.answer != Answer::Allow {
                told.answer = ElicitationAnswer::Forbidden;
                return ElicitationReply::Decline;
            }
            let reply = self.handler.elicit(server, request).await;
            told.answer = match reply {
                ElicitationReply::Accept(_) => ElicitationAnswer::Accepted,
                ElicitationReply::Decline => ElicitationAnswer::Declined,
                ElicitationReply::Cancel => ElicitationAnswer::Cancelled,
            };
            reply
        })
    }
}

/// Tells how a question ended, also where nobody waits for its answer any more.
struct Told<'a> {
    events: &'a EventBus,
    server: ServerId,
    mode: ElicitationMode,
    answer: ElicitationAnswer,
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.events.tell(Event::Elicitation {
            server: self.server.clone(),
            mode: self.mode,
            answer: self.answer,
        });
    }
}

impl fmt::Debug for PermittedElicitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermittedElicitation")
            .field("handler", &self.handler)
            .finish_non_exhaustive()
    }
}

/// The host of an address as a browser reads it, for the policies; empty where there is none.
fn host_of(url: &str) -> String {
    Url::parse(url)
        .ok()
        .and_then(|url| url.host_str().map(str::to_owned))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_the_one_that_a_browser_would_go_to() {
        for (url, host) in [
            ("https://evil.example\\@good.example/", "evil.example"),
            ("https://good.example@evil.example/", "evil.example"),
            ("https:///evil.example/x", "evil.example"),
            ("https://GOOD.example:8443/x", "good.example"),
            ("https://[::1]/x", "[::1]"),
            ("https://", ""),
        ] {
            assert_eq!(host_of(url), host, "{url}");
        }
    }
}
