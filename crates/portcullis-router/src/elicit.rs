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

/// Stands between a server's question and the host's handler: the policies decide first, and anew whenever others take
/// over until it is answered.
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
            let asked = Asked::of(&server, &request);
            let mut told = Told {
                events: &self.events,
                server: server.clone(),
                mode: asked.mode,
                answer: ElicitationAnswer::Unanswered,
            };
            let reply = self.permitted(&asked, server, request).await;
            told.answer = match reply {
                None => ElicitationAnswer::Forbidden,
                Some(ElicitationReply::Accept(_)) => ElicitationAnswer::Accepted,
                Some(ElicitationReply::Decline) => ElicitationAnswer::Declined,
                Some(ElicitationReply::Cancel) => ElicitationAnswer::Cancelled,
            };
            reply.unwrap_or(ElicitationReply::Decline)
        })
    }
}

impl PermittedElicitation {
    /// What the host answers, as long as the policies permit the question; none where they do not, or no longer do.
    async fn permitted(
        &self,
        asked: &Asked,
        server: ServerId,
        request: ElicitationRequest,
    ) -> Option<ElicitationReply> {
        // What takes over from here on is noticed.
        let mut swaps = self.policies.swaps();
        if !self.permits(asked) {
            return None;
        }
        let mut answer = self.handler.elicit(server, request);
        let reply = loop {
            tokio::select! {
                reply = &mut answer => break reply,
                Ok(()) = swaps.changed() => {
                    if !self.permits(asked) {
                        return None;
                    }
                }
            }
        };
        // They may have taken over in the moment of the answer.
        self.permits(asked).then_some(reply)
    }

    /// What the policies in force say.
    fn permits(&self, asked: &Asked) -> bool {
        let question = ElicitationQuestion {
            agent: &self.agent,
            profile: &self.profile,
            tier: self.tier,
            source: Source::Mcp,
            server: &asked.server,
            transport: self.transports.get(&asked.server).copied().unwrap_or("stdio"),
            mode: &asked.mode.to_string(),
            host: &asked.host,
        };
        self.policies.current().decide_elicitation(&question).answer == Answer::Allow
    }
}

/// What of a question the policies go by.
struct Asked {
    server: ServerId,
    mode: ElicitationMode,
    host: String,
}

impl Asked {
    fn of(server: &ServerId, request: &ElicitationRequest) -> Self {
        let (mode, host) = match request {
            ElicitationRequest::Form { .. } => (ElicitationMode::Form, String::new()),
            ElicitationRequest::Url { url, .. } => (ElicitationMode::Url, host_of(url)),
        };
        Self {
            server: server.clone(),
            mode,
            host,
        }
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
    use portcullis_blobs::MemStore;
    use portcullis_config::{HttpSpec, NoEnvironment, StdioSpec};
    use portcullis_policy::{DecisionPoint, PolicyFile};

    use super::*;

    /// Says yes to all.
    #[derive(Debug)]
    struct Willing;

    impl ElicitationHandler for Willing {
        fn elicit(&self, _: ServerId, _: ElicitationRequest) -> BoxFuture<'_, ElicitationReply> {
            Box::pin(std::future::ready(ElicitationReply::Accept(None)))
        }
    }

    /// The event of a question of `server`, where policies permit those of which `when` is true.
    async fn told(when: &str, server: &str, request: ElicitationRequest) -> serde_json::Value {
        let text = format!(
            "@id(\"asked\") @description(\"Some may ask.\")\npermit (principal, action == Mcp::Action::\"elicit\", \
             resource) when {{ {when} }};\n"
        );
        let name = "asked.cedar".to_owned();
        let policies = Arc::new(DecisionPoint::load(&[PolicyFile { name, text }]).unwrap());
        let bot: AgentId = "bot".parse().unwrap();
        let options = RouterOptions {
            elicitation: Some(Arc::new(Willing)),
            profiles: [(bot.clone(), "night".parse().unwrap())].into(),
            agent: bot,
            tier: Tier::Plan,
            ..RouterOptions::new(
                Arc::clone(&policies),
                Arc::new(MemStore::default()),
                Arc::new(NoEnvironment),
            )
        };
        let specs = [
            ServerSpec::new("s".parse().unwrap(), StdioSpec::new("/bin/true", ["x"])),
            ServerSpec::new(
                "h".parse().unwrap(),
                HttpSpec::new("https://h.test/".parse().unwrap(), Vec::new()),
            ),
        ];
        let events = EventBus::default();
        let mut heard = events.listen();
        let policies = Arc::new(Policies::new(policies, None, events.clone()));
        let responder = PermittedElicitation::responder(&options, &specs, events, &policies).unwrap();
        let reply = responder.respond(server.parse().unwrap(), request).await;
        let event = serde_json::to_value(&*heard.try_next().unwrap()).unwrap();
        let accepted = reply == ElicitationReply::Accept(None);
        assert_eq!(event["answer"] == "accepted", accepted, "{event}");
        assert_eq!(event["answer"] == "forbidden", !accepted, "{event}");
        event
    }

    #[tokio::test]
    async fn policies_decide_on_who_asks_and_on_where_it_leads() {
        let message = || "come here".to_owned();
        let form = || ElicitationRequest::Form {
            message: message(),
            schema: "{}".to_owned(),
        };
        let url = |host: &str| ElicitationRequest::Url {
            message: message(),
            url: format!("https://{host}/login"),
        };
        let to_good = r#"context.mode == "url" && context.host == "good.example""#;
        let form_alone = r#"context.mode == "form" && context.host == """#;
        for (when, server, request, answer) in [
            (to_good, "s", url("good.example"), "accepted"),
            (to_good, "s", url("evil.example"), "forbidden"),
            (to_good, "s", form(), "forbidden"),
            (form_alone, "s", form(), "accepted"),
            (form_alone, "s", url("good.example"), "forbidden"),
            (r#"resource.transport == "http""#, "h", form(), "accepted"),
            (r#"resource.transport == "http""#, "s", form(), "forbidden"),
            (r#"resource.transport == "stdio""#, "s", form(), "accepted"),
            (r#"resource.name == "s""#, "h", form(), "forbidden"),
            (r#"principal == Mcp::Agent::"bot""#, "s", form(), "accepted"),
            (r#"principal in Mcp::Profile::"night""#, "s", form(), "accepted"),
            (r#"context.tier == Mcp::Tier::"plan""#, "s", form(), "accepted"),
        ] {
            let mode = match request {
                ElicitationRequest::Form { .. } => "form",
                ElicitationRequest::Url { .. } => "url",
            };
            let event = told(when, server, request).await;
            assert_eq!(
                (&event["answer"], &event["mode"], &event["server"]),
                (&answer.into(), &mode.into(), &server.into()),
                "{when}"
            );
        }
    }

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
