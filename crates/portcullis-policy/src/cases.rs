//! Decision tables: what is expected of policies, as a file that reviewers read and CI runs.

mod coverage;
mod depth;
mod expected;
mod fields;
mod suite;

pub use coverage::Coverage;

use std::{collections::BTreeSet, fmt};

use portcullis_types::PolicyRef;

use crate::PolicyFile;
use suite::{Row, Suite};

/// What came of a run of decision tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CaseReport {
    /// How many decisions were compared. A row over several tiers counts once for each.
    pub decisions: usize,
    /// What did not come out as expected, and what could not be read, in order of file and line.
    pub failures: Vec<CaseFailure>,
    /// The policies that decided in some case; see [`Coverage`].
    pub decided: BTreeSet<PolicyRef>,
}

impl CaseReport {
    /// Whether all was as expected and something was compared at all.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.failures.is_empty() && self.decisions > 0
    }
}

impl fmt::Display for CaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in &self.failures {
            writeln!(f, "{failure}")?;
        }
        write!(
            f,
            "{} decisions compared, {} failures",
            self.decisions,
            self.failures.len()
        )
    }
}

/// One expectation that was not met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseFailure {
    /// The file of cases, or the file of policies that could not be loaded.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// What was expected, and what came.
    pub message: String,
}

impl fmt::Display for CaseFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

/// Runs decision tables, each a YAML text of a catalog of tools and rows of expected decisions.
///
/// A table names its policies itself (`preset: …`, or `policies:` with texts by file name) or is about `policies`.
///
/// ```
/// use portcullis_policy::{PolicyFile, run_cases};
///
/// let table = "
/// preset: ask-by-default
/// tools:
///   - tool: mcp.files.read
/// cases:
///   - {tool: mcp.files.read, expect: ask, code: ask.policy}
///   - {tool: mcp.files.read, tier: full_access, expect: deny}
/// ";
/// let report = run_cases(&[PolicyFile { name: "files.yaml".into(), text: table.into() }], &[]);
/// assert_eq!(report.decisions, 2);
/// assert!(report.to_string().starts_with("files.yaml:7: expected deny"), "{report}");
/// ```
#[must_use]
pub fn run_cases(tables: &[PolicyFile], policies: &[PolicyFile]) -> CaseReport {
    let mut report = CaseReport::default();
    for table in tables {
        match Suite::read(table, policies) {
            Ok(suite) => suite
                .rows
                .iter()
                .for_each(|row| run_row(&suite, row, &mut report)),
            Err(failures) => report.failures.extend(failures),
        }
    }
    report
}

