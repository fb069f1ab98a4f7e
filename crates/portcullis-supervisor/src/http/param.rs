//! Arguments that also go out as headers, so that what stands before a server can route by them (MCP 2026-07-28,
//! streamable HTTP, SEP-2243). The SDK does this from its own view of a list; ours goes up as raw text.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http::{HeaderMap, HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage};
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use crate::transport::RawArguments;

const ANNOTATION: &str = "x-mcp-header";
const PREFIX: &str = "mcp-param-";

/// How many headers the arguments of one tool may become: each is looked for in each call.
const MOST: usize = 64;

/// One property of a tool's input that goes out as a header too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParamHeader {
    /// The names from the arguments' root to the property.
    path: Vec<String>,
    name: HeaderName,
}

/// Which arguments of which tool go into headers, from the last listing.
#[derive(Default)]
pub(crate) struct ParamCache(Mutex<HashMap<String, Arc<[ParamHeader]>>>);

/// What the definition of a tool, JSON text, says of headers.
///
/// # Errors
/// What breaks the rules: a name that is no token or stands twice, a property that is not primitive, an annotation
/// anywhere but on a property that is reached through `properties` alone.
pub(crate) fn param_headers(definition: &str) -> Result<Vec<ParamHeader>, String> {
    #[derive(Deserialize)]
    struct Shape {
        #[serde(default, rename = "inputSchema")]
        input_schema: Map<String, Value>,
    }
    // Nearly every tool has none, and needs no second parsing.
    if !definition.contains(ANNOTATION) {
        return Ok(Vec::new());
    }
    let shape: Shape = serde_json::from_str(definition).map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    collect(&shape.input_schema, Some(&[]), &mut found)?;
    if found.len() > MOST {
        return Err(format!(
            "`{ANNOTATION}` stands at {} of its properties, and {MOST} may have it",
            found.len()
        ));
    }
    let mut names = HashSet::new();
    match found.iter().find(|header| !names.insert(header.name.clone())) {
        Some(twice) => Err(format!(
            "two of its properties have one `{ANNOTATION}`, `{}`",
            twice.name
        )),
        None => Ok(found),
    }
}

/// `path` is none where the schema is not reached through `properties` alone.
fn collect(
    schema: &Map<String, Value>,
    path: Option<&[String]>,
    found: &mut Vec<ParamHeader>,
) -> Result<(), String> {
    for (key, value) in schema {
        match key.as_str() {
            ANNOTATION => match path {
                Some(path) if !path.is_empty() => found.push(annotated(schema, value, path)?),
                _ => {
                    return Err(format!("`{ANNOTATION}` stands where no property of the input is"));
                }
            },
            "properties" => {
                for (name, schema) in value.as_object().into_iter().flatten() {
                    let below = path.map(|path| [path, std::slice::from_ref(name)].concat());
                    collect_below(schema, below.as_deref(), found)?;
                }
            }
            // Maps from names to schemas.
            "$defs" | "definitions" | "dependencies" | "dependentSchemas" | "patternProperties" => {
                for schema in value.as_object().into_iter().flat_map(Map::values) {
                    collect_below(schema, None, found)?;
                }
            }
            // Data and names, not schemas.
            "default" | "const" | "enum" | "examples" | "dependentRequired" => {}
            _ => collect_below(value, None, found)?,
        }
    }
    Ok(())
}

fn collect_below(value: &Value, path: Option<&[String]>, found: &mut Vec<ParamHeader>) -> Result<(), String> {
    match value {
        Value::Object(schema) => collect(schema, path, found),
        Value::Array(all) => all.iter().try_for_each(|value| collect_below(value, None, found)),
        _ => Ok(()),
    }
}

fn annotated(schema: &Map<String, Value>, name: &Value, path: &[String]) -> Result<ParamHeader, String> {
    let property = path.join(".");
    if !matches!(
        schema.get("type").and_then(Value::as_str),
        Some("string" | "integer" | "boolean")
    ) {
        return Err(format!(
            "its property `{property}` has an `{ANNOTATION}` and is no string, integer or boolean"
        ));
    }
    let header = name
        .as_str()
        .filter(|name| !name.is_empty())
        .and_then(|name| HeaderName::from_bytes(format!("{PREFIX}{name}").as_bytes()).ok());
    match header {
        Some(name) => Ok(ParamHeader {
            path: path.to_vec(),
            name,
        }),
        None => Err(format!(
            "the `{ANNOTATION}` of its property `{property}` is no name of a header"
        )),
    }
}

