use std::{sync::Arc, time::Duration};

use portcullis_blobs::{BlobError, BlobStore, Bytes};
use portcullis_config::Diagnostic;
use portcullis_router::{
    CallError, CallOutcome, CallRequest, Catalog, CatalogTool, Collector, EventStream, Router,
};
use portcullis_types::{BlobRef, Decision};

use crate::{HubBuilder, HubError};

/// Many MCP servers behind one door. See the crate's documentation for an example.
///
/// Dropped, it stops its servers in the background; [`shutdown`](Self::shutdown) waits until their processes are
/// gone.
#[derive(Debug)]
pub struct Hub {
    router: Arc<Router>,
    diagnostics: Vec<Diagnostic>,
    /// Keeps the store tidy for as long as this is there.
    pub(crate) _collector: Option<Collector>,
}

impl Hub {
    /// A builder with the defaults.
    pub fn builder() -> HubBuilder {
        HubBuilder::default()
    }

    pub(crate) fn new(router: Router, diagnostics: Vec<Diagnostic>, collector: Option<Collector>) -> Self {
        Self {
            router: Arc::new(router),
            diagnostics,
            _collector: collector,
        }
    }

    /// What was found in the documents: errors, each of which left out an entry, and warnings.
    #[must_use]
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// The tools that are offered now, by capability. Servers that are still coming up are not waited for; see
    /// [`settled`](Self::settled).
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<CatalogTool>> {
        self.catalog().tools().cloned().collect()
    }

    /// The current snapshot: tools, servers, aliases, reports.
    #[must_use]
    pub fn catalog(&self) -> Arc<Catalog> {
        self.router.catalog()
    }

    /// Waits until each server is ready or has failed once, by its own deadlines; gives the catalog of then.
    pub async fn settled(&self) -> Arc<Catalog> {
        self.router.settled().await
    }

    /// As [`settled`](Self::settled), but no longer than `budget`: what a turn of an agent can wait.
    pub async fn settled_within(&self, budget: Duration) -> Arc<Catalog> {
        self.router.settled_within(budget).await
    }

    /// Calls `capability`, an id (`mcp.<server>.<tool>`) or an alias, with `arguments`, a JSON object.
    ///
    /// For arguments that must arrive word for word use [`call_raw`](Self::call_raw).
    ///
    /// # Errors
    /// [`CallError`]: denied, needing approval, unknown, or what happened at the server, each with a stable code.
    pub async fn call(
        &self,
        capability: &str,
        arguments: &serde_json::Value,
    ) -> Result<CallOutcome, CallError> {
        let known = |catalog: &Catalog| catalog.resolve_alias(capability).cloned();
        let capability = match known(&self.catalog()).map_or_else(|| capability.parse(), Ok) {
            Ok(capability) => capability,
            // An alias is known once its server has listed its tools.
            Err(error) => known(&*self.settled().await).ok_or(error)?,
        };
        self.call_raw(CallRequest::new(capability, arguments.to_string()))
            .await
    }

    /// Calls with the arguments' very text, and with an agent and a tier of the call's own.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub async fn call_raw(&self, request: CallRequest) -> Result<CallOutcome, CallError> {
        self.router.call(request).await
    }

    /// What the policies say of a tool for the default agent and tier, with no arguments: for lists and menus. A
    /// call is decided anew, with its arguments.
    #[must_use]
    pub fn outlook(&self, tool: &CatalogTool) -> Decision {
        self.router.outlook(tool)
    }

    /// The content behind a reference, verified.
    ///
    /// # Errors
    /// [`BlobError`] where it is not there, or is not what its name says.
    pub async fn blob(&self, blob: BlobRef) -> Result<Bytes, BlobError> {
        self.router.store().get(blob).await
    }

    /// The store behind [`blob`](Self::blob).
    #[must_use]
    pub fn store(&self) -> &Arc<dyn BlobStore> {
        self.router.store()
    }

    /// All events from now on.
    #[must_use]
    pub fn events(&self) -> EventStream {
        self.router.events()
    }

    /// The router underneath, for gateways.
    #[must_use]
    pub fn router(&self) -> Arc<Router> {
        Arc::clone(&self.router)
    }

    /// Stops all servers and waits until their processes are gone.
    ///
    /// # Errors
    /// [`HubError::Router`] where some were still there when the stop sequence's time was over.
    pub async fn shutdown(self) -> Result<(), HubError> {
        Ok(self.router.shutdown().await?)
    }
}