fn run_row(suite: &Suite, row: &Row, report: &mut CaseReport) {
    for tier in &row.tiers {
        report.decisions += 1;
        let decision = row.decide(&suite.policies, *tier);
        report.decided.extend(decision.policies.iter().cloned());
        for wrong in row.expected.differences(&decision) {
            let message = format!("{wrong} ({}, tier `{tier}`; {decision})", row.subject);
            report.failures.push(CaseFailure {
                file: suite.name.clone(),
                line: row.line,
                message,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> String {
        run_cases(
            &[PolicyFile {
                name: "t.yaml".to_owned(),
                text: text.to_owned(),
            }],
            &[],
        )
        .to_string()
    }

    fn check(text: &str, told: &str) {
        let report = run(text);
        assert!(report.contains(told), "{text}\n=> {report}");
    }

    const HEAD: &str = "preset: ask-by-default\ntools:\n  - tool: mcp.a.b\ncases:\n";

    #[test]
    fn what_is_met_passes_and_what_is_not_is_told_with_the_line() {
        let row = |row: &str| format!("{HEAD}  - {{tool: mcp.a.b, {row}}}\n");
        check(
            &row("expect: ask, code: ask.policy, approver: person_or_hook"),
            "1 decisions compared, 0 failures",
        );
        check(
            &row("tier: every, expect: ask"),
            "t.yaml:5: expected ask, but it is allow (`mcp.a.b`, tier `full_access`;",
        );
        check(
            &row("tier: every, expect: ask"),
            "4 decisions compared, 1 failures",
        );
        check(
            &row("tier: [plan, full_access], expect: ask"),
            "2 decisions compared, 1 failures",
        );
        check(
            &row("expect: ask, code: ask.always"),
            "t.yaml:5: expected the code `ask.always`, but it is `ask.policy`",
        );
        check(
            &row("expect: ask, approver: person_only"),
            "expected the approver `person_only`, but it is `person_or_hook`",
        );
        check(
            &row("expect: ask, policies: [x]"),
            "expected the policies `x`, but they are `built-in/presets/ask-by-default.rules#L2`",
        );
        check(&row("expect: deny, arguments: '{'"), "0 failures");
        check(
            &format!("{HEAD}  - {{elicit: mcp.a, expect: deny}}\n"),
            "expected deny, but it is allow (elicitation by `mcp.a`",
        );
        check(
            &format!("{HEAD}  - {{readResource: mcp.a, uri: \"file:///x\", expect: allow}}\n"),
            "expected allow, but it is deny (a resource of `mcp.a`",
        );
        check(
            &format!("{HEAD}  - {{getPrompt: mcp.a, name: hello, expect: allow}}\n"),
            "expected allow, but it is deny (a prompt of `mcp.a`",
        );
        check(&row("expect: ask, uri: x"), "t.yaml:5: unknown key `uri`");
    }

    #[test]
    fn a_mark_of_an_end_is_no_second_table() {
        let table = format!("{HEAD}  - {{tool: mcp.a.b, expect: ask}}\n");
        for marked in [
            format!("{table}---\n"),
            format!("{table}...\n---\n# end\n"),
            format!("---\n{table}---"),
        ] {
            check(&marked, "1 decisions compared, 0 failures");
        }
    }

    #[test]
    fn a_table_that_cannot_be_read_fails() {
        for nothing in ["", "---\n", "---\n---\n# nothing\n"] {
            check(nothing, "t.yaml:1: the table is empty");
        }
        check("a: 1\na: 2", "t.yaml:2: duplicated key");
        check(
            &format!("{HEAD}  - {{tool: mcp.a.b, expect: ask}}\n---\ncases: nonsense\n"),
            "t.yaml:7: a second table begins here: write it into a file of its own",
        );
        check(
            &format!("preset: ask-by-default\ncases:\n{}", "- ".repeat(100_000)),
            "t.yaml:3: lists and objects stand more than 64 deep in each other",
        );
        check("preset: ask\ncases: []", "t.yaml:1: there is no preset `ask`");
        check(
            "cases: []",
            "t.yaml:1: no policies: name a `preset` or write `policies`",
        );
        check(
            "preset: ask-by-default\npolicies: {}\ncases: []",
            "t.yaml:2: `policies` cannot stand beside `preset`",
        );
        check(
            "preset: ask-by-default\ncases: []",
            "t.yaml:2: there are no cases",
        );
        check(
            "preset: ask-by-default\nkases: []\ncases: []",
            "t.yaml:2: unknown key `kases`",
        );
        check(
            "policies:\n  x.rules: |\n    allowed mcp.*\ncases: []",
            "t.yaml/x.rules:1: `allowed mcp.*` is not a rule",
        );
        let row = |row: &str| format!("{HEAD}  - {{{row}}}\n");
        check(
            &row("expect: ask"),
            "t.yaml:5: a case needs `tool`, `elicit`, `readResource` or `getPrompt`",
        );
        check(
            &row("tool: mcp.a.c, expect: ask"),
            "t.yaml:5: `mcp.a.c` is not among the `tools`",
        );
        check(&row("tool: mcp.a.b"), "t.yaml:5: `expect` is missing");
        check(
            &row("tool: mcp.a.b, expect: yes"),
            "t.yaml:5: `yes` is not an answer: use `allow`, `ask` or `deny`",
        );
        check(
            &row("tool: mcp.a.b, expect: ask, code: nope"),
            "t.yaml:5: `nope` is not a reason code",
        );
        check(
            &row("tool: mcp.a.b, expect: ask, tier: some"),
            "t.yaml:5: `some` is not a tier",
        );
        check(
            &row("tool: mcp.a.b, expect: ask, tier: []"),
            "t.yaml:5: `tier` names no tier, so nothing would be compared",
        );
        check(
            &row("tool: mcp.a.b, expect: ask, arguments: {a: 1}"),
            "t.yaml:5: `arguments` must be text",
        );
        check(
            "preset: ask-by-default\ntools: [{tool: mcp.a.b, readOnly: perhaps}]\ncases: [1]",
            "t.yaml:2: `readOnly` must be true or false",
        );
        check(
            "preset: ask-by-default\ntools: [{tool: mcp.a.b, requireUserInteraction: true}]\ncases: [1]",
            "t.yaml:2: unknown key `requireUserInteraction`",
        );
        check(
            "preset: ask-by-default\ntools: [{tool: mcp.a.b}, {tool: mcp.a.b}]\ncases: [1]",
            "t.yaml:2: `mcp.a.b` stands twice among the `tools`",
        );
        check(
            "preset: ask-by-default\ncases: [1]",
            "t.yaml:2: a mapping is expected",
        );
    }

    #[test]
    fn a_table_without_policies_is_about_those_given() {
        let table = PolicyFile {
            name: "t.yaml".to_owned(),
            text: "tools: [{tool: mcp.a.b}]\ncases: [{tool: mcp.a.b, expect: allow}]".to_owned(),
        };
        let policies = PolicyFile {
            name: "p.rules".to_owned(),
            text: "allow mcp.a.*".to_owned(),
        };
        let report = run_cases(&[table], &[policies]);
        assert!(report.passed(), "{report}");
        assert!(!run_cases(&[], &[]).passed(), "nothing compared is not passed");
    }
}
