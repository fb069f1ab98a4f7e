use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Behaviour, is_default};

/// One tool: how it is listed and what it does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a tool: an object with `name` and `behaviour`"
)]
pub struct Tool {
    /// The name that calls use, whatever [`Tool::raw`] says in the list. Two tools of one name may be listed; the
    /// first that is shown is called.
    pub name: String,
    /// What a call does.
    pub behaviour: Behaviour,
    /// `title` in the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// `description` in the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// `inputSchema` in the list; any object where nothing is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
    /// `outputSchema` in the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// `annotations` in the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Value>,
    /// `_meta` in the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
    /// The whole entry of the list as raw text, instead of the fields above: for entries that are not as they should
    /// be. It need not be JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
    /// When the tool is there.
    #[serde(default, skip_serializing_if = "is_default")]
    pub shown: Shown,
}

impl Tool {
    /// A tool that takes any object as its arguments.
    #[must_use]
    pub fn new(name: &str, behaviour: Behaviour) -> Self {
        Self {
            name: name.to_owned(),
            behaviour,
            title: None,
            description: None,
            input_schema: None,
            output_schema: None,
            annotations: None,
            meta: None,
            raw: None,
            shown: Shown::Always,
        }
    }

    /// Sets the description.
    #[must_use]
    pub fn describe(self, description: &str) -> Self {
        Self {
            description: Some(description.to_owned()),
            ..self
        }
    }

    /// Sets the title.
    #[must_use]
    pub fn title(self, title: &str) -> Self {
        Self {
            title: Some(title.to_owned()),
            ..self
        }
    }

    /// Sets the input schema, a JSON Schema object (or whatever a malformed list should hold).
    #[must_use]
    pub fn input_schema(self, schema: Value) -> Self {
        Self {
            input_schema: Some(schema),
            ..self
        }
    }

    /// Sets the input schema to an object of required properties, each given as name, JSON type and description.
    #[must_use]
    pub fn takes(self, properties: &[(&str, &str, &str)]) -> Self {
        let required: Vec<&str> = properties.iter().map(|(name, ..)| *name).collect();
        let properties: Map<String, Value> = properties
            .iter()
            .map(|(name, kind, what)| ((*name).to_owned(), json!({"type": kind, "description": what})))
            .collect();
        self.input_schema(json!({"type": "object", "properties": properties, "required": required}))
    }

    /// Sets the output schema.
    #[must_use]
    pub fn output_schema(self, schema: Value) -> Self {
        Self {
            output_schema: Some(schema),
            ..self
        }
    }

    /// Sets the annotations, for example `{"readOnlyHint": true}`.
    #[must_use]
    pub fn annotations(self, annotations: Value) -> Self {
        Self {
            annotations: Some(annotations),
            ..self
        }
    }

    /// Sets `_meta`.
    #[must_use]
    pub fn meta(self, meta: Value) -> Self {
        Self {
            meta: Some(meta),
            ..self
        }
    }

    /// Lists the tool as this raw text.
    #[must_use]
    pub fn raw(self, text: &str) -> Self {
        Self {
            raw: Some(text.to_owned()),
            ..self
        }
    }

    /// Sets when the tool is there.
    #[must_use]
    pub fn shown(self, shown: Shown) -> Self {
        Self { shown, ..self }
    }

    /// The tool's entry in the list (MCP, section "Tool"), as text.
    pub(crate) fn entry(&self) -> String {
        if let Some(raw) = &self.raw {
            return raw.clone();
        }
        let schema = self
            .input_schema
            .clone()
            .unwrap_or_else(|| json!({"type": "object"}));
        let mut entry = Map::from_iter([
            ("name".to_owned(), Value::from(self.name.as_str())),
            ("inputSchema".to_owned(), schema),
        ]);
        let optional = [
            ("title", self.title.clone().map(Value::from)),
            ("description", self.description.clone().map(Value::from)),
            ("outputSchema", self.output_schema.clone()),
            ("annotations", self.annotations.clone()),
            ("_meta", self.meta.clone()),
        ];
        entry.extend(
            optional
                .into_iter()
                .filter_map(|(key, value)| Some((key.to_owned(), value?))),
        );
        Value::Object(entry).to_string()
    }
}

/// When a tool is there, listed and callable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shown {
    /// All the time.
    #[default]
    Always,
    /// Until [`Behaviour::ListChanged`] was called. With a second tool of the same name after it, a definition that
    /// changes.
    BeforeChange,
    /// Once [`Behaviour::ListChanged`] was called.
    AfterChange,
}

impl Shown {
    pub(crate) fn holds(self, changed: bool) -> bool {
        match self {
            Self::Always => true,
            Self::BeforeChange => !changed,
            Self::AfterChange => changed,
        }
    }
}

/// How `tools/list` is answered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "an object with `paging` and `reply`"
)]
pub struct Listing {
    /// How the pages are cut.
    #[serde(skip_serializing_if = "is_default")]
    pub paging: Paging,
    /// What becomes of the request.
    #[serde(skip_serializing_if = "is_default")]
    pub reply: ListReply,
}

/// How the list of tools is cut into pages.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Paging {
    /// All tools at once.
    #[default]
    Whole,
    /// Pages of that many tools, at least one, with a cursor from each to the next.
    Size(usize),
    /// Pages as written down, found by the cursor they stand at: cursors that repeat, go round, or are `""`.
    Pages(Vec<Page>),
    /// All tools on the first page, and then empty pages with a new cursor for ever.
    Endless,
}

/// One page of [`Paging::Pages`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a page: an object with `at`, `tools` and `next`"
)]
pub struct Page {
    /// The cursor that the page answers to; none for the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Its tools, by their place among those of the script, from 0.
    pub tools: Vec<usize>,
    /// The cursor it gives on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// What becomes of `tools/list`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListReply {
    /// It is answered at once.
    #[default]
    Answer,
    /// It is answered after that many milliseconds.
    AfterMs(u64),
    /// It is never answered.
    Silence,
    /// It is answered with an error.
    Error {
        /// JSON-RPC error code.
        code: i64,
        /// The error's message.
        message: String,
    },
    /// It is answered until the tools change ([`Behaviour::ListChanged`](crate::Behaviour::ListChanged)), and then with
    /// an error.
    ErrorAfterChange {
        /// JSON-RPC error code.
        code: i64,
        /// The error's message.
        message: String,
    },
    /// It is answered with this raw JSON as `result`.
    Raw(String),
    /// The server ends when it is asked.
    Exit {
        /// Exit code.
        code: u8,
    },
    /// It is answered at once, and then the server ends.
    ThenExit {
        /// Exit code.
        code: u8,
    },
}