impl ParamCache {
    /// Takes over what a listing says, of the tools that it offers and of no others: what a server may list is bounded,
    /// and so is this.
    pub(crate) fn replace(&self, all: HashMap<String, Arc<[ParamHeader]>>) {
        *self.lock() = all;
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// The headers of a call; none for any other message.
    pub(crate) fn headers(&self, message: &ClientJsonRpcMessage) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let JsonRpcMessage::Request(request) = message else {
            return headers;
        };
        let ClientRequest::CallToolRequest(call) = &request.request else {
            return headers;
        };
        let Some(wanted) = self.lock().get(call.params.name.as_ref()).cloned() else {
            return headers;
        };
        let Some(RawArguments(text)) = call.extensions.get::<RawArguments>() else {
            return headers;
        };
        // They are long where anything is: read once for all of the headers.
        let Some(arguments) = members(text) else {
            return headers;
        };
        for ParamHeader { path, name } in wanted.iter() {
            if let Some(value) = at(&arguments, path).and_then(header_value) {
                headers.insert(name, value);
            }
        }
        headers
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<[ParamHeader]>>> {
        // No code panics while it holds the lock, and a map is valid at every step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Members<'a> = HashMap<Cow<'a, str>, &'a RawValue>;

fn members(text: &str) -> Option<Members<'_>> {
    serde_json::from_str(text).ok()
}

/// What stands at `path` in `arguments`, JSON text, as it stands there: what was decided on is what a header says, so
/// nothing is rounded, and no member is taken for the text in it.
fn at<'a>(arguments: &Members<'a>, path: &[String]) -> Option<&'a str> {
    let (first, rest) = path.split_first()?;
    rest.iter()
        .try_fold(arguments.get(first.as_str())?.get(), |text, key| {
            members(text)?.get(key.as_str()).map(|value| value.get())
        })
}

