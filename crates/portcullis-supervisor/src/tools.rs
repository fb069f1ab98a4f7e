//! Listing a server's tools: pages, caps, and one bad tool that does not spoil the rest.

mod listing;
mod unlisted;

use std::{collections::HashSet, fmt, sync::Arc, time::Duration};

use portcullis_config::ServerSpec;
use portcullis_types::Hash;
use rmcp::{
    RoleClient,
    model::{ClientRequest, ListToolsRequest, PaginatedRequestParams, RequestId},
    service::{Peer, PeerRequestOptions, ServiceError},
};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};
use serde_json::value::RawValue;
use thiserror::Error;
use tokio::time::timeout;

use crate::{
    connection::{raw_result, tell_cancelled},
    http::{ParamCache, guarded},
    said::excerpt,
};
use listing::{Listing, MAX_BYTES, ToolLimit};
pub use unlisted::UnlistedTool;

/// The most pages that are asked for in one listing.
const MAX_PAGES: usize = 1_000;
/// The most entries of one page that are looked at: a page of nothing but commas holds more than memory should.
const MAX_ENTRIES: usize = 1_000_000;
/// The longest cursor that is sent back, in bytes.
const MAX_CURSOR_BYTES: usize = 16 * 1024;
/// How many entries are read before others are given their turn: a page may hold millions.
const ENTRIES_A_TURN: usize = 1_000;

/// A tool as its server defined it, word for word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolDefinition {
    /// The raw name; never empty.
    pub name: String,
    /// What it says of itself, for people and models. Data, never instruction.
    pub description: Option<String>,
    /// The whole definition as JSON text.
    pub definition: Arc<str>,
}

/// What one listing gave.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolList {
    /// In the server's order; no two with one name.
    pub tools: Vec<ToolDefinition>,
    /// What the server's definition restricts and is not among the tools. Nothing bounds it but that definition.
    pub unlisted: Vec<UnlistedTool>,
    /// What was dropped, and why; a sentence each.
    pub reports: Vec<String>,
    /// For how long its server calls the list fresh, the least of all pages (`ttlMs`; MCP 2026-07-28, caching): then
    /// it is listed anew. With none it stands until the server says that it changed.
    pub ttl: Option<Duration>,
    /// Whether its server says that the list is for this client alone (`cacheScope`), on any page.
    pub private: bool,
}

/// Why a listing failed as a whole.
#[derive(Debug, Error)]
pub(crate) enum ListError {
    #[error("listing tools took over {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    #[error("listing tools failed: {0}")]
    Service(ServiceError),
    #[error("the list of tools cannot be read: {0}")]
    Unreadable(serde_json::Error),
    #[error(
        "the server lists more tools than its limit of {tools}, and the strict profile takes none of them then; raise `limits.tools` \
         if they are wanted"
    )]
    TooMany { tools: usize },
    #[error("the definitions of the server's tools take more than {MAX_BYTES} bytes")]
    TooLarge,
    #[error("a page of the server's list of tools has more than {MAX_ENTRIES} entries")]
    LongPage,
}

impl ListError {
    /// What happened, with what the server said of it as `shown` gives it.
    pub(crate) fn told(&self, shown: impl Fn(&str) -> String) -> String {
        match self {
            Self::Service(ServiceError::McpError(said)) => {
                format!(
                    "listing tools failed: error {}: {}",
                    said.code.0,
                    shown(&said.message)
                )
            }
            // What the SDK says around it names its types.
            Self::Service(ServiceError::TransportSend(failed)) => {
                let told = match guarded(failed.error.as_ref()) {
                    Some(failure) => failure.to_string(),
                    None => shown(&failed.error.to_string()),
                };
                format!("listing tools failed: {told}")
            }
            Self::Unreadable(error) => {
                format!("the list of tools cannot be read: {}", shown(&error.to_string()))
            }
            other => other.to_string(),
        }
    }

    /// Whether the server broke a rule that its definition holds it to: its connection may not stay then, whatever
    /// it listed before.
    pub(crate) fn ends_the_connection(&self) -> bool {
        matches!(self, Self::TooMany { .. } | Self::TooLarge | Self::LongPage)
    }
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow, default)]
    tools: Entries<'a>,
    #[serde(default, rename = "nextCursor")]
    next_cursor: Option<String>,
    // Hints, so that one of the wrong type costs nobody the list.
    #[serde(borrow, default, rename = "ttlMs")]
    ttl_ms: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "cacheScope")]
    cache_scope: Option<&'a RawValue>,
}

