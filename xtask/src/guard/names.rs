//! What sampling, roots and logging are called: by rmcp's items and by the protocol.

/// One of the three features that the hub never takes part in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Feature {
    Sampling,
    Roots,
    Logging,
}

use Feature::{Logging, Roots, Sampling};

/// Beginnings of names of rmcp's types and variants (rmcp 3, `model.rs` and `model/capabilities.rs`). A name counts
/// when it is the beginning, or when a new word follows: `CreateMessageResult`, `ListRoots`.
const TYPES: &[(&str, Feature)] = &[
    ("CreateMessage", Sampling),
    ("SamplingMessage", Sampling),
    ("SamplingContent", Sampling),
    ("SamplingCapability", Sampling),
    ("SamplingCapabilities", Sampling),
    ("ContextInclusion", Sampling),
    ("ModelPreferences", Sampling),
    ("ModelHint", Sampling),
    ("ListRoots", Roots),
    ("RootsListChanged", Roots),
    ("RootsCapability", Roots),
    ("RootsCapabilities", Roots),
    ("SetLevel", Logging),
    ("LoggingMessage", Logging),
    ("LoggingLevel", Logging),
    ("LoggingCapability", Logging),
    ("LoggingCapabilities", Logging),
];

/// Functions of rmcp's handlers, peers and builders.
const FUNCTIONS: &[(&str, Feature)] = &[
    ("create_message", Sampling),
    ("create_message_with_timeout", Sampling),
    ("enable_sampling", Sampling),
    ("enable_sampling_tools", Sampling),
    ("enable_sampling_context", Sampling),
    ("supports_sampling_tools", Sampling),
    ("list_roots", Roots),
    ("list_roots_with_timeout", Roots),
    ("on_roots_list_changed", Roots),
    ("notify_roots_list_changed", Roots),
    ("enable_roots", Roots),
    ("enable_roots_list_changed", Roots),
    ("set_level", Logging),
    ("set_log_level", Logging),
    ("on_logging_message", Logging),
    ("notify_logging_message", Logging),
    ("enable_logging", Logging),
];

/// Methods on the wire, and the request metadata that asks for log messages (SEP-2575).
const ON_THE_WIRE: &[(&str, Feature)] = &[
    ("sampling/createMessage", Sampling),
    ("roots/list", Roots),
    ("notifications/roots/list_changed", Roots),
    ("logging/setLevel", Logging),
    ("notifications/message", Logging),
    ("io.modelcontextprotocol/logLevel", Logging),
];

/// Fields of the capabilities that a client or a server declares.
const CAPABILITIES: &[(&str, Feature)] = &[("sampling", Sampling), ("roots", Roots), ("logging", Logging)];

impl Feature {
    pub(super) fn name(self) -> &'static str {
        match self {
            Sampling => "sampling",
            Roots => "roots",
            Logging => "logging",
        }
    }

    /// What to do instead.
    pub(super) fn help(self) -> String {
        format!(
            "the hub never offers, calls or handles {}: rmcp's `Service<RoleClient>` answers what it does not know with \
             -32601, unnamed; what a test server sends belongs into portcullis-testkit; a test that must see it absent \
             compares the whole capabilities object",
            self.name()
        )
    }
}

/// The feature that an identifier belongs to, if any.
pub(super) fn of_identifier(name: &str) -> Option<Feature> {
    let name = name.strip_prefix("r#").unwrap_or(name);
    let function = FUNCTIONS.iter().find(|(function, _)| *function == name);
    let begins = |&&(beginning, _): &&(&str, Feature)| {
        name.strip_prefix(beginning)
            .is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_lowercase()))
    };
    function
        .or_else(|| TYPES.iter().find(begins))
        .map(|&(_, feature)| feature)
}

/// The feature that a field of a capabilities object stands for, if any.
pub(super) fn of_capability(field: &str) -> Option<Feature> {
    let field = field.strip_prefix("r#").unwrap_or(field);
    CAPABILITIES
        .iter()
        .find(|(capability, _)| *capability == field)
        .map(|&(_, feature)| feature)
}

/// Whether a name speaks of declared capabilities: `ClientCapabilities`, `capabilities`, `client_caps`. Our own
/// `Capability` and `CapabilityId` name tools, and do not.
pub(super) fn means_capabilities(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("capabilities") || name.split('_').any(|word| word == "caps")
}

/// What a text says of the three: a method (as a word of its own, also inside longer JSON), or a capability inside
/// an object under a key that ends with `apabilities`. Each is named as it is found.
pub(super) fn in_text(text: &str) -> Vec<(String, Feature)> {
    // JSON may write a slash and, inside another string, a quote with a backslash before it.
    let text = text.replace("\\/", "/").replace("\\\"", "\"");
    let mut found = Vec::new();
    for &(method, feature) in ON_THE_WIRE {
        if contains_word(&text, method) {
            found.push((method.to_owned(), feature));
        }
    }
    for object in capability_objects(&text) {
        for &(field, feature) in CAPABILITIES {
            if has_key(object, field) {
                found.push((format!("capabilities.{field}"), feature));
            }
        }
    }
    found
}

/// Whether `word` stands in `text` with neither a path nor a longer name around it.
fn contains_word(text: &str, word: &str) -> bool {
    let part_of_name = |character: char| character.is_alphanumeric() || "_/-".contains(character);
    text.match_indices(word).any(|(start, _)| {
        let (before, from) = text.split_at(start);
        let after = from.get(word.len()..).unwrap_or_default();
        // A dot ends a sentence, or joins the word to the rest of a file's name.
        let joined = after.strip_prefix('.').unwrap_or(after);
        !before.ends_with(part_of_name)
            && !after.starts_with(part_of_name)
            && !joined.starts_with(part_of_name)
    })
}

/// The texts of the objects under keys such as `"capabilities"`. Texts with formatting braces (`{{`) and texts that
/// are cut are taken as far as they go.
fn capability_objects(text: &str) -> Vec<&str> {
    let mut objects = Vec::new();
    for (start, key) in text.match_indices("apabilities\"") {
        let after = text.get(start + key.len()..).unwrap_or_default();
        let Some(value) = after.trim_start().strip_prefix(':').map(str::trim_start) else {
            continue;
        };
        let mut depth = 0_usize;
        let mut end = value.len();
        for (at, character) in value.char_indices() {
            match character {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                end = at;
                break;
            }
        }
        objects.extend(value.get(..end));
    }
    objects
}

fn has_key(object: &str, key: &str) -> bool {
    let quoted = format!("\"{key}\"");
    object.match_indices(&quoted).any(|(start, _)| {
        object
            .get(start + quoted.len()..)
            .is_some_and(|after| after.trim_start().starts_with(':'))
    })
}
