//! The own format as a JSON Schema. The types are its description and nothing else: what is read is decided by the
//! reader, and the tests hold the two together.

#![expect(dead_code, reason = "the fields are described, and never read")]

use std::collections::BTreeMap;

use portcullis_config::{Code, Document, Options, normalize};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::Serialize;
use serde_json::Value;

use crate::machine::{Machine, committed};

/// A configuration of Portcullis.
#[derive(JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// Where an editor finds this description.
    #[serde(rename = "$schema", skip_serializing_if = "Option::is_none")]
    schema: Option<String>,
    /// Everything of Portcullis.
    mcp: Mcp,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Mcp {
    /// The servers, each with a name of its own.
    servers: Option<Vec<Server>>,
    /// `strict` reads the document as a host's definitions: absolute programs, no secrets in `env`, timeouts of
    /// 1,000 to 300,000 ms, at most 8 servers.
    profile: Option<Profile>,
    /// Hosts that every server over the network may be reached at: `host`, `*.suffix` or `https://host:port/path`.
    allowed_hosts: Option<Vec<String>>,
    /// The proxy that servers over the network are reached through. A rule must allow it as well.
    proxy: Option<Proxy>,
    /// Absolute paths of files of root certificates, in PEM, that are trusted beside the system's.
    root_certificates: Option<Vec<String>>,
    /// The timeout of each server that gives none, in milliseconds; 30,000 by default, 60,000 in the strict profile.
    #[schemars(range(min = 1, max = 86_400_000))]
    timeout_ms: Option<u64>,
    /// The folder of rules and policies, from this file's folder.
    policies: Option<String>,
    /// How freely agents may act: as the policies say (`request_approval`, the default), or what they ask about runs
    /// unasked, but for the floor and `always ask` (`full_access`). `allow_edits` and `plan` are as `request_approval`,
    /// unless a policy names them.
    tier: Option<Tier>,
    /// The profile, as policies speak of it, of each agent.
    agents: Option<BTreeMap<String, String>>,
    /// How results reach the host.
    results: Option<Results>,
    /// The store for what is large or binary in results.
    blobs: Option<Blobs>,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Results {
    /// The largest reply that is handed on, in bytes, after binary content was replaced; 65,536 by default.
    #[schemars(range(min = 1, max = 67_108_864))]
    max_reply_bytes: Option<u64>,
    /// What becomes of a larger one: stored whole, with a note in its place (`spill`), or its call fails (`reject`).
    oversize: Option<Oversize>,
    /// From which size on, in bytes, a data URL in text, or base64 in structured content, goes to the store; 4,096 by
    /// default.
    #[schemars(range(min = 1, max = 67_108_864))]
    data_url_min_bytes: Option<u64>,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
enum Oversize {
    Spill,
    Reject,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Blobs {
    /// What outlasts a power cut: every blob (`fsync`, the default; `group` syncs those that are stored at the same time
    /// together), or what the operating system had written (`none`).
    durability: Option<Durability>,
    /// What all blobs together may take, in bytes; without limit by default. A result that it does not hold fails its
    /// call.
    #[schemars(range(min = 1))]
    quota_bytes: Option<u64>,
    /// The largest single blob, in bytes; 4 GiB by default.
    #[schemars(range(min = 1))]
    max_blob_bytes: Option<u64>,
    /// How long what nothing keeps stays, in seconds: a hub that is told this collects what is older, as it starts and
    /// once an hour. Without it only `portcullis blobs gc` collects, after 7 days.
    #[schemars(range(min = 1, max = 315_360_000))]
    retention_seconds: Option<u64>,
    /// How long what a session stored is kept under the session's name, in seconds; for good by default.
    #[schemars(range(min = 1, max = 315_360_000))]
    session_seconds: Option<u64>,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
enum Durability {
    Fsync,
    Group,
    None,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
enum Profile {
    Desktop,
    Strict,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
enum Tier {
    RequestApproval,
    AllowEdits,
    Plan,
    FullAccess,
}

/// One MCP server: a program (`command`) or an endpoint (`url`).
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Server {
    /// Unique in the hub. A name of `a-z`, `0-9` and `-`, a letter first, is the server's id as it stands.
    #[schemars(length(min = 1))]
    name: String,
    /// What it is, for people.
    description: Option<String>,
    /// The program to start: an absolute path, or a bare name that is looked up in the PATH.
    command: Option<String>,
    /// Its arguments. References such as `${env:NAME}` are resolved when it starts.
    args: Option<Vec<Scalar>>,
    /// Variables set for it. Secrets belong into references: `${env:NAME}`, `${file:/path}`,
    /// `${keyring:service/account}`.
    env: Option<BTreeMap<String, Scalar>>,
    /// The absolute path of a file of `NAME=value` lines; `env` counts more.
    env_file: Option<String>,
    /// Variables of the hub that it gets as well.
    inherit_env: Option<Vec<String>>,
    /// Its working directory, an absolute path.
    cwd: Option<String>,
    /// A streamable HTTP endpoint.
    url: Option<String>,
    /// Headers of each request. Secrets belong into references.
    headers: Option<BTreeMap<String, Scalar>>,
    /// Where this server may be reached, beside `allowedHosts`.
    egress: Option<Vec<String>>,
    /// The proxy that this server is reached through, instead of that of all; `none` for no proxy.
    proxy: Option<Proxy>,
    /// Absolute paths of files of root certificates, in PEM, that are trusted for this server as well.
    root_certificates: Option<Vec<String>>,
    /// Its timeout for connecting, listing and a call without progress, in milliseconds; that of `mcp` by default.
    #[schemars(range(min = 1, max = 86_400_000))]
    timeout_ms: Option<u64>,
    /// Timeouts one by one.
    timeouts: Option<Timeouts>,
    /// Lets a call take an hour, as long as it progresses.
    long_running: Option<bool>,
    /// Which era of the protocol it speaks: `2026-07-28`, the one before with a handshake (`initialize`), or whichever it
    /// knows (`auto`, the default).
    protocol: Option<Protocol>,
    /// Whether sessions share its connection. `per_session` is read and has no effect yet.
    isolation: Option<Isolation>,
    /// How much of it there may be.
    limits: Option<Limits>,
    /// False keeps it from ever being started.
    enabled: Option<bool>,
    /// True keeps it from ever being started.
    disabled: Option<bool>,
    /// Tools that are not offered, each by the server's own name for it; one that it does not list is told.
    disabled_tools: Option<Vec<String>>,
    /// Tools that always ask a person; the same holds for their names.
    disabled_auto_approve_tools: Option<Vec<String>>,
}

/// A proxy: `http://host:port`, `https://host:port`, `none`, or one with a login.
#[derive(JsonSchema, Serialize)]
#[serde(untagged)]
enum Proxy {
    Url(String),
    Login(ProxyLogin),
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProxyLogin {
    /// `http://host:port` or `https://host:port`.
    url: String,
    /// Who the proxy is told that this is.
    username: Option<String>,
    /// The password of that user: a reference, such as `${env:PROXY_PASSWORD}`.
    password: Option<String>,
}

/// A text; numbers and booleans are taken as they are written.
#[derive(JsonSchema, Serialize)]
#[serde(untagged)]
enum Scalar {
    Text(String),
    Number(f64),
    Bool(bool),
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Timeouts {
    /// From the start to the end of the handshake, in milliseconds.
    #[schemars(range(min = 1, max = 86_400_000))]
    connect_ms: Option<u64>,
    /// For all pages of a list together, in milliseconds.
    #[schemars(range(min = 1, max = 86_400_000))]
    list_ms: Option<u64>,
    /// For a call without progress, in milliseconds.
    #[schemars(range(min = 1, max = 86_400_000))]
    call_ms: Option<u64>,
    /// For a call, however much it progresses, in milliseconds; at least `callMs`, ten times that by default.
    #[schemars(range(min = 1, max = 86_400_000))]
    call_max_ms: Option<u64>,
}

#[derive(JsonSchema, Serialize)]
enum Protocol {
    #[serde(rename = "auto")]
    Auto,
    #[serde(rename = "2026-07-28")]
    Modern,
    #[serde(rename = "initialize")]
    Initialize,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
enum Isolation {
    Shared,
    PerSession,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Limits {
    /// Calls at one time; 64 by default.
    #[schemars(range(min = 1, max = 1_000_000))]
    calls_in_flight: Option<u32>,
    /// Calls that wait for their turn; 1,024 by default.
    #[schemars(range(min = 1, max = 1_000_000))]
    calls_waiting: Option<u32>,
    /// Tools that it may list; 256 by default.
    #[schemars(range(min = 1, max = 1_000_000))]
    tools: Option<u32>,
    /// Address space of its process, in bytes. This and the following hold on Linux, for each process that it starts.
    #[schemars(range(min = 1))]
    memory_bytes: Option<u64>,
    /// Open descriptors of its process.
    #[schemars(range(min = 1, max = 1_000_000))]
    open_files: Option<u64>,
    /// Processes and threads of the user that it runs as.
    #[schemars(range(min = 1, max = 1_000_000))]
    processes: Option<u64>,
    /// Processor time of its process, in seconds.
    #[schemars(range(min = 1))]
    cpu_seconds: Option<u64>,
    /// The size of any file that its process writes, in bytes.
    #[schemars(range(min = 1))]
    file_bytes: Option<u64>,
}

pub(crate) fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12();
    settings.into_generator().into_root_schema_for::<Config>().into()
}

/// The same value with its members by name: their order depends on how the JSON library was built.
pub(crate) fn sorted(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let members: BTreeMap<_, _> = members
                .into_iter()
                .map(|(name, member)| (name, sorted(member)))
                .collect();
            Value::Object(members.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        leaf => leaf,
    }
}

#[test]
fn the_committed_schema_is_the_one_that_is_generated() {
    let text = serde_json::to_string_pretty(&sorted(schema())).unwrap() + "\n";
    committed("docs/schema/portcullis.schema.json", &text);
}

/// The names that the schema has for the fields of a type.
fn properties(of: &str) -> Vec<String> {
    let schema = schema();
    let fields = schema["$defs"][of]["properties"].as_object().unwrap();
    fields.keys().cloned().collect()
}

#[test]
fn what_the_schema_has_the_reader_reads_and_the_other_way_round() {
    for (of, before, after) in [
        (
            "Server",
            r#"{"mcp":{"servers":[{"name":"a",""#,
            r#"":{"zz":1}}]}}"#,
        ),
        ("Mcp", r#"{"mcp":{""#, r#"":{"zz":1}}}"#),
        (
            "Timeouts",
            r#"{"mcp":{"servers":[{"name":"a","timeouts":{""#,
            r#"":1}}]}}"#,
        ),
        (
            "Limits",
            r#"{"mcp":{"servers":[{"name":"a","limits":{""#,
            r#"":1}}]}}"#,
        ),
        ("Results", r#"{"mcp":{"results":{""#, r#"":{"zz":1}}}}"#),
        ("Blobs", r#"{"mcp":{"blobs":{""#, r#"":{"zz":1}}}}"#),
        (
            "ProxyLogin",
            r#"{"mcp":{"servers":[{"name":"a","proxy":{""#,
            r#"":1}}]}}"#,
        ),
    ] {
        for name in properties(of) {
            let document = Document::new("a.json", format!("{before}{name}{after}"));
            let found = normalize(&[document], &Options::default(), &Machine::default()).diagnostics;
            let quoted = format!("`{name}` is no field");
            assert!(
                !found.iter().any(|found| found.message.contains(&quoted)),
                "{of}: {found:?}"
            );
        }
    }
    // Whatever the reader suggests for a name that is nearly right, the schema has.
    let all: Vec<_> = ["Server", "Mcp", "Timeouts", "Limits"].map(properties).concat();
    for name in [
        "descriptions",
        "commands",
        "argz",
        "envs",
        "envFiles",
        "inheritEnvs",
        "cwds",
        "urls",
        "header",
        "egres",
        "proxi",
        "rootCertificate",
        "timeoutM",
        "longRuning",
        "protocols",
        "isolations",
        "limit",
        "enable",
        "disable",
        "disabledTool",
        "timeout",
        "disabledAutoApproveTool",
    ] {
        let document = Document::new(
            "a.json",
            format!(r#"{{"mcp":{{"servers":[{{"name":"a","{name}":1}}]}}}}"#),
        );
        let found = normalize(&[document], &Options::default(), &Machine::default()).diagnostics;
        let found = found
            .iter()
            .find(|found| found.code == Code::UnknownField)
            .unwrap();
        let meant = found.help.split('`').nth(1).unwrap_or_default();
        assert!(all.iter().any(|known| known == meant), "{name}: {}", found.help);
    }
}

/// Enough of a validator to hold our own documents against the schema.
fn fits(
    value: &serde_json::Value,
    schema: &serde_json::Value,
    root: &serde_json::Value,
) -> Result<(), String> {
    use serde_json::Value;
    if let Some(reference) = schema["$ref"].as_str() {
        return fits(
            value,
            root.pointer(reference.trim_start_matches('#')).unwrap(),
            root,
        );
    }
    if let Some(any) = schema["anyOf"].as_array().or_else(|| schema["oneOf"].as_array()) {
        return match any.iter().any(|schema| fits(value, schema, root).is_ok()) {
            true => Ok(()),
            false => Err(format!("{value} fits none")),
        };
    }
    if let Some(words) = schema["enum"].as_array() {
        return words
            .contains(value)
            .then_some(())
            .ok_or(format!("{value} is no such word"));
    }
    if schema["const"] != Value::Null {
        return (schema["const"] == *value)
            .then_some(())
            .ok_or(format!("{value} is another word"));
    }
    let kinds: Vec<_> = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        kind => kind.as_str().into_iter().collect(),
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() && kinds.contains(&"integer") => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if !kinds.contains(&kind) {
        return Err(format!("{value} is {kind}, not {kinds:?}"));
    }
    if let Value::Array(items) = value {
        return items
            .iter()
            .try_for_each(|item| fits(item, &schema["items"], root));
    }
    let Value::Object(members) = value else {
        return Ok(());
    };
    for (name, value) in members {
        match &schema["properties"][name] {
            Value::Null if schema["additionalProperties"].is_object() => {
                fits(value, &schema["additionalProperties"], root)?;
            }
            Value::Null => return Err(format!("`{name}` is not known")),
            schema => fits(value, schema, root)?,
        }
    }
    Ok(())
}

#[test]
fn good_documents_fit_the_schema_and_bad_ones_do_not() {
    let schema = schema();
    for (text, good) in [
        (
            r#"{"mcp":{"servers":[{"name":"a","command":"node","args":["x",1,true],"env":{"A":5}}]}}"#,
            true,
        ),
        (
            r#"{"mcp":{"servers":[],"tier":"plan","agents":{"a":"b"},"allowedHosts":["x"]}}"#,
            true,
        ),
        (
            r#"{"mcp":{"servers":[{"name":"a","url":"https://x","protocol":"2026-07-28","isolation":"per_session","limits":{"tools":8},"timeouts":{"callMs":5}}]}}"#,
            true,
        ),
        (
            r#"{"mcp":{"proxy":"http://p.example:3128","rootCertificates":["/etc/ssl/corp.pem"],"allowedHosts":["http://p.example:3128","x.example"],"servers":[{"name":"a","url":"https://x.example","proxy":{"url":"https://x.example","username":"u","password":"${env:DOCS_TOKEN}"}}]}}"#,
            true,
        ),
        (
            r#"{"mcp":{"servers":[{"name":"a","url":"https://x","proxy":{"url":"http://x","user":"u"}}]}}"#,
            false,
        ),
        (
            r#"{"mcp":{"servers":[{"name":"a","url":"https://x","proxy":false}]}}"#,
            false,
        ),
        (
            r#"{"mcp":{"servers":[],"results":{"maxReplyBytes":1,"oversize":"reject","dataUrlMinBytes":9},"blobs":{"durability":"group","quotaBytes":9000000000000,"maxBlobBytes":7,"retentionSeconds":60,"sessionSeconds":60}}}"#,
            true,
        ),
        (r#"{"mcp":{"servers":[],"results":{"oversize":"cut"}}}"#, false),
        (r#"{"mcp":{"servers":[],"results":{"maxReplyBytes":"1"}}}"#, false),
        (r#"{"mcp":{"servers":[],"blobs":{"durability":"None"}}}"#, false),
        (r#"{"mcp":{"servers":[],"blobs":{"quota":1}}}"#, false),
        (r#"{"mcp":{"servers":[],"blobs":[]}}"#, false),
        (r#"{"mcp":{"servers":[{"name":"a","comand":"node"}]}}"#, false),
        (r#"{"mcp":{"servers":"a"}}"#, false),
        (r#"{"mcp":{"servers":[{"name":"a","enabled":"yes"}]}}"#, false),
        (r#"{"mcp":{"tier":"root","servers":[]}}"#, false),
        (r#"{"mcp":{"servers":[{"name":"a","timeoutMs":"5"}]}}"#, false),
    ] {
        let value = serde_json::from_str(text).unwrap();
        assert_eq!(
            fits(&value, &schema, &schema).is_ok(),
            good,
            "{text}: {:?}",
            fits(&value, &schema, &schema)
        );
        let document = Document::new("a.json", text);
        let found = normalize(&[document], &Options::default(), &Machine::default()).diagnostics;
        let read = !found
            .iter()
            .any(|found| matches!(found.code, Code::UnknownField | Code::WrongType | Code::BadValue));
        assert_eq!(read, good, "{text}: {found:?}");
    }
}
