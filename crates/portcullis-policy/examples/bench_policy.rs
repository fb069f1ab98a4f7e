//! The costs of deciding, in one run: `cargo xtask bench policy`.
//!
//! Each figure is the median of seven repetitions, in time of the processor: other work on the machine does not count,
//! and on an idle one it is the time that passes, since it is done by one thread. Loading is done by two, and is given in
//! both: it means something on an idle machine alone. The mix of policies: 50 % whole servers, 25 % single tools, 15 %
//! patterns with a server, 5 % patterns over all servers, 5 % that read arguments; five of them concern the tool.
//!
//! "Plain Cedar" is the two queries alone, `call` and `unattended`, put to the same policies: the requests and the
//! entities are built and validated before the clock starts, which favours it.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::{error::Error, hint::black_box, time::Duration};

use cedar_policy::{Authorizer, Context, Entities, PolicySet, Request, Schema};
use portcullis_policy::{CallQuestion, DecisionPoint, PolicyFile, SCHEMA, ToolFacts, compile_rules};
use portcullis_types::{AgentId, Tier};
use rustix::time::{ClockId, clock_gettime};

const REPETITIONS: usize = 7;
const ARGUMENTS: &str = r#"{"path":"/srv/a","limit":20}"#;

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
    decisions(&question(ARGUMENTS))?;
    standing(&tool, &agent, &question(ARGUMENTS))?;
    catalog(&agent)?;
    reading_time(&question(ARGUMENTS))?;
    big_arguments(&question)
}

fn decisions(small: &CallQuestion<'_>) -> Result<(), Box<dyn Error>> {
    println!(
        "| policies | load and index | of the processor | plain Cedar, two queries | three-way decision | ratio | growth |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let mut first = None;
    for policies in [10, 1_000, 10_000] {
        let files = mix(policies, true);
        let loading = loading(&files)?;
        let plain = Plain::new(&files)?;
        let queries = median(if policies > 1_000 { 5 } else { 50 }, || {
            plain.put();
            Ok(())
        })?;
        let point = DecisionPoint::load(&files)?;
        let decision = median(2_000, || {
            drop(black_box(point.decide(small)));
            Ok(())
        })?;
        let base = *first.get_or_insert(decision);
        println!(
            "| {policies} | {} | {} | {} | {} | {:.1} × | {:.2} × |",
            shown(loading.passed),
            shown(loading.spent),
            shown(queries),
            shown(decision),
            queries.as_secs_f64() / decision.as_secs_f64(),
            decision.as_secs_f64() / base.as_secs_f64(),
        );
    }
    println!();
    let files = [PolicyFile {
        name: "mix.cedar".to_owned(),
        text: cedar_text(&mix(10_000, true))?,
    }];
    let loading = loading(&files)?;
    let [file] = &files;
    let parsing = median(1, || {
        file.text
            .parse::<PolicySet>()
            .map(drop)
            .map_err(|errors| errors.to_string())
    })?;
    println!(
        "the 10,000 policies from Cedar's text: {}, {} of the processor; Cedar's parser alone takes {}",
        shown(loading.passed),
        shown(loading.spent),
        shown(parsing),
    );
    Ok(())
}

fn cedar_text(files: &[PolicyFile]) -> Result<String, Box<dyn Error>> {
    let texts: Result<Vec<_>, _> = files.iter().map(compile_rules).collect();
    Ok(texts?.concat())
}

/// The two queries, ready to be put to Cedar as it is.
struct Plain {
    policies: PolicySet,
    entities: Entities,
    requests: [Request; 2],
}

impl Plain {
    fn new(files: &[PolicyFile]) -> Result<Self, Box<dyn Error>> {
        let mut text = [
            include_str!("../../../policies/floor.cedar"),
            include_str!("../../../policies/tiers.cedar"),
        ]
        .concat();
        text.push_str(&cedar_text(files)?);
        let (schema, _) = Schema::from_cedarschema_str(SCHEMA)?;
        let entities = serde_json::json!([
            {"uid": {"type": "Mcp::Profile", "id": "default"}, "attrs": {}, "parents": []},
            {"uid": {"type": "Mcp::Agent", "id": "default"}, "attrs": {}, "parents": [{"type": "Mcp::Profile", "id": "default"}]},
            {"uid": {"type": "Mcp::Server", "id": "mcp.s0"}, "attrs": {"source": "mcp", "name": "s0", "transport": "stdio"}, "parents": []},
            {"uid": {"type": "Mcp::Tool", "id": "mcp.s0.get_item"}, "parents": [{"type": "Mcp::Server", "id": "mcp.s0"}], "attrs": {
                "cap": "mcp.s0.get_item", "source": "mcp", "server": "s0", "name": "get_item", "readOnly": false,
                "destructive": true, "idempotent": false, "openWorld": true, "requiresUserInteraction": false,
                "autoApprove": true, "definitionChanged": false}},
            {"uid": {"type": "Mcp::Args", "id": "call"}, "attrs": {}, "parents": [], "tags": {
                "#type": "object", "path": "/srv/a", "path#type": "string", "limit": "20", "limit#type": "number"}},
        ]);
        let request = |action: &str| -> Result<Request, Box<dyn Error>> {
            let action = format!("Mcp::Action::\"{action}\"").parse()?;
            let context = Context::from_json_value(
                serde_json::json!({
                    "tier": {"type": "Mcp::Tier", "id": "request_approval"},
                    "args": {"type": "Mcp::Args", "id": "call"},
                    "argsHash": "0", "now": "2026-07-28T00:00:00Z",
                }),
                Some((&schema, &action)),
            )?;
            let (principal, resource) = (
                "Mcp::Agent::\"default\"".parse()?,
                "Mcp::Tool::\"mcp.s0.get_item\"".parse()?,
            );
            Ok(Request::new(principal, action, resource, context, Some(&schema))?)
        };
        Ok(Self {
            policies: text.parse()?,
            entities: Entities::from_json_value(entities, Some(&schema))?,
            requests: [request("call")?, request("unattended")?],
        })
    }

    fn put(&self) {
        for request in &self.requests {
            drop(black_box(Authorizer::new().is_authorized(
                request,
                &self.policies,
                &self.entities,
            )));
        }
    }
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
        let began = spent();
        for tool in &tools {
            let prepared = point.prepare(tool).ok_or("there are no policies")?;
            black_box(prepared.standing(agent, agent, Tier::RequestApproval));
        }
        times.push(spent() - began);
    }
    println!(
        "a catalog of 1,000 tools under 1,000 policies: {}",
        shown(middle(times))
    );
    Ok(())
}

