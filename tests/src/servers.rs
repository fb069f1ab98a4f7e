use std::path::{Path, PathBuf};

use portcullis_testkit::Script;
use serde_json::{Map, Value, json};

/// An `mcpServers` document, as desktop clients have it.
pub fn mcp_servers<N: Into<String>>(servers: impl IntoIterator<Item = (N, Value)>) -> String {
    let servers: Map<_, _> = servers
        .into_iter()
        .map(|(name, definition)| (name.into(), definition))
        .collect();
    json!({ "mcpServers": servers }).to_string()
}

/// The definition of a scripted server; `program` is the scripted server's.
pub fn scripted(program: &str, script: &Script) -> Value {
    json!({"command": program, "args": ["--script", script.to_json()]})
}

/// A definition with one more field.
pub fn pair(mut definition: Value, field: &str, value: Value) -> Value {
    definition[field] = value;
    definition
}

/// The path of a real server that `cargo xtask real-servers` installs.
pub fn real(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the package stands in the workspace")
        .join("target/real-servers/node_modules/.bin")
        .join(name);
    assert!(
        path.exists(),
        "the real server `{name}` is not installed: run `cargo xtask real-servers` first"
    );
    path
}
