//! The law of the index: with what is settled beforehand and what is looked up, each answer is the one that plain
//! Cedar gives over all policies: the same decision, the same reasons, the same errors.
//!
//! `PORTCULLIS_LAW_CASES` sets how many pairs of policies and question are tried, `PORTCULLIS_LAW_SEED` where the
//! random numbers start; the long run is `cargo xtask law`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "the whole file is a test"
)]

use std::collections::BTreeMap;

use portcullis_policy::{CallQuestion, DecisionPoint, PolicyFile, ToolFacts, ToolHints};
use portcullis_types::{AgentId, Tier};

const DEFAULT_CASES: usize = 20_000;
const QUESTIONS_PER_SET: usize = 20;

/// SplitMix64: a run can be repeated from its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).unwrap()
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

const SERVERS: [&str; 3] = ["a", "ab", "b"];
const NAMES: [&str; 6] = ["x", "delete_x", "delete_", "get.x", "*", "dél"];
const KEYS: [&str; 4] = ["k", "l.m", "list[0]", "k#type"];
const GLOBS: [&str; 8] = ["*", "delete_*", "d*", "*x", "x", "\\\\*", "get.*", "dé*"];

fn quoted(glob: &str) -> String {
    format!("\"{}\"", glob.replace("\\\\", "\\"))
}

fn tool_name(random: &mut Random) -> String {
    let source = if random.chance(80) { "mcp" } else { "host" };
    format!("{source}.{}.{}", random.one(&SERVERS), random.one(&NAMES))
}

fn server_name(random: &mut Random) -> String {
    format!("mcp.{}", random.one(&SERVERS))
}

fn atom(random: &mut Random) -> String {
    let key = random.one(&KEYS);
    match random.below(26) {
        0 => format!("resource.name == \"{}\"", random.one(&NAMES)),
        1 => format!("resource.name like {}", quoted(random.one(&GLOBS))),
        2 => format!("resource.server like {}", quoted(random.one(&["a*", "*b", "*"]))),
        3 => format!("\"{}\" == resource.server", random.one(&SERVERS)),
        4 => format!(
            "resource.cap like {}",
            quoted(random.one(&["mcp.a*", "*x", "*.b.*"]))
        ),
        5 => format!("resource.source != \"{}\"", random.one(&["mcp", "host"])),
        6 => format!(
            "resource.{}",
            random.one(&["readOnly", "destructive", "autoApprove"])
        ),
        7 => format!(
            "context.tier == Mcp::Tier::\"{}\"",
            random.one(&Tier::ALL).as_str()
        ),
        8 => format!("resource == Mcp::Tool::\"{}\"", tool_name(random)),
        9 => format!(
            "resource in [Mcp::Server::\"{}\", Mcp::Server::\"mcp.zz\"]",
            server_name(random)
        ),
        10 => format!("[\"x\", \"{}\"].contains(resource.name)", random.one(&NAMES)),
        11..14 => format!(
            "context.args.hasTag(\"{key}\") && context.args.getTag(\"{key}\") like {}",
            quoted(random.one(&["1", "*", "a*", "string"]))
        ),
        14 => format!("context.args.hasTag(\"{key}\")"),
        15 => format!("context.argsHash like \"{}*\"", random.one(&["4", "a", "f"])),
        16 => format!(
            "context.now < datetime(\"{}\")",
            random.one(&["2026-01-01", "2027-01-01"])
        ),
        17 => format!("principal == Mcp::Agent::\"{}\"", random.one(&["default", "x"])),
        18 => format!("principal in Mcp::Profile::\"{}\"", random.one(&["default", "p"])),
        19 => "9223372036854775807 + 1 == 0".to_owned(),
        20 => "context.args == Mcp::Args::\"call\"".to_owned(),
        // Fails on whatever is no address.
        21 => format!("(context.args.hasTag(\"{key}\") && ip(context.args.getTag(\"{key}\")).isLoopback())"),
        22 => "context.args.hasTag(resource.name)".to_owned(),
        23 => format!(
            "action == Mcp::Action::\"{}\"",
            random.one(&["call", "unattended"])
        ),
        // Whatever asks, but with something of the call beside it, so that it is left to Cedar.
        24 => format!(
            "(if context.args.hasTag(\"{key}\") then context.tier else Mcp::Tier::\"plan\") == Mcp::Tier::\"{}\"",
            random.one(&Tier::ALL).as_str()
        ),
        _ => format!(
            "resource is Mcp::Tool in Mcp::Server::\"{}\"",
            server_name(random)
        ),
    }
}

