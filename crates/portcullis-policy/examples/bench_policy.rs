//! The costs of deciding, in one run: `cargo xtask bench policy`.
//!
//! Each figure is the median of seven repetitions. The mix of policies: 50 % whole servers, 25 % single tools, 15 %
//! patterns with a server, 5 % patterns over all servers, 5 % that read arguments; five of them concern the tool.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::{
    error::Error,
    hint::black_box,
    time::{Duration, Instant},
};

use portcullis_policy::{CallQuestion, DecisionPoint, PolicyFile, ToolFacts};
use portcullis_types::{AgentId, Tier};

const REPETITIONS: usize = 7;

fn main() -> Result<(), Box<dyn Error>> {
    let agent = AgentId::default();
    let tool = tool("mcp.s0.get_item")?;
    let question = |arguments| CallQuestion {
        agent: &agent,
        profile: &agent,
        tier: Tier::RequestApproval,
        tool: &tool,
        arguments,
        now_ms: 1_785_196_800_000,
    };
    let small = question(r#"{"path":"/srv/a","limit":20}"#);
    println!("| policies | load and index | plain Cedar | three-way decision | ratio | growth |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let mut first = None;
    for policies in [10, 1_000, 10_000] {
        let files = mix(policies, true);
        let loading = median(1, || {
            DecisionPoint::load(&files)
                .map(drop)
                .map_err(|errors| errors.to_string())
        })?;
        let point = DecisionPoint::load(&files)?;
        let plain = median(if policies > 1_000 { 5 } else { 50 }, || {
            drop(black_box(point.decide_unindexed(&small)));
            Ok(())
        })?;
        let indexed = median(2_000, || {
            drop(black_box(point.decide(&small)));
            Ok(())
        })?;
        let base = *first.get_or_insert(indexed);
        println!(
            "| {policies} | {} | {} | {} | {:.0} × | {:.2} × |",
            shown(loading),
            shown(plain),
            shown(indexed),
            plain.as_secs_f64() / indexed.as_secs_f64(),
            indexed.as_secs_f64() / base.as_secs_f64(),
        );
    }
    println!();
    standing(&tool, &agent, &small)?;
    catalog(&agent)?;
    big_arguments(&question)
}

fn standing(tool: &ToolFacts, agent: &AgentId, small: &CallQuestion<'_>) -> Result<(), Box<dyn Error>> {
    let point = DecisionPoint::load(&mix(1_000, false))?;
    let prepared = point.prepare(tool).ok_or("there are no policies")?;
    let answer = median(20_000, || {
        black_box(prepared.standing(agent, agent, Tier::RequestApproval))
            .map(drop)
            .ok_or_else(|| "it does not stand".to_owned())
    })?;
    println!("an answer that stands, 1,000 policies: {}", shown(answer));
    let decided = median(20_000, || {
        drop(black_box(point.decide(small)));
        Ok(())
    })?;
    println!("the same as a decision, arguments checked: {}", shown(decided));
    Ok(())
}

fn catalog(agent: &AgentId) -> Result<(), Box<dyn Error>> {
    let files = mix(1_000, true);
    let tools: Result<Vec<_>, _> = (0..1_000)
        .map(|n| tool(&format!("mcp.s{}.get_item{n}", n % 40)))
        .collect();
    let tools = tools?;
    let mut times = Vec::new();
    for _ in 0..REPETITIONS {
        let point = DecisionPoint::load(&files)?;
        let began = Instant::now();
        for tool in &tools {
            let prepared = point.prepare(tool).ok_or("there are no policies")?;
            black_box(prepared.standing(agent, agent, Tier::RequestApproval));
        }
        times.push(began.elapsed());
    }
    println!(
        "a catalog of 1,000 tools under 1,000 policies: {}",
        shown(middle(times))
    );
    Ok(())
}

fn big_arguments<'q>(question: &impl Fn(&'q str) -> CallQuestion<'q>) -> Result<(), Box<dyn Error>> {
    let point = DecisionPoint::load(&mix(10, true))?;
    for leaves in [1_000_usize, 100_000] {
        let text: &'static str = format!("{{\"path\":\"/srv\",\"list\":[{}0]}}", "0,".repeat(leaves)).leak();
        let asked = question(text);
        let plain = median(1, || {
            drop(black_box(point.decide_unindexed(&asked)));
            Ok(())
        })?;
        let filtered = median(3, || {
            drop(black_box(point.decide(&asked)));
            Ok(())
        })?;
        println!(
            "arguments of {leaves} leaves: all tags {}, those that are read {}",
            shown(plain),
            shown(filtered)
        );
    }
    Ok(())
}

fn tool(capability: &str) -> Result<ToolFacts, Box<dyn Error>> {
    Ok(ToolFacts::from_definition(
        capability.parse()?,
        "stdio",
        "{}",
        true,
    ))
}

/// `count` rules; without `arguments`, none of them reads any.
fn mix(count: usize, arguments: bool) -> Vec<PolicyFile> {
    let mut rules = vec![
        "allow mcp.s0.*".to_owned(),
        "allow mcp.s0.get_item".to_owned(),
        "ask mcp.s0.get_*".to_owned(),
        "ask mcp.*.get_it*".to_owned(),
        if arguments {
            "deny mcp.s0.get_item when arg.path == \"/etc\"".to_owned()
        } else {
            "deny mcp.s0.put_item".to_owned()
        },
    ];
    for n in rules.len()..count {
        rules.push(match n % 20 {
            0..10 => format!("allow mcp.s{n}.*"),
            10..15 => format!("allow mcp.s{n}.get_item"),
            15..18 => format!("ask mcp.s{n}.get_*"),
            18 => format!("deny mcp.*.delete{n}_*"),
            _ if arguments => format!("deny mcp.s{n}.get_item when arg.path == \"/etc\""),
            _ => format!("deny mcp.s{n}.put_item"),
        });
    }
    vec![PolicyFile {
        name: "mix.rules".to_owned(),
        text: rules.join("\n"),
    }]
}

/// The time of one run of `work`, of which each repetition makes `runs`.
fn median(runs: u32, mut work: impl FnMut() -> Result<(), String>) -> Result<Duration, String> {
    work()?;
    let mut times = Vec::new();
    for _ in 0..REPETITIONS {
        let began = Instant::now();
        for _ in 0..runs {
            work()?;
        }
        times.push(began.elapsed() / runs);
    }
    Ok(middle(times))
}

fn middle(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn shown(time: Duration) -> String {
    if time < Duration::from_micros(1_000) {
        format!("{:.2} µs", time.as_secs_f64() * 1e6)
    } else {
        format!("{:.1} ms", time.as_secs_f64() * 1e3)
    }
}
