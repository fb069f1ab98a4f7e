//! What reading a configuration costs, in one run: `cargo xtask bench config`.
//!
//! First one document with 1,000, 10,000 and 100,000 servers in each notation, its limits raised. Then documents that
//! are made to be slow: to normalise one, to check it or to import it may take 50 ms for 100 KiB, and `check` and
//! `import` take about four times as long for one that is four times as long. With a word, only those documents that
//! are called by it are tried. Times are processor time of the thread, medians of seven repetitions, of three for the
//! longer documents. Ends with 1 where a bound is broken.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::{hint::black_box, path::Path, process::ExitCode, time::Duration};

use portcullis_config::{Document, Environment, Excerpts, Options, Sources, import, normalize};
use rustix::time::{ClockId, clock_gettime};

#[path = "../../../fuzz/bodies/hostile.rs"]
mod hostile;

const REPETITIONS: usize = 7;
/// Of the longer documents, which are there to be compared with the shorter ones alone.
const REPETITIONS_OF_LONG: usize = 3;
/// What 10,000 servers may take.
const MOST_FOR_10_000: Duration = Duration::from_secs(1);
/// What 100 KiB may take, whatever stands in them.
const MOST_FOR_100_KIB: Duration = Duration::from_millis(50);
const KIB_100: usize = 100 * 1024;