fn condition(random: &mut Random, depth: usize) -> String {
    if depth == 0 || random.chance(35) {
        return atom(random);
    }
    let mut inner = || condition(random, depth - 1);
    let (a, b, c) = (inner(), inner(), inner());
    match random.below(10) {
        0..5 => format!("({a}) && ({b})"),
        5..7 => format!("({a}) || ({b})"),
        7 => format!("!({a})"),
        8 => format!("(if {a} then {b} else {c})"),
        _ => format!("(({a}) == ({b}))"),
    }
}

fn policy(random: &mut Random, id: usize) -> String {
    let effect = random.one(&["permit", "permit", "permit", "forbid"]);
    let principal = match random.below(8) {
        0 => "principal == Mcp::Agent::\"default\"",
        1 => "principal in Mcp::Profile::\"p\"",
        2 => "principal is Mcp::Agent",
        _ => "principal",
    };
    let action = match random.below(10) {
        0..3 => "action == Mcp::Action::\"call\"",
        3..5 => "action == Mcp::Action::\"unattended\"",
        5..9 => "action in [Mcp::Action::\"call\", Mcp::Action::\"unattended\"]",
        _ => "action",
    };
    let resource = match random.below(8) {
        0..3 => "resource".to_owned(),
        3 => format!("resource == Mcp::Tool::\"{}\"", tool_name(random)),
        4..6 => format!("resource in Mcp::Server::\"{}\"", server_name(random)),
        6 => "resource is Mcp::Tool".to_owned(),
        _ => format!(
            "resource is Mcp::Tool in Mcp::Server::\"{}\"",
            server_name(random)
        ),
    };
    let mut text = format!("@id(\"p{id}\") @description(\"d\") {effect} ({principal}, {action}, {resource})");
    for _ in 0..random.below(3) {
        let word = random.one(&["when", "when", "unless"]);
        text.push_str(&format!(" {word} {{ {} }}", condition(random, 2)));
    }
    text.push(';');
    text
}

/// Policies that load. What strict validation refuses, such as a policy that can never apply, is left out.
fn pool(random: &mut Random, size: usize) -> Vec<String> {
    let mut pool = Vec::new();
    let mut id = 0;
    while pool.len() < size {
        id += 1;
        let text = policy(random, id);
        if DecisionPoint::load(&[file("p.cedar", &text)]).is_ok() {
            pool.push(text);
        }
    }
    pool
}

fn file(name: &str, text: &str) -> PolicyFile {
    PolicyFile {
        name: name.to_owned(),
        text: text.to_owned(),
    }
}

fn rules(random: &mut Random) -> String {
    let mut text = String::new();
    for _ in 0..random.below(4) {
        let verb = random.one(&["allow", "allow", "ask", "always ask", "deny"]);
        let server = random.one(&["a", "ab", "b", "*", "a*"]);
        let tool = random.one(&["*", "x", "delete_*", "*x"]);
        let when = random.one(&["", "", " when arg.k == \"1\""]);
        text.push_str(&format!("{verb} mcp.{server}.{tool}{when}\n"));
    }
    text.push_str(random.one(&["", "default ask\n"]));
    text
}