/// A primitive value, JSON text, as a header: as it is, or in base64 where a header could not carry it unchanged.
fn header_value(raw: &str) -> Option<HeaderValue> {
    let text: Cow<'_, str> = match raw.as_bytes().first()? {
        b'"' => serde_json::from_str::<String>(raw).ok()?.into(),
        b'{' | b'[' | b'n' => return None,
        _ => raw.into(),
    };
    let printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let padded = text.starts_with(' ') || text.ends_with(' ');
    // What looks as if it were in base64 would be decoded at the other end.
    let marked = text.starts_with("=?base64?") && text.ends_with("?=");
    let plain = printable && !(padded || marked);
    let text = if plain {
        text
    } else {
        format!(
            "=?base64?{}?=",
            base64_simd::STANDARD.encode_to_string(text.as_bytes())
        )
        .into()
    };
    HeaderValue::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use rmcp::model::{CallToolRequest, CallToolRequestParams, RequestId};

    use super::*;

    #[test]
    fn a_tool_of_which_too_many_properties_go_into_headers_is_none() {
        let property = |n: usize| format!(r#""p{n}":{{"type":"string","x-mcp-header":"H{n}"}}"#);
        let of = |count: usize| {
            let properties: Vec<_> = (0..count).map(property).collect();
            param_headers(&tool(&format!("{{{}}}", properties.join(","))))
        };
        assert_eq!(of(MOST).unwrap().len(), MOST);
        let told = of(MOST + 1).unwrap_err();
        assert_eq!(
            told,
            "`x-mcp-header` stands at 65 of its properties, and 64 may have it"
        );
    }

    fn tool(properties: &str) -> String {
        format!(r#"{{"name":"t","inputSchema":{{"type":"object","properties":{properties}}}}}"#)
    }

    #[test]
    fn annotations_that_break_the_rules_are_named() {
        let good = tool(
            r#"{"a":{"type":"string","x-mcp-header":"Region"},
                "b":{"type":"object","properties":{"c":{"type":"integer","x-mcp-header":"Deep"}}},
                "d":{"type":"object","default":{"x-mcp-header":7}}}"#,
        );
        let found = param_headers(&good).unwrap();
        let mut names: Vec<_> = found.iter().map(|header| header.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["mcp-param-deep", "mcp-param-region"]);
        for (properties, part) in [
            (
                r#"{"a":{"type":"string","x-mcp-header":""}}"#,
                "no name of a header",
            ),
            (
                r#"{"a":{"type":"string","x-mcp-header":7}}"#,
                "no name of a header",
            ),
            (
                r#"{"a":{"type":"string","x-mcp-header":"a b"}}"#,
                "no name of a header",
            ),
            (
                r#"{"a":{"type":"number","x-mcp-header":"A"}}"#,
                "no string, integer or boolean",
            ),
            (r#"{"a":{"x-mcp-header":"A"}}"#, "no string, integer or boolean"),
            (
                r#"{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}"#,
                "two of its properties",
            ),
            (
                r#"{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}"#,
                "where no property of the input is",
            ),
            (
                r#"{"a":{"anyOf":[{"type":"string","x-mcp-header":"A"}]}}"#,
                "where no property of the input is",
            ),
        ] {
            let error = param_headers(&tool(properties)).unwrap_err();
            assert!(error.contains(part), "{properties}: {error}");
        }
        let root = r#"{"name":"t","inputSchema":{"x-mcp-header":"A"}}"#;
        assert!(param_headers(root).is_err());
    }

    fn headers(cache: &ParamCache, arguments: &str) -> Vec<String> {
        let mut request = CallToolRequest::new(CallToolRequestParams::new("t"));
        request.extensions.insert(RawArguments(arguments.into()));
        let message =
            ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(request), RequestId::Number(1));
        let headers = cache.headers(&message);
        let mut lines: Vec<_> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        lines.sort();
        lines
    }

    #[test]
    fn values_go_out_as_they_are_or_in_base64() {
        let cache = ParamCache::default();
        let list = |properties: &str| {
            let headers = param_headers(&tool(properties)).unwrap();
            HashMap::from([("t".to_owned(), headers.into())])
        };
        cache.replace(list(
            r#"{"s":{"type":"string","x-mcp-header":"S"},"n":{"type":"integer","x-mcp-header":"N"},
                "o":{"type":"object","properties":{"b":{"type":"boolean","x-mcp-header":"B"}}}}"#,
        ));
        for (arguments, expected) in [
            (
                r#"{"s":"eu west","n":-7,"o":{"b":true},"x":1}"#,
                vec!["mcp-param-b: true", "mcp-param-n: -7", "mcp-param-s: eu west"],
            ),
            (r#"{"s":"é"}"#, vec!["mcp-param-s: =?base64?w6k=?="]),
            (r#"{"s":" x"}"#, vec!["mcp-param-s: =?base64?IHg=?="]),
            (
                r#"{"s":"a\r\nEvil: 1"}"#,
                vec!["mcp-param-s: =?base64?YQ0KRXZpbDogMQ==?="],
            ),
            (
                r#"{"s":"=?base64?x?="}"#,
                vec!["mcp-param-s: =?base64?PT9iYXNlNjQ/eD89?="],
            ),
            (r#"{"s":""}"#, vec!["mcp-param-s: "]),
            (r#"{"s":null,"n":[1],"o":7}"#, vec![]),
            (
                r#"{"n":123456789012345678901234567890, "s" : "\u0061\"" }"#,
                vec!["mcp-param-n: 123456789012345678901234567890", "mcp-param-s: a\""],
            ),
            // What the JSON library would take for the text in it, and the server does not.
            (r#"{"s":{"$serde_json::private::RawValue":"\"x\""}}"#, vec![]),
            (r#"{"$serde_json::private::RawValue":"{\"s\":\"x\"}"}"#, vec![]),
        ] {
            assert_eq!(headers(&cache, arguments), expected, "{arguments}");
        }
        // A tool that no longer asks for headers gets none.
        cache.replace(list(r#"{"s":{"type":"string"}}"#));
        assert!(headers(&cache, r#"{"s":"x"}"#).is_empty());
    }
}