/// Where a policy reads the time or the hash, the requests are of this very call.
fn reading_time(small: &CallQuestion<'_>) -> Result<(), Box<dyn Error>> {
    let mut files = mix(10, true);
    files.push(PolicyFile {
        name: "time.cedar".to_owned(),
        text: "@id(\"t\") @description(\"Not at night.\") forbid (principal, action == Mcp::Action::\"call\", resource in Mcp::Server::\"mcp.s0\") when { context.now.toTime() < duration(\"-1h\") && context.argsHash == \"\" };"
            .to_owned(),
    });
    let point = DecisionPoint::load(&files)?;
    let decided = median(2_000, || {
        drop(black_box(point.decide(small)));
        Ok(())
    })?;
    println!("a decision that reads time and hash: {}", shown(decided));
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

/// Rules that compile to `count` policies; without `arguments`, none of them reads any.
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
    // An `ask` compiles to two.
    let mut policies = rules.len() + 2;
    for n in rules.len().. {
        let (rule, size) = match n % 20 {
            0..10 => (format!("allow mcp.s{n}.*"), 1),
            10..15 => (format!("allow mcp.s{n}.get_item"), 1),
            15..18 if policies + 2 <= count => (format!("ask mcp.s{n}.get_*"), 2),
            18 => (format!("deny mcp.*.delete{n}_*"), 1),
            19 if arguments => (format!("deny mcp.s{n}.get_item when arg.path == \"/etc\""), 1),
            _ => (format!("deny mcp.s{n}.put_item"), 1),
        };
        if policies + size > count {
            break;
        }
        policies += size;
        rules.push(rule);
    }
    vec![PolicyFile {
        name: "mix.rules".to_owned(),
        text: rules.join("\n"),
    }]
}

/// The time that the processor has spent on this program.
fn spent() -> Duration {
    now(ClockId::ProcessCPUTime)
}

fn now(clock: ClockId) -> Duration {
    clock_gettime(clock).try_into().unwrap_or_default()
}

/// The time of the processor that one run of `work` takes, of which each repetition makes `runs`.
fn median(runs: u32, mut work: impl FnMut() -> Result<(), String>) -> Result<Duration, String> {
    work()?;
    let mut times = Vec::new();
    for _ in 0..REPETITIONS {
        let began = spent();
        for _ in 0..runs {
            work()?;
        }
        times.push((spent() - began) / runs);
    }
    Ok(middle(times))
}

/// What loading takes; what was loaded is dropped once the clocks have been read.
struct Loading {
    /// By the clock on the wall.
    passed: Duration,
    /// By the processor.
    spent: Duration,
}

fn loading(files: &[PolicyFile]) -> Result<Loading, String> {
    let (mut passed, mut processor) = (Vec::new(), Vec::new());
    for _ in 0..=REPETITIONS {
        let (began, spent_before) = (now(ClockId::Monotonic), spent());
        let point = DecisionPoint::load(files).map_err(|errors| errors.to_string())?;
        passed.push(now(ClockId::Monotonic) - began);
        processor.push(spent() - spent_before);
        drop(point);
    }
    Ok(Loading {
        passed: middle(passed),
        spent: middle(processor),
    })
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
