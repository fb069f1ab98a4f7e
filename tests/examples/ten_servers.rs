//! How long nine well-kept stdio servers take to be ready, alone and beside a tenth that never answers.
//!
//! ```text
//! cargo run --release -p portcullis-e2e --example ten_servers
//! ```
//!
//! The servers are this very program, started as children with `server` as their first argument.

use std::{env, process::ExitCode, time::Duration};

use portcullis::{Catalog, Document, Hub, Preset, ServerState};
use portcullis_e2e::{mcp_servers, pair, scripted};
use portcullis_testkit::{Behaviour, Handshake, Script, Tool};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

const HEALTHY: usize = 9;
const RUNS: usize = 7;
/// A run that takes longer has failed.
const DEADLINE: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == "server") {
        return portcullis_testkit::run(arguments);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    println!(
        "{HEALTHY} servers, milliseconds from the hub's start until the first and the last of them is ready"
    );
    println!(
        "{:>5} {:>15} {:>15} {:>25}",
        "run", "alone", "with a tenth", "the last one came later by"
    );
    let mut worst = 0.0_f64;
    for run in 1..=RUNS {
        let alone = runtime.block_on(measure(false));
        let beside = runtime.block_on(measure(true));
        let later = beside.1 - alone.1;
        worst = worst.max(later);
        println!(
            "{run:>5} {:>7.1} {:>7.1} {:>7.1} {:>7.1} {later:>25.1}",
            alone.0, alone.1, beside.0, beside.1
        );
    }
    println!("at worst the nine were ready {worst:.1} ms later for the one that never answered");
    ExitCode::SUCCESS
}

/// When the first and the last healthy server were ready.
async fn measure(with_tenth: bool) -> (f64, f64) {
    let program = env::current_exe().unwrap();
    let server = |name: String, handshake| {
        let tool = Tool::new("hello", Behaviour::Text("hello".to_owned()));
        let script = Script::new(&name).handshake(handshake).tool(tool);
        let definition = scripted(program.to_str().unwrap(), &script);
        (
            name,
            pair(
                definition,
                "args",
                json!(["server", "--script", script.to_json()]),
            ),
        )
    };
    let healthy = (0..HEALTHY).map(|number| server(format!("well-{number}"), Handshake::Answer));
    let stuck = with_tenth.then(|| server("stuck".to_owned(), Handshake::Hang));
    // The one that never answers stands first: whoever waited for it would keep all others waiting.
    let servers: Vec<(String, Value)> = stuck.into_iter().chain(healthy).collect();

    let began = Instant::now();
    let hub = Hub::builder()
        .document(Document::new("mcp.json", mcp_servers(servers)))
        .preset(Preset::DenyByDefault)
        .start()
        .await
        .unwrap();
    let mut changes = hub.router().catalog_changes();
    let milliseconds = || began.elapsed().as_secs_f64() * 1_000.0;
    let ready = |catalog: &Catalog| {
        catalog
            .servers()
            .values()
            .filter(|server| server.state == ServerState::Ready)
            .count()
    };
    let both = async {
        changes.wait_for(|catalog| ready(catalog) >= 1).await.unwrap();
        let first = milliseconds();
        changes
            .wait_for(|catalog| ready(catalog) == HEALTHY)
            .await
            .unwrap();
        (first, milliseconds())
    };
    let measured = timeout(DEADLINE, both)
        .await
        .expect("the healthy servers come up");
    hub.shutdown().await.unwrap();
    measured
}
