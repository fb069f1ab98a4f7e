//! One server for one turn, without a hub and so without policies: what it may do is what the host lets it be called.
//!
//! ```text
//! cargo run -p portcullis --example one_server -- mcp.json files list_allowed_directories '{}'
//! ```

use std::sync::Arc;

use anyhow::Context;
use portcullis::{
    CancellationToken, SupervisorOptions,
    config::{HostEnvironment, Options, normalize},
    read_documents, with_connection,
};

fn main() -> anyhow::Result<()> {
    // Before the runtime starts its threads: this very program, executed once more, parents the server.
    portcullis::warden::init();
    run()
}

#[tokio::main]
async fn run() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [config, server, tool, input] = arguments.as_slice() else {
        anyhow::bail!("usage: one_server CONFIG SERVER TOOL ARGUMENTS");
    };
    let environment = HostEnvironment::capture();
    let documents = read_documents(&[config.into()])?;
    let normalized = normalize(&documents, &Options::default(), &environment);
    for diagnostic in &normalized.diagnostics {
        eprintln!("{diagnostic}");
    }
    let specs = normalized.specs;
    let spec = specs
        .into_iter()
        .find(|spec| spec.id.as_str() == server)
        .with_context(|| format!("`{config}` defines no usable server `{server}`"))?;

    // Closed after the turn, whatever comes of it.
    let options = SupervisorOptions::new(Arc::new(environment));
    let result = with_connection(spec, options, async |connection| {
        for tool in connection.agent_tools() {
            println!("{}: {}", tool.name(), tool.description());
        }
        connection.call(tool, input, &CancellationToken::new()).await
    });
    println!("{}", result.await??);
    Ok(())
}
