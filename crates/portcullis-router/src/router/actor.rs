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
    pins::{Looked, PinStanding, ToolPin},
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
            RouterMessage::Pinned { capability, pin } => {
                state.pinned(&capability, pin);
                return Ok(());
            }
            RouterMessage::PoliciesSwapped => {
                let catalog = Catalog::clone(&state.catalog.borrow());
                let changed = Event::CatalogChanged {
                    tools: catalog.tools().count(),
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
            reports: list.reports.clone(),
        };
        let news = looked.news.into_iter().map(|news| Event::Pin {
            server: server.clone(),
            state: news.state,
            pins: news.pins,
            reason: news.reason,
        });
        self.publish(catalog, std::iter::once(changed).chain(news));
    }

    fn pinned(&self, capability: &CapabilityId, pin: ToolPin) {
        let mut catalog = Catalog::clone(&self.catalog.borrow());
        let (hash, standing) = (pin.hash, pin.standing.clone());
        let Some(before) = catalog.set_pin(capability, pin) else {
            return;
        };
        let changed = Event::CatalogChanged {
            tools: catalog.tools().count(),
            reports: Vec::new(),
        };
        let approved =
            (standing == PinStanding::Trusted && !matches!(before, PinStanding::Unknown(_))).then(|| {
                Event::Pin {
                    server: capability.server().clone(),
                    state: PinChange::Approved,
                    pins: vec![PinnedTool {
                        tool: Some(capability.tool().to_owned()),
                        hash,
                        trusted: None,
                    }],
                    reason: None,
                }
            });
        self.publish(catalog, std::iter::once(changed).chain(approved));
    }
}