fn main() -> ExitCode {
    let many = std::env::args().len() > 1 || many_servers();
    let hostile = hostile_documents();
    if many && hostile {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// A machine in memory, so that no file system is measured.
struct Machine;

impl Sources for Machine {
    fn variable(&self, name: &str) -> Option<String> {
        match name {
            "PATH" => Some("/usr/local/bin:/usr/bin:/bin".to_owned()),
            "HOME" => Some("/home/ada".to_owned()),
            _ => None,
        }
    }

    fn file(&self, path: &str) -> Option<String> {
        (path == "/f").then(|| "A=1\nB=2\n".to_owned())
    }
}

impl Environment for Machine {
    fn is_executable(&self, path: &Path) -> bool {
        path == Path::new("/usr/bin/node")
    }
}

fn many_servers() -> bool {
    let options = Options {
        max_servers: Some(usize::MAX),
        max_document_bytes: usize::MAX,
        ..Options::default()
    };
    println!("| one document | bytes | servers | normalise | a server | growth |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let mut fits = true;
    for (name, write) in [
        ("json", json as fn(usize) -> String),
        ("yaml", yaml),
        ("toml", toml),
    ] {
        let mut first = None;
        for servers in [1_000_u32, 10_000, 100_000] {
            let text = write(servers as usize);
            let bytes = text.len();
            let document = Document::new(format!("many.{name}"), text);
            let documents = std::slice::from_ref(&document);
            let normalized = normalize(documents, &options, &Machine);
            let all_there = normalized.specs.len() == servers as usize && normalized.diagnostics.is_empty();
            let took = median(REPETITIONS, || {
                drop(black_box(normalize(documents, &options, &Machine)))
            });
            let each = took / servers;
            let growth = each.as_secs_f64() / first.get_or_insert(each).as_secs_f64();
            println!("| {name} | {bytes} | {servers} | {took:.1?} | {each:.2?} | {growth:.2} × |");
            fits &= all_there && (servers != 10_000 || took < MOST_FOR_10_000);
        }
    }
    println!(
        "\n10,000 servers in under {MOST_FOR_10_000:?}, each notation: {}\n",
        verdict(fits)
    );
    fits
}

fn json(servers: usize) -> String {
    let all: Vec<_> = (0..servers)
        .map(|n| match n % 4 {
            0 => format!(
                "    \"web-{n}\": {{\"url\": \"https://s{n}.example.com/mcp\", \"headers\": {{\"X-Id\": \"{n}\"}}}}"
            ),
            _ => format!(
                "    \"local-{n}\": {{\"command\": \"node\", \"args\": [\"server.js\", \"{n}\"], \"env\": {{\"MODE\": \"m{n}\"}}}}"
            ),
        })
        .collect();
    format!("{{\n  \"mcpServers\": {{\n{}\n  }}\n}}\n", all.join(",\n"))
}

fn yaml(servers: usize) -> String {
    let server = |n: usize| match n % 4 {
        0 => format!(
            "    - name: web-{n}\n      url: https://example.com/{n}/mcp\n      headers:\n        X-Id: \"{n}\"\n"
        ),
        _ => format!(
            "    - name: local-{n}\n      command: node\n      args: [server.js, \"{n}\"]\n      env:\n        MODE: m{n}\n"
        ),
    };
    let all: String = (0..servers).map(server).collect();
    format!("mcp:\n  allowedHosts: [example.com]\n  servers:\n{all}")
}

fn toml(servers: usize) -> String {
    let server = |n: usize| match n % 4 {
        0 => format!(
            "[mcp_servers.web-{n}]\nurl = \"https://s{n}.example.com/mcp\"\nhttp_headers = {{ X-Id = \"{n}\" }}\n\n"
        ),
        _ => format!(
            "[mcp_servers.local-{n}]\ncommand = \"node\"\nargs = [\"server.js\", \"{n}\"]\nenv = {{ MODE = \"m{n}\" }}\n\n"
        ),
    };
    (0..servers).map(server).collect()
}

type Work = fn(&Document);

/// What is measured of a document: the normaliser alone, and all that the two commands do.
const MEASURED: [(&str, Work); 3] = [
    ("normalise", only_normalize),
    ("check", check),
    ("import", print_import),
];

fn only_normalize(document: &Document) {
    black_box(normalize(
        std::slice::from_ref(document),
        &Options::default(),
        &Machine,
    ));
}

fn check(document: &Document) {
    let options = Options {
        trace: true,
        ..Options::default()
    };
    let normalized = normalize(std::slice::from_ref(document), &options, &Machine);
    render(document, &options, &normalized.diagnostics);
    black_box(normalized);
}

fn print_import(document: &Document) {
    let options = Options::default();
    let imported = import(document, &options, &Machine);
    render(document, &options, &imported.diagnostics);
    black_box(imported);
}

fn render(document: &Document, options: &Options, found: &[portcullis_config::Diagnostic]) {
    let excerpts = Excerpts::new(document, options);
    for diagnostic in found {
        black_box(excerpts.render(diagnostic, false));
    }
}

fn hostile_documents() -> bool {
    println!("| made to be slow, 100 KiB | normalise | check | growth to 400 KiB | import | growth |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let (small, large) = (hostile::documents(KIB_100), hostile::documents(4 * KIB_100));
    let mut worst = MEASURED.map(|_| (Duration::ZERO, String::new()));
    let mut quadratic = Vec::new();
    for ((name, small), (_, large)) in small.into_iter().zip(large) {
        if !name.contains(&wanted) {
            continue;
        }
        let (small, large) = (Document::new(name, small), Document::new(name, large));
        let mut row = format!("| {name} |");
        for ((command, run), worst) in MEASURED.into_iter().zip(&mut worst) {
            let took = median(REPETITIONS, || run(&small));
            row += &format!(" {took:.2?} |");
            if took > worst.0 {
                *worst = (took, name.to_owned());
            }
            if command == "normalise" {
                continue;
            }
            // A document that cannot be made to the size asked for is not held against a time for it.
            let ratio = large.bytes.len() as f64 / small.bytes.len() as f64;
            let longer = median(REPETITIONS_OF_LONG, || run(&large)).as_secs_f64();
            let growth = longer / took.as_secs_f64() / ratio;
            row += &format!(" {growth:.2} × |");
            if growth > 2.0 && longer > 0.02 {
                quadratic.push(format!("{command} {name}"));
            }
        }
        println!("{row}");
    }
    println!();
    let mut fits = true;
    for ((command, _), (took, name)) in MEASURED.into_iter().zip(worst) {
        let under = took < MOST_FOR_100_KIB;
        fits &= under;
        println!(
            "slowest to {command}: {took:.1?} ({name}); under {MOST_FOR_100_KIB:?}: {}",
            verdict(under)
        );
    }
    let found = match quadratic.is_empty() {
        true => "none".to_owned(),
        false => quadratic.join(", "),
    };
    println!("growing more than twice as fast as their length: {found}");
    fits && quadratic.is_empty()
}

fn verdict(fits: bool) -> &'static str {
    if fits { "yes" } else { "NO" }
}

fn median(repetitions: usize, mut run: impl FnMut()) -> Duration {
    let mut times: Vec<_> = (0..repetitions)
        .map(|_| {
            let start = processor_time();
            run();
            processor_time().saturating_sub(start)
        })
        .collect();
    times.sort();
    times.get(repetitions / 2).copied().unwrap_or_default()
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
