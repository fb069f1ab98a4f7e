//! `tools/list` (MCP, section "Listing Tools").

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use super::{
    BUSY, Busy, Engine, Flow, INVALID_PARAMS,
    message::{Request, error_frame, result_frame},
};
use crate::{ListReply, Paging, Tool};

/// One page: the entries, and the cursor it gives on.
type Cut<'a> = (Vec<&'a Tool>, Option<String>);

impl Engine {
    pub(super) fn on_list(self: &Arc<Self>, request: &Request<'_>) -> Flow {
        self.make_noise(&self.script.noise.before_list);
        match &self.script.listing.reply {
            ListReply::Answer => self.sink.line(self.page_frame(request)),
            ListReply::Raw(result) => self.reply(request.id, result),
            ListReply::Silence => {}
            ListReply::Exit { code } => return Flow::Exit(*code),
            ListReply::ThenExit { code } => {
                self.sink.line(self.page_frame(request));
                return Flow::Exit(*code);
            }
            ListReply::ErrorAfterChange { .. } if !self.state().changed => {
                self.sink.line(self.page_frame(request));
            }
            ListReply::Error { code, message } | ListReply::ErrorAfterChange { code, message } => {
                self.sink.line(error_frame(request.id, *code, message, None))
            }
            ListReply::AfterMs(ms) => {
                let time = Duration::from_millis(*ms);
                // The page is what it was when it was asked for, as from a server that is slow to send.
                let frame = self.page_frame(request);
                let waiting = self.spawn(move |engine| {
                    super::rendezvous::pause(time);
                    engine.sink.line(frame);
                    Flow::Go
                });
                if let Err(Busy) = waiting {
                    self.sink
                        .line(error_frame(request.id, BUSY, "too many calls at once", None));
                }
            }
        }
        Flow::Go
    }

    /// The tools that are there now, each with its place in the script.
    pub(super) fn shown(&self) -> impl Iterator<Item = (usize, &Tool)> {
        let changed = self.state().changed;
        self.script
            .tools
            .iter()
            .enumerate()
            .filter(move |(_, tool)| tool.shown.holds(changed))
    }

    fn page_frame(&self, request: &Request<'_>) -> String {
        let cursor = request.params.cursor.as_deref();
        let Some((tools, next)) = self.cut(cursor) else {
            let message = format!("there is no page at the cursor `{}`", cursor.unwrap_or_default());
            return error_frame(request.id, INVALID_PARAMS, &message, None);
        };
        // Joined as text: an entry need not be JSON.
        let entries: Vec<String> = tools.into_iter().map(Tool::entry).collect();
        let mut result = format!(r#"{{"tools":[{}]"#, entries.join(","));
        let mut add = |key: &str, value: &Value| result.push_str(&format!(r#","{key}":{value}"#));
        if let Some(next) = next {
            add("nextCursor", &next.into());
        }
        if self.is_modern(request) {
            self.modern_members()
                .iter()
                .for_each(|(key, value)| add(key, value));
            add("ttlMs", &0.into());
            add("cacheScope", &"private".into());
        }
        result.push('}');
        result_frame(request.id, &result)
    }

    /// The page at a cursor; none where there is no such page.
    fn cut(&self, cursor: Option<&str>) -> Option<Cut<'_>> {
        let all = || self.shown().map(|(_, tool)| tool).collect::<Vec<_>>();
        match (&self.script.listing.paging, cursor) {
            (Paging::Whole, None) => Some((all(), None)),
            (Paging::Whole, Some(_)) => None,
            (Paging::Size(size), cursor) => {
                let start: usize =
                    cursor.map_or(Some(0), |cursor| cursor.strip_prefix("at-")?.parse().ok())?;
                let all = all();
                let end = start.saturating_add(*size).min(all.len());
                let page = all.get(start..end)?.to_vec();
                Some((page, (end < all.len()).then(|| format!("at-{end}"))))
            }
            (Paging::Pages(pages), cursor) => {
                let page = pages.iter().find(|page| page.at.as_deref() == cursor)?;
                let shown: Vec<_> = self.shown().collect();
                let at = |place: &usize| shown.iter().find(|(of, _)| of == place).map(|(_, tool)| *tool);
                Some((page.tools.iter().filter_map(at).collect(), page.next.clone()))
            }
            (Paging::Endless, None) => Some((all(), Some("page-1".to_owned()))),
            (Paging::Endless, Some(cursor)) => {
                let number: u64 = cursor.strip_prefix("page-")?.parse().ok()?;
                Some((Vec::new(), Some(format!("page-{}", number.saturating_add(1)))))
            }
        }
    }
}
