use std::{collections::BTreeMap, sync::Arc};

use portcullis_config::ServerSpec;
use portcullis_supervisor::{SupervisorEvent, ToolList};
use portcullis_types::{CapabilityId, ServerId};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::watch;

use super::message::RouterMessage;
use crate::{
    catalog::Catalog,
    event::{Event, EventBus, PinChange, PinnedTool},
    pins::{Looked, PinNews, PinStanding, ToolPin},
};

pub(crate) struct RouterActor;

/// What the actor is started with.
pub(crate) struct RouterArguments {
    pub(crate) specs: BTreeMap<ServerId, ServerSpec>,
    pub(crate) catalog: watch::Sender<Arc<Catalog>>,
    pub(crate) events: EventBus,
}

impl Actor for RouterActor {
    type Msg = RouterMessage;
    type State = RouterArguments;
    type Arguments = RouterArguments;

    async fn pre_start(
        &self,
        _: ActorRef<RouterMessage>,
        arguments: RouterArguments,
    ) -> Result<RouterArguments, ActorProcessingErr> {
        Ok(arguments)
    }

    async fn handle(
        &self,
        _: ActorRef<RouterMessage>,
        message: RouterMessage,
        state: &mut RouterArguments,
    ) -> Result<(), ActorProcessingErr> {
        let event = match message {
            RouterMessage::Supervisor(event) => event,
            RouterMessage::Tools {
                server,
                version,
                list,
                looked,
            } => {
                state.listed(server, version, &list, looked);
                return Ok(());
            }
            RouterMessage::Pinned {
                capability,
                pin,
                news,
            } => {
                state.pinned(&capability, pin, news);
                return Ok(());
            }
            RouterMessage::PoliciesSwapped => {
                let catalog = Catalog::clone(&state.catalog.borrow());
                let changed = Event::CatalogChanged {
                    tools: catalog.tools().count(),
                    unlisted: Vec::new(),
                    reports: Vec::new(),
                };
                state.publish(catalog, [changed]);
                return Ok(());
            }
        };
        let mut catalog = Catalog::clone(&state.catalog.borrow());
        let told = match event {
            SupervisorEvent::State {
                server,
                from,
                to,
                reason,
                pid,
            } => {
                catalog.set_state(&server, to, reason.clone(), pid);
                Event::ServerState {
                    server,
                    from,
                    to,
                    reason,
                    pid,
                }
            }
            // Changes nothing that the catalog shows.
            SupervisorEvent::Egress { server, record } => {
                state.events.tell(Event::egress(server, record));
                return Ok(());
            }
            // Comes looked up, or is not to be trusted.
            SupervisorEvent::Tools {
                server,
                version,
                list,
            } => {
                state.listed(server, version, &list, Looked::default());
                return Ok(());
            }
        };
        state.publish(catalog, [told]);
        Ok(())
    }
}

impl RouterArguments {
    /// The snapshot first, the events after: whoever hears of a change finds it.
    fn publish(&self, catalog: Catalog, told: impl IntoIterator<Item = Event>) {
        self.catalog.send_replace(Arc::new(catalog));
        told.into_iter().for_each(|event| self.events.tell(event));
    }

    fn listed(&self, server: ServerId, version: u64, list: &ToolList, looked: Looked) {
        let Some(spec) = self.specs.get(&server) else {
            return;
        };
        let mut catalog = Catalog::clone(&self.catalog.borrow());
        catalog.set_tools(spec, version, list, &looked.pins);
        let changed = Event::CatalogChanged {
            tools: catalog.tools().count(),
            unlisted: catalog.unlisted_of(&server).cloned().collect(),
            reports: catalog.reports_of(&server).cloned().collect(),
        };
        let news = looked.news.into_iter().map(|news| news_of(&server, news));
        self.publish(catalog, std::iter::once(changed).chain(news));
    }

    fn pinned(&self, capability: &CapabilityId, pin: ToolPin, news: Vec<PinNews>) {
        let mut catalog = Catalog::clone(&self.catalog.borrow());
        let (hash, is_trusted) = (pin.hash, pin.standing == PinStanding::Trusted);
        let before = catalog.set_pin(capability, pin);
        // What could not be told for a while nobody approved, nor what the state sees for the first time again.
        let was_waiting = before
            .as_ref()
            .is_some_and(|before| !matches!(before, PinStanding::Unknown(_)));
        let mut fresh = news.iter().flat_map(|news| &news.pins);
        let is_fresh = fresh.any(|pin| pin.tool.as_deref() == Some(capability.tool()));
        let approved = (was_waiting && is_trusted && !is_fresh).then(|| PinNews {
            state: PinChange::Approved,
            pins: vec![PinnedTool {
                tool: Some(capability.tool().to_owned()),
                hash,
                trusted: None,
            }],
            reason: None,
        });
        let told = news.into_iter().chain(approved);
        let told = told.map(|news| news_of(capability.server(), news));
        if before.is_none() {
            told.for_each(|event| self.events.tell(event));
            return;
        }
        let changed = Event::CatalogChanged {
            tools: catalog.tools().count(),
            unlisted: Vec::new(),
            reports: Vec::new(),
        };
        self.publish(catalog, std::iter::once(changed).chain(told));
    }
}

fn news_of(server: &ServerId, news: PinNews) -> Event {
    Event::Pin {
        server: server.clone(),
        state: news.state,
        pins: news.pins,
        reason: news.reason,
    }
}