fn tool(random: &mut Random) -> ToolFacts {
    let mut flag = |percent| random.chance(percent);
    let hints = ToolHints {
        read_only: flag(50),
        destructive: flag(50),
        idempotent: flag(50),
        open_world: flag(50),
    };
    let (requires_user_interaction, auto_approve, definition_changed) = (flag(10), flag(90), flag(10));
    ToolFacts {
        capability: tool_name(random).parse().unwrap(),
        transport: "stdio".to_owned(),
        hints,
        requires_user_interaction,
        auto_approve,
        definition_changed,
    }
}

fn arguments(random: &mut Random) -> &'static str {
    random.one(&[
        "{}",
        r#"{"k":1}"#,
        r#"{"k":"1"}"#,
        r#"{"k":"127.0.0.1","x":true}"#,
        r#"{"l":{"m":"a"},"list":["a"]}"#,
        r#"{"k":{"__entity":{"type":"Mcp::Tier","id":"full_access"}}}"#,
        r#"{"k":1,"k":2}"#,
        "[]",
    ])
}

fn setting(name: &str, default: u64) -> u64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "the length of the run is the runner's to say"
    )]
    let given = std::env::var(name);
    given.map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn the_index_answers_as_plain_cedar_does() {
    let cases = usize::try_from(setting("PORTCULLIS_LAW_CASES", DEFAULT_CASES as u64)).unwrap();
    let seed = setting("PORTCULLIS_LAW_SEED", 1);
    let mut random = Random(seed);
    let pool = pool(&mut random, (cases / 40).clamp(100, 20_000));
    let mut seen: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut standing_answers = 0;
    for set in 0..cases / QUESTIONS_PER_SET {
        let mut chosen: Vec<_> = (0..random.below(7))
            .map(|_| pool[random.below(pool.len())].as_str())
            .collect();
        chosen.sort_unstable();
        chosen.dedup();
        let files = [
            file("p.cedar", &chosen.join("\n")),
            file("r.rules", &rules(&mut random)),
        ];
        let point = DecisionPoint::load(&files).unwrap_or_else(|errors| panic!("{errors}\n{files:?}"));
        let tools: Vec<_> = (0..4).map(|_| tool(&mut random)).collect();
        for _ in 0..QUESTIONS_PER_SET {
            let agent: AgentId = random.one(&["default", "x"]).parse().unwrap();
            let profile: AgentId = random.one(&["default", "p"]).parse().unwrap();
            let question = CallQuestion {
                agent: &agent,
                profile: &profile,
                tier: random.one(&Tier::ALL),
                tool: &tools[random.below(tools.len())],
                arguments: arguments(&mut random),
                now_ms: random.one(&[1_785_196_800_000, 1_800_000_000_000, 0, i64::MAX]),
            };
            let expected = point.decide_unindexed(&question);
            let context = || format!("seed {seed}, set {set}: {question:?}\n{files:?}");
            assert_eq!(point.decide(&question), expected, "{}", context());
            *seen.entry(expected.code.as_str()).or_default() += 1;
            let standing = point
                .prepare(question.tool)
                .and_then(|tool| tool.standing(&agent, &profile, question.tier));
            if let Some(standing) = standing.filter(|_| !expected.code.as_str().starts_with("deny.arg")) {
                standing_answers += 1;
                if question.now_ms != i64::MAX {
                    assert_eq!(*standing, expected, "{}", context());
                }
            }
        }
    }
    // A run that never meets some answer proves nothing about it.
    for code in [
        "permitted",
        "ask.policy",
        "ask.always",
        "ask.floor",
        "ask.definition-changed",
        "deny.default",
        "deny.policy",
        "deny.evaluation-error",
        "deny.no-policies",
        "deny.invalid-request",
        "deny.arguments-invalid",
        "deny.arguments-duplicate-key",
    ] {
        assert!(seen.contains_key(code), "`{code}` never came up: {seen:?}");
    }
    assert!(
        standing_answers * 10 > cases && standing_answers * 10 < cases * 9,
        "{standing_answers}"
    );
}
