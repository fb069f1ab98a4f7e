use std::{collections::BTreeMap, sync::Arc};

use portcullis_config::ServerSpec;
use portcullis_supervisor::SupervisorEvent;
use portcullis_types::ServerId;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::watch;

use super::message::RouterMessage;
use crate::{
    catalog::Catalog,
    event::{Event, EventBus},
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
        let RouterMessage::Supervisor(event) = message;
        let mut catalog = Catalog::clone(&state.catalog.borrow());
        // The snapshot first, the event after: whoever hears of a change finds it.
        let told = match event {
            SupervisorEvent::State {
                server,
                from,
                to,
                reason,
                pid,
            } => {
                catalog.set_state(&server, to, reason.clone(), pid);
                Some(Event::ServerState {
                    server,
                    from,
                    to,
                    reason,
                    pid,
                })
            }
            // Changes nothing that the catalog shows.
            SupervisorEvent::Egress { server, record } => {
                state.events.tell(Event::egress(server, record));
                return Ok(());
            }
            SupervisorEvent::Tools {
                server,
                version,
                list,
            } => state.specs.get(&server).map(|spec| {
                catalog.set_tools(spec, version, &list);
                Event::CatalogChanged {
                    tools: catalog.tools().count(),
                    reports: list.reports.clone(),
                }
            }),
        };
        state.catalog.send_replace(Arc::new(catalog));
        if let Some(event) = told {
            state.events.tell(event);
        }
        Ok(())
    }
}
