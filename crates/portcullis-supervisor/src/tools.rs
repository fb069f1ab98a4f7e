//! Listing a server's tools: pages, caps, and one bad tool that does not spoil the rest.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use portcullis_config::{Profile, ServerSpec};
use portcullis_types::Hash;
use rmcp::{
    RoleClient,
    model::{ClientRequest, ListToolsRequest, PaginatedRequestParams},
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
    connection::raw_result,
    http::{ParamCache, param_headers},
};

/// The most pages that are asked for in one listing.
const MAX_PAGES: usize = 1_000;
/// The most bytes that the definitions of one server's tools may take together.
const MAX_BYTES: usize = 32 * 1024 * 1024;
/// The most reports that one listing makes; the rest are counted.
const MAX_REPORTS: usize = 64;
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
}

impl ListError {
    /// Whether the server broke a rule that its definition holds it to: its connection may not stay then, whatever
    /// it listed before.
    pub(crate) fn ends_the_connection(&self) -> bool {
        matches!(self, Self::TooMany { .. } | Self::TooLarge)
    }
}

/// How many tools a server may list, and what becomes of it where it lists more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ToolLimit {
    tools: usize,
    /// Too many fail the listing as a whole; else the first ones stay.
    strict: bool,
}

impl ToolLimit {
    pub(crate) fn of(spec: &ServerSpec) -> Self {
        Self {
            tools: usize::try_from(spec.limits.tools).unwrap_or(usize::MAX),
            strict: spec.profile == Profile::Strict,
        }
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
    let list = timeout(deadline, list_pages(peer, ToolLimit::of(spec)))
        .await
        .map_err(|_| ListError::TimedOut(deadline))??;
    Ok(match headers {
        Some(headers) => list.with_good_headers(headers),
        None => list,
    })
}

async fn list_pages(peer: &Peer<RoleClient>, limit: ToolLimit) -> Result<ToolList, ListError> {
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
        let raw = handle
            .await_response()
            .await
            .and_then(raw_result)
            .map_err(ListError::Service)?;
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
            listing.too_many()?;
        }
        if listing.full {
            next = None;
        }
        let Some(next) = next else {
            return Ok(listing.finish());
        };
        if next.len() > MAX_CURSOR_BYTES {
            listing.report(format!(
                "a cursor has more than {MAX_CURSOR_BYTES} bytes; the listing ends here"
            ));
            return Ok(listing.finish());
        }
        if !seen.insert(Hash::of(next.as_bytes())) {
            listing.report(format!(
                "the cursor `{}` came again; the listing ends here",
                excerpt(&next)
            ));
            return Ok(listing.finish());
        }
        cursor = Some(next);
    }
    listing.report(format!(
        "there are more than {MAX_PAGES} pages; the listing ends here"
    ));
    Ok(listing.finish())
}

impl ToolList {
    /// MCP 2026-07-28, streamable HTTP (SEP-2243): a tool whose `x-mcp-header` annotations break the rules is not to
    /// be offered.
    fn with_good_headers(mut self, cache: &ParamCache) -> Self {
        let reports = &mut self.reports;
        let mut all = HashMap::new();
        self.tools.retain(|tool| match param_headers(&tool.definition) {
            Ok(headers) => {
                if !headers.is_empty() {
                    all.insert(tool.name.clone(), headers.into());
                }
                true
            }
            Err(why) => {
                reports.push(format!("the tool `{}` was dropped: {why}", excerpt(&tool.name)));
                false
            }
        });
        cache.replace(all);
        self
    }
}

/// A listing in the making. Whatever a server sends, it stays within its bounds.
#[derive(Debug)]
struct Listing {
    limit: ToolLimit,
    list: ToolList,
    names: HashSet<String>,
    bytes: usize,
    unreported: usize,
    full: bool,
}

impl Listing {
    fn new(limit: ToolLimit) -> Self {
        Self {
            limit,
            list: ToolList::default(),
            names: HashSet::new(),
            bytes: 0,
            unreported: 0,
            full: false,
        }
    }

    fn add(&mut self, raw: &str) -> Result<(), ListError> {
        if self.full {
            return Ok(());
        }
        match ToolDefinition::read(raw) {
            Err(why) => self.report(format!("a tool was dropped: {why}: {}", excerpt(raw))),
            Ok(tool) if self.names.contains(&tool.name) => {
                self.report(format!(
                    "the name `{}` came again; the first stands",
                    excerpt(&tool.name)
                ));
            }
            Ok(tool) => {
                self.bytes += raw.len();
                self.check_room()?;
                if !self.full {
                    self.names.insert(tool.name.clone());
                    self.list.tools.push(tool);
                }
            }
        }
        Ok(())
    }

