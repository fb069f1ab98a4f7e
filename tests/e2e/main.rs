//! The end-to-end tests; see the library beside them for what they share.

use portcullis_e2e::{Folder, Program, mcp_servers, scripted};
use portcullis_testkit::Script;

mod approvals;
mod calls;
mod commands;
mod configuration;
mod egress;
mod environment;
mod exit_codes;
mod faults;
mod hub;
mod pins;
mod policy;
mod processes;
mod readme;
mod real_servers;
mod reload;
mod results;
mod secrets;
mod serve;

/// The program under test.
const PORTCULLIS: &str = env!("CARGO_BIN_EXE_e2e-portcullis");
/// The scripted server.
const SCRIPTED: &str = env!("CARGO_BIN_EXE_e2e-scripted-server");

/// `portcullis` with these arguments, in `folder`.
fn portcullis(folder: &Folder, arguments: &[&str]) -> Program {
    Program::new(PORTCULLIS, folder).args(arguments)
}

/// An `mcpServers` document with scripted servers.
fn document(servers: &[(&str, Script)]) -> String {
    mcp_servers(
        servers
            .iter()
            .map(|(name, script)| (*name, scripted(SCRIPTED, script))),
    )
}

/// Writes `mcp.json` with scripted servers.
fn configure(folder: &Folder, servers: &[(&str, Script)]) {
    folder.write("mcp.json", document(servers));
}
