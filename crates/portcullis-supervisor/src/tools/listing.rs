//! A listing in the making, and what it is held to.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use portcullis_config::{Profile, ServerSpec};
use serde_json::value::RawValue;

use super::{ListError, MAX_ENTRIES, ToolDefinition, ToolList};
use crate::{
    http::{ParamCache, param_headers},
    said::excerpt,
};

/// The most bytes that the definitions of one server's tools may take together.
pub(super) const MAX_BYTES: usize = 32 * 1024 * 1024;
/// The most reports that one listing makes; the rest are counted.
pub(super) const MAX_REPORTS: usize = 64;

/// How many tools a server may list, and what becomes of it where it lists more.
#[derive(Debug, Clone, Copy)]
pub(super) struct ToolLimit {
    pub(super) tools: usize,
    /// Too many fail the listing as a whole; else the first ones stay.
    pub(super) strict: bool,
}

impl ToolLimit {
    pub(super) fn of(spec: &ServerSpec) -> Self {
        Self {
            tools: usize::try_from(spec.limits.tools).unwrap_or(usize::MAX),
            strict: spec.profile == Profile::Strict,
        }
    }
}

/// A listing in the making. Whatever a server sends, it stays within its bounds.
#[derive(Debug)]
pub(super) struct Listing {
    limit: ToolLimit,
    list: ToolList,
    names: HashSet<String>,
    bytes: usize,
    unreported: usize,
    /// Nothing more is taken.
    pub(super) full: bool,
}

impl Listing {
    pub(super) fn new(limit: ToolLimit) -> Self {
        Self {
            limit,
            list: ToolList::default(),
            names: HashSet::new(),
            bytes: 0,
            unreported: 0,
            full: false,
        }
    }

    pub(super) fn add(&mut self, raw: &str) -> Result<(), ListError> {
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

    /// Whether there is room for one more. The list is full where there is none, and the rest is not looked at.
    fn check_room(&mut self) -> Result<(), ListError> {
        let tools = self.list.tools.len();
        let (error, more) = if tools >= self.limit.tools {
            (ListError::TooMany { tools }, String::new())
        } else if self.bytes > MAX_BYTES {
            let more = format!(", whose definitions take over {MAX_BYTES} bytes together");
            (ListError::TooLarge, more)
        } else {
            return Ok(());
        };
        if self.limit.strict {
            return Err(error);
        }
        self.full = true;
        self.report(format!(
            "there are more tools than the first {tools}{more}; the rest is not offered"
        ));
        Ok(())
    }

    /// The rest of such a page is not looked at, and no page behind it.
    pub(super) fn long_page(&mut self) -> Result<(), ListError> {
        if self.limit.strict {
            return Err(ListError::LongPage);
        }
        self.full = true;
        self.report(format!(
            "a page has more than {MAX_ENTRIES} entries; the listing ends there"
        ));
        Ok(())
    }

    /// MCP 2026-07-28, streamable HTTP (SEP-2243): a tool whose `x-mcp-header` annotations break the rules is not to
    /// be offered. `cache` is told of those that do not.
    pub(super) async fn keep_good_headers(&mut self, cache: &ParamCache) {
        let mut all = HashMap::new();
        for tool in std::mem::take(&mut self.list.tools) {
            match param_headers(&tool.definition) {
                Ok(headers) if headers.is_empty() => {}
                Ok(headers) => {
                    all.insert(tool.name.clone(), Arc::new(headers));
                    // It was read once more, and may be as large as all of them together.
                    tokio::task::yield_now().await;
                }
                Err(why) => {
                    self.report(format!("the tool `{}` was dropped: {why}", excerpt(&tool.name)));
                    tokio::task::yield_now().await;
                    continue;
                }
            }
            self.list.tools.push(tool);
        }
        cache.replace(all);
    }

    /// The least time to live of all pages holds, and the most private scope.
    pub(super) fn hints(&mut self, ttl_ms: Option<&RawValue>, cache_scope: Option<&RawValue>) {
        let millis = ttl_ms.and_then(|raw| serde_json::from_str::<u64>(raw.get()).ok());
        let ttl = millis.map(Duration::from_millis);
        self.list.ttl = self.list.ttl.into_iter().chain(ttl).min();
        self.list.private |= cache_scope.is_some_and(|raw| raw.get() == r#""private""#);
    }

    pub(super) fn report(&mut self, text: String) {
        if self.list.reports.len() < MAX_REPORTS {
            self.list.reports.push(text)
        } else {
            self.unreported += 1
        }
    }

    pub(super) fn finish(mut self) -> ToolList {
        if self.unreported > 0 {
            self.list
                .reports
                .push(format!("and {} more of the kind", self.unreported));
        }
        self.list
    }
}