#[cfg(test)]
mod tests {
    use portcullis_config::StdioSpec;
    use portcullis_supervisor::ToolDefinition;
    use portcullis_types::Hash;
    use serde_json::json;

    use super::*;

    fn spec() -> ServerSpec {
        ServerSpec::new("s".parse().unwrap(), StdioSpec::new("/bin/true", ["x"]))
    }

    /// What is wrong with a server's tools is told with its name, for as long as it lists them so.
    #[test]
    fn what_a_server_lists_badly_is_told_until_it_lists_it_well() {
        let (spec, events) = (spec(), EventBus::default());
        let mut heard = events.listen();
        let state = RouterArguments {
            specs: [(spec.id.clone(), spec.clone())].into(),
            catalog: watch::channel(Arc::new(Catalog::new(std::iter::once(&spec)))).0,
            events,
        };
        for (version, reports) in [(1, vec!["one is odd"]), (2, vec!["another is"]), (3, vec![])] {
            let list = ToolList {
                reports: reports.iter().map(|report| (*report).to_owned()).collect(),
                ..ToolList::default()
            };
            state.listed(spec.id.clone(), version, &list, Looked::default());
            let told: Vec<_> = reports.iter().map(|report| format!("s: {report}")).collect();
            assert_eq!(state.catalog.borrow().reports(), told);
            let event = serde_json::to_value(&heard.try_next().unwrap().event).unwrap();
            let expected = (!told.is_empty()).then(|| json!(told));
            assert_eq!(event.get("reports"), expected.as_ref());
        }
    }

    /// What is told once the tool `t`, which stood so, is trusted.
    fn told_of_trust(before: PinStanding) -> Vec<serde_json::Value> {
        let (told, standing) = told_of(before, Hash::of(b"t"), Vec::new());
        assert_eq!(standing, PinStanding::Trusted);
        told
    }

    /// The same for a definition of that hash, and how the tool stands then.
    fn told_of(
        before: PinStanding,
        trusted: Hash,
        news: Vec<PinNews>,
    ) -> (Vec<serde_json::Value>, PinStanding) {
        let spec = spec();
        let tool = ToolDefinition {
            name: "t".to_owned(),
            description: None,
            definition: r#"{"name":"t"}"#.into(),
        };
        let list = ToolList {
            tools: vec![tool],
            ..ToolList::default()
        };
        let pin = |standing| ToolPin {
            hash: Hash::of(b"t"),
            standing,
        };
        let mut catalog = Catalog::new(std::iter::once(&spec));
        catalog.set_tools(&spec, 1, &list, &[pin(before)]);
        let events = EventBus::default();
        let mut heard = events.listen();
        let state = RouterArguments {
            specs: BTreeMap::new(),
            catalog: watch::channel(Arc::new(catalog)).0,
            events,
        };
        let capability = "mcp.s.t".parse().unwrap();
        let now = ToolPin {
            hash: trusted,
            standing: PinStanding::Trusted,
        };
        state.pinned(&capability, now, news);
        let tool = Arc::clone(state.catalog.borrow().get(&capability).unwrap());
        let is_trusted = tool.pin.standing == PinStanding::Trusted;
        assert_eq!(tool.facts.definition_changed, !is_trusted);
        let told = std::iter::from_fn(|| heard.try_next());
        let told = told.map(|record| serde_json::to_value(&record.event).unwrap());
        (told.collect(), tool.pin.standing.clone())
    }

    /// What a person approved is one definition, and the server may list another by then.
    #[test]
    fn trust_in_another_definition_changes_nothing() {
        let (told, standing) = told_of(PinStanding::Changed, Hash::of(b"another"), Vec::new());
        assert_eq!((told.len(), standing), (0, PinStanding::Changed));
    }

    /// The state has them as seen, so nobody else would tell them.
    #[test]
    fn news_are_told_whatever_the_tool_is_by_then() {
        for (trusted, standing) in [
            (b"t".as_slice(), PinStanding::Trusted),
            (b"another", PinStanding::New),
        ] {
            let recorded = PinnedTool {
                tool: Some("t".to_owned()),
                hash: Hash::of(trusted),
                trusted: None,
            };
            let pin = json!({"tool": "t", "hash": recorded.hash});
            let news = PinNews {
                state: PinChange::Recorded,
                pins: vec![recorded],
                reason: None,
            };
            let (told, stands) = told_of(PinStanding::New, Hash::of(trusted), vec![news]);
            let recorded = json!({"event": "pin", "server": "s", "state": "recorded", "pins": [pin]});
            assert_eq!((told.last(), &stands), (Some(&recorded), &standing));
            assert!(!told.iter().any(|event| event["state"] == "approved"), "{told:?}");
        }
    }

    /// What could not be told for a while is no news once it can: nobody approved anything.
    #[test]
    fn only_what_somebody_approved_is_told_as_approved() {
        let changed = json!({"event": "catalog.changed", "tools": 1});
        let pins = [json!({"tool": "t", "hash": Hash::of(b"t")})];
        let approved = json!({"event": "pin", "server": "s", "state": "approved", "pins": pins});
        for before in [
            PinStanding::New,
            PinStanding::Changed,
            PinStanding::CommandChanged,
        ] {
            assert_eq!(told_of_trust(before), [changed.clone(), approved.clone()]);
        }
        assert_eq!(
            told_of_trust(PinStanding::Unknown("the state is busy".into())),
            [changed]
        );
    }
}
