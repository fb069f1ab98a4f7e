//! What a tool was when it was first listed in this run. A tool that changes afterwards asks a person each time:
//! what was granted was granted to another tool.

use std::collections::BTreeMap;

use portcullis_types::{CapabilityId, Hash};
use serde_json::Value;

/// The parts of a definition that a person or a policy goes by.
const PINNED: [&str; 6] = [
    "name",
    "title",
    "description",
    "inputSchema",
    "outputSchema",
    "annotations",
];

/// The definitions that were seen first, by hash.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pins(BTreeMap<CapabilityId, Hash>);

impl Pins {
    /// Whether `definition` is another than the one seen first, which is what this one becomes where there is none.
    pub(crate) fn is_changed(&mut self, capability: &CapabilityId, definition: &str) -> bool {
        let hash = definition_hash(definition);
        *self.0.entry(capability.clone()).or_insert(hash) != hash
    }
}

/// The hash of the pinned parts over canonical JSON: members sorted by name, no white space. The order in which a
/// server happens to write them does not matter.
fn definition_hash(definition: &str) -> Hash {
    let Ok(Value::Object(mut members)) = serde_json::from_str(definition) else {
        return Hash::of(definition.as_bytes());
    };
    members.retain(|name, _| PINNED.contains(&name.as_str()));
    let mut text = String::new();
    write_canonical(&Value::Object(members), &mut text);
    Hash::of(text.as_bytes())
}

fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(members) => {
            // Sorted here: whether the map is depends on features that another crate may switch on.
            let sorted: BTreeMap<_, _> = members.iter().collect();
            text.push('{');
            for (name, member) in sorted {
                text.push_str(&Value::String(name.clone()).to_string());
                text.push(':');
                write_canonical(member, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                write_canonical(item, text);
                text.push(',');
            }
            text.push(']');
        }
        leaf => text.push_str(&leaf.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Report 46: what changes asks again, and order alone is no change.
    #[test]
    fn a_change_shows_and_order_does_not() {
        let mut pins = Pins::default();
        let id: CapabilityId = "mcp.a.x".parse().unwrap();
        let first = r#"{"name":"x","description":"reads","inputSchema":{"type":"object","required":["a","b"]},"_meta":{"n":1}}"#;
        assert!(!pins.is_changed(&id, first));
        let reordered = r#"{ "inputSchema":{"required":["a","b"],"type":"object"}, "_meta":{"n":2}, "description":"reads","name":"x"}"#;
        assert!(!pins.is_changed(&id, reordered));
        for changed in [
            r#"{"name":"x","description":"deletes","inputSchema":{"type":"object","required":["a","b"]}}"#,
            r#"{"name":"x","description":"reads","inputSchema":{"type":"object","required":["b","a"]}}"#,
            r#"{"name":"x","description":"reads","inputSchema":{"type":"object","required":["a","b"]},"annotations":{"readOnlyHint":true}}"#,
        ] {
            assert!(pins.is_changed(&id, changed), "{changed}");
        }
        assert!(!pins.is_changed(&id, first), "what was seen first still stands");
    }
}