    /// Whether there is room for one more; the list is full where there is none.
    fn check_room(&mut self) -> Result<(), ListError> {
        let (many, large) = (self.list.tools.len() >= self.limit.tools, self.bytes > MAX_BYTES);
        match (many, large) {
            (false, false) => Ok(()),
            (false, true) if self.limit.strict => Err(ListError::TooLarge),
            _ => self.too_many(),
        }
    }

    /// The rest is not looked at.
    fn too_many(&mut self) -> Result<(), ListError> {
        if self.full {
            return Ok(());
        }
        let tools = self.list.tools.len();
        if self.limit.strict {
            return Err(ListError::TooMany { tools });
        }
        self.full = true;
        self.report(format!(
            "there are more tools than the first {tools}; the rest is not offered"
        ));
        Ok(())
    }

    /// The least time to live of all pages holds, and the most private scope.
    fn hints(&mut self, ttl_ms: Option<&RawValue>, cache_scope: Option<&RawValue>) {
        let millis = ttl_ms.and_then(|raw| serde_json::from_str::<u64>(raw.get()).ok());
        let ttl = millis.map(Duration::from_millis);
        self.list.ttl = self.list.ttl.into_iter().chain(ttl).min();
        self.list.private |= cache_scope.is_some_and(|raw| raw.get() == r#""private""#);
    }

    fn report(&mut self, text: String) {
        if self.list.reports.len() < MAX_REPORTS {
            self.list.reports.push(text)
        } else {
            self.unreported += 1
        }
    }

    fn finish(mut self) -> ToolList {
        if self.unreported > 0 {
            self.list
                .reports
                .push(format!("and {} more of the kind", self.unreported));
        }
        self.list
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

/// The start of a server's text, safe to print.
fn excerpt(text: &str) -> String {
    let short: String = text.chars().take(80).flat_map(char::escape_debug).collect();
    if text.chars().nth(80).is_some() {
        format!("{short}…")
    } else {
        short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESKTOP: ToolLimit = ToolLimit {
        tools: 256,
        strict: false,
    };

    fn list(entries: &[&str]) -> ToolList {
        list_within(DESKTOP, entries).unwrap()
    }

    fn list_within(limit: ToolLimit, entries: &[&str]) -> Result<ToolList, ListError> {
        let mut listing = Listing::new(limit);
        entries.iter().try_for_each(|entry| listing.add(entry))?;
        Ok(listing.finish())
    }

    fn many(tools: usize) -> Vec<String> {
        (0..tools)
            .map(|n| format!(r#"{{"name":"t{n}","inputSchema":{{}}}}"#))
            .collect()
    }

    /// Report 24: a good tool stays beside whatever stands next to it, and each bad one is reported.
    #[test]
    fn bad_tools_are_dropped_one_by_one() {
        let good = r#"{"name":"good","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":"yes"},"icons":7}"#;
        let bad = [
            r#"{"name":"a","inputSchema":null}"#,
            r#"{"name":"b"}"#,
            r#"{"name":"c","inputSchema":"x"}"#,
            r#"{"name":"d","inputSchema":true}"#,
            r#"{"name":null,"inputSchema":{}}"#,
            r#"{"inputSchema":{}}"#,
            r#"{"name":"","inputSchema":{}}"#,
            "null",
            "[]",
        ];
        let mut entries = bad.to_vec();
        entries.insert(4, good);
        let list = list(&entries);
        assert_eq!(list.tools.len(), 1);
        assert_eq!(list.tools[0].definition.as_ref(), good, "kept word for word");
        assert_eq!(list.reports.len(), bad.len(), "{:#?}", list.reports);
    }

    /// Report 26: of two tools of one name the first stands.
    #[test]
    fn a_name_that_comes_twice_is_offered_once() {
        let list = list(&[
            r#"{"name":"x","description":"first","inputSchema":{}}"#,
            r#"{"name":"x","description":"second","inputSchema":{}}"#,
        ]);
        assert_eq!(list.tools.len(), 1);
        assert_eq!(list.tools[0].description.as_deref(), Some("first"));
        assert!(list.reports[0].contains('x'), "{:?}", list.reports);
    }

    #[test]
    fn neither_tools_nor_reports_grow_without_bound() {
        let many = many(266);
        let offered = list(&many.iter().map(String::as_str).collect::<Vec<_>>());
        let names: Vec<_> = offered.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(
            (names.len(), names[0], names[255]),
            (256, "t0", "t255"),
            "the first by the server's order"
        );
        assert_eq!(
            offered.reports,
            ["there are more tools than the first 256; the rest is not offered"]
        );

        let bad = list(&["0"; MAX_REPORTS + 5]);
        assert_eq!(bad.reports.len(), MAX_REPORTS + 1);
        assert_eq!(bad.reports.last().unwrap(), "and 5 more of the kind");

        let huge = format!(
            r#"{{"name":"huge","description":"{}","inputSchema":{{}}}}"#,
            "x".repeat(MAX_BYTES)
        );
        assert!(list(&[&huge]).tools.is_empty());
        let strict = ToolLimit {
            strict: true,
            ..DESKTOP
        };
        assert!(matches!(list_within(strict, &[&huge]), Err(ListError::TooLarge)));
    }

    #[test]
    fn of_a_page_that_is_all_commas_so_many_entries_are_looked_at() {
        for (entries, more) in [
            (0, false),
            (MAX_ENTRIES, false),
            (MAX_ENTRIES + 1, true),
            (3 * MAX_ENTRIES, true),
        ] {
            let page = format!(r#"{{"tools":[{}]}}"#, vec!["0"; entries].join(","));
            let page: Page<'_> = serde_json::from_str(&page).unwrap();
            let kept = page.tools.entries.len();
            assert_eq!(
                (kept, page.tools.more),
                (entries.min(MAX_ENTRIES), more),
                "{entries}"
            );
        }
        for page in ["{}", r#"{"tools":[]}"#] {
            assert!(serde_json::from_str::<Page<'_>>(page).is_ok(), "{page}");
        }
        for page in [r#"{"tools":null}"#, r#"{"tools":{}}"#, r#"{"tools":[}"#] {
            assert!(serde_json::from_str::<Page<'_>>(page).is_err(), "{page}");
        }
        let mut listing = Listing::new(DESKTOP);
        listing.too_many().unwrap();
        listing.too_many().unwrap();
        assert_eq!(listing.finish().reports.len(), 1);
        let strict = ToolLimit {
            strict: true,
            ..DESKTOP
        };
        assert!(Listing::new(strict).too_many().is_err());
    }

    /// What a server lists beyond what is offered must not be remembered either, however often it is listed.
    #[test]
    fn headers_are_remembered_of_offered_tools_alone_and_forgotten_with_them() {
        let schema = r#""inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"Region"}}}"#;
        let cache = ParamCache::default();
        for round in 0..3 {
            let offered = format!(r#"{{"name":"offered{round}",{schema}}}"#);
            let dropped: Vec<_> = (0..300)
                .map(|n| format!(r#"{{"name":"d{round}-{n}","description":1,"description":2,{schema}}}"#))
                .collect();
            let entries: Vec<_> = std::iter::once(&offered)
                .chain(&dropped)
                .map(String::as_str)
                .collect();
            let list = list(&entries).with_good_headers(&cache);
            assert_eq!((list.tools.len(), cache.len()), (1, 1));
        }
    }

    #[test]
    fn a_strict_server_with_too_many_tools_lists_none() {
        let strict = ToolLimit {
            strict: true,
            ..DESKTOP
        };
        let (fits, over) = (many(256), many(257));
        let list = |tools: Vec<String>| {
            let entries: Vec<_> = tools.iter().map(String::as_str).collect();
            list_within(strict, &entries)
        };
        assert_eq!(list(fits.clone()).unwrap().tools.len(), 256);
        let error = list(over).unwrap_err();
        assert!(error.ends_the_connection());
        assert!(error.to_string().contains("its limit of 256"), "{error}");
        // What is dropped anyway does not count: a bad tool, and a name that comes again.
        let mut beside = fits;
        beside.extend([
            r#"{"name":"bad"}"#.to_owned(),
            r#"{"name":"t0","inputSchema":{}}"#.to_owned(),
        ]);
        assert_eq!(list(beside).unwrap().tools.len(), 256);
    }

    #[test]
    fn the_least_time_to_live_of_all_pages_holds_and_the_most_private_scope() {
        let mut listing = Listing::new(DESKTOP);
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        for (ttl, scope) in [
            (None, None),
            (Some("60000"), Some(r#""public""#)),
            (Some("1500"), Some(r#""private""#)),
            (Some("-1"), Some("7")),
            (Some(r#""soon""#), None),
        ] {
            let (ttl, scope) = (ttl.map(raw), scope.map(raw));
            listing.hints(ttl.as_deref(), scope.as_deref());
        }
        let list = listing.finish();
        assert_eq!(list.ttl, Some(Duration::from_millis(1_500)));
        assert!(list.private);
    }

    #[test]
    fn what_a_server_wrote_is_printed_without_its_control_characters() {
        assert_eq!(excerpt("a\u{1b}[31m"), r"a\u{1b}[31m");
    }
}
