//! Results as a client sees them, as raw JSON text.

use std::collections::BTreeMap;

use portcullis_router::{CallError, Catalog, CatalogTool};
use serde::Serialize;
use serde_json::{
    json,
    value::{RawValue, to_raw_value},
};

/// The result of `tools/list`: each definition as its server wrote it, under its alias.
pub(crate) fn tool_list(catalog: &Catalog, modern: bool) -> serde_json::Result<Box<RawValue>> {
    #[derive(Serialize)]
    struct List {
        tools: Vec<BTreeMap<String, Box<RawValue>>>,
        #[serde(flatten)]
        modern: Option<ModernList>,
    }
    /// MCP 2026-07-28, caching: what is listed may change with the next event, and is this client's alone.
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct ModernList {
        result_type: &'static str,
        ttl_ms: u64,
        cache_scope: &'static str,
    }
    let tools = catalog
        .tools()
        // An alias that would stand for two tools is offered for none.
        .filter(|tool| catalog.resolve_alias(tool.alias.as_str()).is_some())
        .filter_map(|tool| definition(tool).ok())
        .collect();
    let modern = modern.then_some(ModernList {
        result_type: "complete",
        ttl_ms: 0,
        cache_scope: "private",
    });
    to_raw_value(&List { tools, modern })
}

fn definition(tool: &CatalogTool) -> serde_json::Result<BTreeMap<String, Box<RawValue>>> {
    let mut definition: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&tool.definition)?;
    definition.insert("name".to_owned(), to_raw_value(&tool.alias)?);
    // A server's own metadata, and how it wants its tasks run, are between it and the hub.
    definition.remove("_meta");
    definition.remove("execution");
    Ok(definition)
}

/// The result of a call that ran.
pub(crate) fn outcome(result: &RawValue, modern: bool) -> serde_json::Result<Box<RawValue>> {
    let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(result.get())?;
    members.remove("resultType");
    if modern {
        members.insert("resultType".to_owned(), to_raw_value("complete")?);
    }
    to_raw_value(&members)
}

/// The result of a call that did not run, or whose outcome is not known: an error with its reason, for the model
/// to read, and the reason as data in `_meta`.
pub(crate) fn refusal(error: &CallError, modern: bool) -> serde_json::Result<Box<RawValue>> {
    let mut result = json!({
        "content": [{"type": "text", "text": cut(error.to_string())}],
        "isError": true,
        "_meta": {"portcullis/error": {"code": error.code(), "decision": error.explanation()}},
    });
    if modern && let Some(members) = result.as_object_mut() {
        members.insert("resultType".to_owned(), "complete".into());
    }
    to_raw_value(&result)
}

/// The most of an error's text that the model is shown, in characters: part of it may be a server's.
const SHOWN: usize = 4_000;

fn cut(text: String) -> String {
    let length = text.chars().count();
    if length <= SHOWN {
        return text;
    }
    let short: String = text.chars().take(SHOWN).collect();
    format!("{short}… ({length} characters in all)")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Part of an error may be a server's, and as long as it likes.
    #[test]
    fn a_long_error_is_cut_and_says_so() {
        let most = "é".repeat(SHOWN);
        assert_eq!(cut(most.clone()), most);
        assert_eq!(
            cut(format!("{most}é")),
            format!("{most}… ({} characters in all)", SHOWN + 1)
        );
    }
}
