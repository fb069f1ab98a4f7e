//! Arguments that also go out as headers, so that what stands before a server can route by them (MCP 2026-07-28,
//! streamable HTTP, SEP-2243). The SDK does this from its own view of a list; ours goes up as raw text.

mod arguments;
mod definition;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http::{HeaderMap, HeaderName};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage};

use crate::transport::RawArguments;
pub(crate) use definition::param_headers;

/// Which properties of a tool's input go out as headers too: a tree, so that a name above many of them is kept once and
/// the arguments of a call are read once for all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ParamHeaders {
    /// The header that the property here becomes.
    header: Option<HeaderName>,
    /// The properties below it.
    // INVARIANT: none of them is empty, and where there is a header there are none.
    below: HashMap<String, ParamHeaders>,
}

impl ParamHeaders {
    pub(crate) fn is_empty(&self) -> bool {
        self.header.is_none() && self.below.is_empty()
    }
}

/// Which arguments of which tool go into headers, from the last listing.
#[derive(Default)]
pub(crate) struct ParamCache(Mutex<HashMap<String, Arc<ParamHeaders>>>);

impl ParamCache {
    /// Takes over what a listing says, of the tools that it offers and of no others: what a server may list is bounded,
    /// and so is this.
    pub(crate) fn replace(&self, all: HashMap<String, Arc<ParamHeaders>>) {
        *self.lock() = all;
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// The headers of a call; none for any other message.
    pub(crate) fn headers(&self, message: &ClientJsonRpcMessage) -> HeaderMap {
        let JsonRpcMessage::Request(request) = message else {
            return HeaderMap::new();
        };
        let ClientRequest::CallToolRequest(call) = &request.request else {
            return HeaderMap::new();
        };
        let Some(wanted) = self.lock().get(call.params.name.as_ref()).cloned() else {
            return HeaderMap::new();
        };
        let Some(RawArguments(text)) = call.extensions.get::<RawArguments>() else {
            return HeaderMap::new();
        };
        arguments::headers(&wanted, text)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<ParamHeaders>>> {
        // No code panics while it holds the lock, and a map is valid at every step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
