use portcullis_types::CapabilityId;
use serde::Deserialize;
use serde_json::value::RawValue;

/// What the policies know of a tool. It comes from the hub and from the tool's definition; where the definition
/// is silent or wrong, the worst is assumed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ToolFacts {
    /// What the tool is called.
    pub capability: CapabilityId,
    /// How its server is reached: `stdio`, `http`, or `host` for a host's own tools.
    pub transport: String,
    /// What the server claims of the tool. A policy may restrict by it; on its own it grants nothing.
    pub hints: ToolHints,
    /// The server demands that a person is asked each time: the floor.
    pub requires_user_interaction: bool,
    /// Ours: true unless the user switched auto-approve off, which puts the tool under the floor.
    pub auto_approve: bool,
    /// The definition is not the one that was trusted.
    pub definition_changed: bool,
}

/// The annotations of a tool (MCP 2026-07-28, server/tools, `ToolAnnotations`). The default is the worst case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ToolHints {
    /// `readOnlyHint`: it changes nothing.
    pub read_only: bool,
    /// `destructiveHint`: its changes may destroy.
    pub destructive: bool,
    /// `idempotentHint`: calling it again changes nothing more.
    pub idempotent: bool,
    /// `openWorldHint`: it reaches beyond a closed set of things.
    pub open_world: bool,
}

impl Default for ToolHints {
    fn default() -> Self {
        Self {
            read_only: false,
            destructive: true,
            idempotent: false,
            open_world: true,
        }
    }
}

impl ToolFacts {
    /// The facts in a tool's definition as its server sent it: the JSON text of one item of `tools/list`.
    ///
    /// A hint that is absent or no boolean gets its worst value. The floor holds where
    /// `_meta["anthropic/requiresUserInteraction"]` is anything but `false`, and where it cannot be read because
    /// the definition or its `_meta` is malformed or names a key twice.
    #[must_use]
    pub fn from_definition(
        capability: CapabilityId,
        transport: &str,
        definition_json: &str,
        auto_approve: bool,
    ) -> Self {
        let definition: Option<Definition<'_>> = object(definition_json);
        let (hints, requires_user_interaction) = match definition {
            Some(definition) => (hints(definition.annotations), requires_a_person(definition.meta)),
            None => (ToolHints::default(), true),
        };
        Self {
            capability,
            transport: transport.to_owned(),
            hints,
            requires_user_interaction,
            auto_approve,
            definition_changed: false,
        }
    }

    /// Whether a person is asked each time, whatever the policies say.
    #[must_use]
    pub fn is_under_the_floor(&self) -> bool {
        self.requires_user_interaction || !self.auto_approve
    }

    /// The attribute of this name, if it is one that is true or false.
    pub(crate) fn flag(&self, attr: &str) -> Option<bool> {
        Some(match attr {
            "readOnly" => self.hints.read_only,
            "destructive" => self.hints.destructive,
            "idempotent" => self.hints.idempotent,
            "openWorld" => self.hints.open_world,
            "requiresUserInteraction" => self.requires_user_interaction,
            "autoApprove" => self.auto_approve,
            "definitionChanged" => self.definition_changed,
            _ => return None,
        })
    }

    /// The attribute of this name, if it is a part of the capability's id.
    pub(crate) fn text(&self, attr: &str) -> Option<&str> {
        Some(match attr {
            "source" => self.capability.source().as_str(),
            "server" => self.capability.server().as_str(),
            "name" => self.capability.tool(),
            _ => return None,
        })
    }
}

#[derive(Deserialize)]
struct Definition<'a> {
    #[serde(borrow, default)]
    annotations: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Annotations<'a> {
    #[serde(borrow, default, rename = "readOnlyHint")]
    read_only: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "destructiveHint")]
    destructive: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "idempotentHint")]
    idempotent: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "openWorldHint")]
    open_world: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(
        borrow,
        default,
        deserialize_with = "present",
        rename = "anthropic/requiresUserInteraction"
    )]
    requires_user_interaction: Option<&'a RawValue>,
}

