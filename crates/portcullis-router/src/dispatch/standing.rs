//! How a tool that is not trusted stands now: a person may have approved it since, in this process or another.

use std::sync::Arc;

use portcullis_state::{StateError, Trusting};
use portcullis_supervisor::ToolDefinition;
use portcullis_types::Hash;
use ractor::ActorRef;
use tokio::{
    task::JoinHandle,
    time::{Instant, timeout_at},
};

use super::Dispatch;
use crate::{
    catalog::CatalogTool,
    error::CallError,
    pins::{Looked, PinStanding, Pinning},
    router::RouterMessage,
};

impl Dispatch {
    /// The tool as it stands now.
    pub(super) async fn as_it_stands(
        &self,
        tool: Arc<CatalogTool>,
        deadline: Instant,
    ) -> Result<Arc<CatalogTool>, CallError> {
        if tool.pin.standing == PinStanding::Trusted {
            return Ok(tool);
        }
        let began = Instant::now();
        match timeout_at(deadline, self.look_again(&tool)).await {
            Ok(looked) => Ok(looked.unwrap_or(tool)),
            Err(_) => Err(CallError::timed_out(&tool.capability, deadline - began)),
        }
    }

    /// Looks a tool up once more, also where nobody waits for that any more: what the state has as seen is no news to
    /// whoever looks next, so whoever was first tells it.
    fn look_again(&self, tool: &Arc<CatalogTool>) -> JoinHandle<Arc<CatalogTool>> {
        tokio::spawn(look_and_tell(
            self.pinning.clone(),
            self.actor.clone(),
            Arc::clone(tool),
        ))
    }

    /// Trusts what waits, and lets the tools that it is about stand as they do now.
    pub(crate) async fn trust(&self, subject: &str, hash: Hash, by: &str) -> Result<Trusting, StateError> {
        let trusting = self
            .pinning
            .trust(subject.to_owned(), hash, by.to_owned())
            .await?;
        let catalog = Arc::clone(&self.catalog.borrow());
        for tool in catalog.tools() {
            let capability = tool.capability.to_string();
            let is_meant = capability == subject || format!("mcp.{}", tool.capability.server()) == subject;
            if is_meant && tool.pin.standing != PinStanding::Trusted {
                let _ = self.look_again(tool).await;
            }
        }
        Ok(trusting)
    }
}

async fn look_and_tell(
    pinning: Pinning,
    actor: ActorRef<RouterMessage>,
    tool: Arc<CatalogTool>,
) -> Arc<CatalogTool> {
    let definition = ToolDefinition {
        name: tool.capability.tool().to_owned(),
        description: None,
        definition: Arc::clone(&tool.definition),
    };
    let Looked { pins, mut news } = pinning.look(tool.capability.server(), &[definition]).await;
    let Some(pin) = pins.into_iter().next() else {
        return tool;
    };
    let is_unknown = |standing: &PinStanding| matches!(standing, PinStanding::Unknown(_));
    if is_unknown(&pin.standing) {
        // The call is denied by it, but of the tool it says nothing: what the catalog knows is still what is known.
        news.clear();
        if !is_unknown(&tool.pin.standing) {
            return Arc::new(tool.with_pin(pin));
        }
    }
    if pin != tool.pin || !news.is_empty() {
        let _ = actor.send_message(RouterMessage::Pinned {
            capability: tool.capability.clone(),
            pin: pin.clone(),
            news,
        });
    }
    Arc::new(tool.with_pin(pin))
}