/// The entries of one page, no more than are looked at.
#[derive(Default)]
struct Entries<'a> {
    entries: Vec<&'a RawValue>,
    more: bool,
}

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;

        impl<'de> Visitor<'de> for List {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of tools")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Entries<'de>, A::Error> {
                let mut list = Entries::default();
                while list.entries.len() < MAX_ENTRIES {
                    let Some(entry) = seq.next_element()? else {
                        return Ok(list);
                    };
                    list.entries.push(entry);
                }
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    list.more = true;
                }
                Ok(list)
            }
        }

        deserializer.deserialize_seq(List)
    }
}

/// All pages, with one deadline for them together. Where arguments go into headers, `headers` is told which, and a tool
/// that names them badly is dropped.
pub(crate) async fn list_tools(
    peer: &Peer<RoleClient>,
    spec: &ServerSpec,
    headers: Option<&ParamCache>,
) -> Result<ToolList, ListError> {
    let deadline = spec.timeouts.list;
    let listing = async {
        let mut listing = list_pages(peer, ToolLimit::of(spec)).await?;
        if let Some(headers) = headers {
            listing.keep_good_headers(headers).await;
        }
        Ok(listing.finish().checked_against(spec))
    };
    timeout(deadline, listing)
        .await
        .map_err(|_| ListError::TimedOut(deadline))?
}

async fn list_pages(peer: &Peer<RoleClient>, limit: ToolLimit) -> Result<Listing, ListError> {
    let mut listing = Listing::new(limit);
    let mut cursor: Option<String> = None;
    let mut seen = HashSet::new();
    for _ in 0..MAX_PAGES {
        // `""` is a cursor like any other.
        let params = cursor
            .clone()
            .map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
        let request = ListToolsRequest {
            params,
            ..Default::default()
        };
        let handle = peer
            .send_request_with_option(
                ClientRequest::ListToolsRequest(request),
                PeerRequestOptions::no_options(),
            )
            .await
            .map_err(ListError::Service)?;
        let mut unanswered = Unanswered {
            peer,
            id: Some(handle.id.clone()),
        };
        let reply = handle.await_response().await;
        unanswered.id = None;
        let raw = reply.and_then(raw_result).map_err(ListError::Service)?;
        let page: Page<'_> = serde_json::from_str(&raw).map_err(ListError::Unreadable)?;
        listing.hints(page.ttl_ms, page.cache_scope);
        let mut next = page.next_cursor;
        for entries in page.tools.entries.chunks(ENTRIES_A_TURN) {
            for tool in entries {
                listing.add(tool.get())?;
            }
            tokio::task::yield_now().await;
        }
        if page.tools.more {
            listing.long_page()?;
        }
        if listing.full {
            next = None;
        }
        let Some(next) = next else {
            return Ok(listing);
        };
        if next.len() > MAX_CURSOR_BYTES {
            listing.report(format!(
                "a cursor has more than {MAX_CURSOR_BYTES} bytes; the listing ends here"
            ));
            return Ok(listing);
        }
        if !seen.insert(Hash::of(next.as_bytes())) {
            listing.report(format!(
                "the cursor `{}` came again; the listing ends here",
                excerpt(&next)
            ));
            return Ok(listing);
        }
        cursor = Some(next);
    }
    listing.report(format!(
        "there are more than {MAX_PAGES} pages; the listing ends here"
    ));
    Ok(listing)
}

/// A request for a page that waits for its reply. Dropped before that came, the server is told; a late reply is then known
/// to be one.
struct Unanswered<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            tell_cancelled(self.peer, id);
        }
    }
}

impl ToolDefinition {
    /// Reads one entry of a list. MCP 2026-07-28, server features, tools: `name` and an object as `inputSchema`
    /// are required.
    fn read(raw: &str) -> Result<Self, &'static str> {
        #[derive(Deserialize)]
        struct Shape<'a> {
            #[serde(borrow, default)]
            name: Option<&'a RawValue>,
            #[serde(borrow, default, rename = "inputSchema")]
            input_schema: Option<&'a RawValue>,
            #[serde(borrow, default)]
            description: Option<&'a RawValue>,
        }
        if !raw.starts_with('{') {
            return Err("it is not an object");
        }
        let shape: Shape<'_> = serde_json::from_str(raw).map_err(|_| "a key stands twice in it")?;
        let text = |value: &RawValue| serde_json::from_str::<String>(value.get()).ok();
        let name = shape.name.and_then(text).ok_or("its name is not a string")?;
        if name.is_empty() {
            return Err("its name is empty");
        }
        if !shape
            .input_schema
            .is_some_and(|schema| schema.get().starts_with('{'))
        {
            return Err("its inputSchema is not an object");
        }
        Ok(Self {
            name,
            description: shape.description.and_then(text),
            definition: raw.into(),
        })
    }
}

#[cfg(test)]
mod tests;