/// Keeps a `null` apart from an absent key.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Reads a JSON object and nothing else: serde would fill a struct from an array as well.
fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    text.trim_start()
        .starts_with('{')
        .then(|| serde_json::from_str(text).ok())
        .flatten()
}

fn hints(annotations: Option<&RawValue>) -> ToolHints {
    let worst = ToolHints::default();
    let Some(given) = annotations.and_then(|raw| object::<Annotations<'_>>(raw.get())) else {
        return worst;
    };
    ToolHints {
        read_only: flag(given.read_only).unwrap_or(worst.read_only),
        destructive: flag(given.destructive).unwrap_or(worst.destructive),
        idempotent: flag(given.idempotent).unwrap_or(worst.idempotent),
        open_world: flag(given.open_world).unwrap_or(worst.open_world),
    }
}

fn flag(raw: Option<&RawValue>) -> Option<bool> {
    match raw?.get() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

fn requires_a_person(meta: Option<&RawValue>) -> bool {
    let Some(meta) = meta else { return false };
    match object::<Meta<'_>>(meta.get()) {
        Some(meta) => meta
            .requires_user_interaction
            .is_some_and(|flag| flag.get() != "false"),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(definition: &str, hints: (bool, bool, bool, bool), floor: bool) {
        let facts = ToolFacts::from_definition("mcp.a.b".parse().unwrap(), "stdio", definition, true);
        let ToolHints {
            read_only,
            destructive,
            idempotent,
            open_world,
        } = facts.hints;
        assert_eq!(
            (read_only, destructive, idempotent, open_world),
            hints,
            "{definition}"
        );
        assert_eq!(facts.is_under_the_floor(), floor, "{definition}");
    }

    #[test]
    fn what_a_definition_does_not_say_is_taken_at_its_worst() {
        const WORST: (bool, bool, bool, bool) = (false, true, false, true);
        let key = "anthropic/requiresUserInteraction";
        check(r#"{"name":"b"}"#, WORST, false);
        check(
            r#"{"annotations":{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}}"#,
            (true, false, true, false),
            false,
        );
        check(
            r#"{"annotations":{"readOnlyHint":"true","destructiveHint":0,"idempotentHint":null,"openWorldHint":[]}}"#,
            WORST,
            false,
        );
        check(r#"{"annotations":[true,false,true,false]}"#, WORST, false);
        // What the JSON library would take for the text in it.
        check(
            r#"{"annotations":{"readOnlyHint":{"$serde_json::private::RawValue":"true"}}}"#,
            WORST,
            false,
        );
        check(
            r#"{"annotations":{"readOnlyHint":true,"readOnlyHint":true}}"#,
            WORST,
            false,
        );
        check(&format!(r#"{{"_meta":{{"{key}":false}}}}"#), WORST, false);
        check(r#"{"_meta":{"other":true}}"#, WORST, false);
        for malformed in ["true", "null", "\"false\"", "0", "[]", "{}"] {
            check(&format!(r#"{{"_meta":{{"{key}":{malformed}}}}}"#), WORST, true);
        }
        check(
            &format!(r#"{{"_meta":{{"{key}":true,"{key}":false}}}}"#),
            WORST,
            true,
        );
        check(r#"{"_meta":null,"annotations":null}"#, WORST, false);
        check(r#"{"_meta":[]}"#, WORST, true);
        check(r#"{"_meta":"x"}"#, WORST, true);
        for broken in ["", "null", "[]", "{", r#"{"_meta":{},"_meta":{}}"#] {
            check(broken, WORST, true);
        }
    }

    #[test]
    fn auto_approve_switched_off_is_the_floor() {
        let facts = ToolFacts::from_definition("mcp.a.b".parse().unwrap(), "stdio", "{}", false);
        assert!(facts.is_under_the_floor() && !facts.requires_user_interaction);
    }
}
