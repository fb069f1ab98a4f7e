//! The page for reviewers shows a workflow and an entry of CODEOWNERS: both are held to what they promise.

use std::{fs, path::Path, process::Command};

use super::{good, policy};
use crate::PORTCULLIS;

/// The fenced block of `language` in docs/policies.md.
fn block(language: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/policies.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

/// The commands of the workflow that are the program's, in their order.
fn commands() -> Vec<String> {
    let workflow = block("yaml-workflow");
    let steps = workflow
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- run: "));
    steps
        .filter(|step| step.starts_with("portcullis "))
        .map(str::to_owned)
        .collect()
}

/// Runs a step as the workflow does, by a shell in the checkout; true where it passes.
fn passes(step: &str, checkout: &Path) -> bool {
    let script = step.replacen("portcullis ", "\"$PORTCULLIS\" ", 1);
    let status = Command::new("sh")
        .args(["-eu", "-c", &script])
        .current_dir(checkout)
        .env_clear()
        .env("PORTCULLIS", PORTCULLIS)
        .env("HOME", checkout)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status();
    status.unwrap().success()
}

/// A change to the folder, and which steps of the workflow stop it.
#[track_caller]
fn check(change: &str, make: impl FnOnce(&Path), failing: &[&str]) {
    let folder = good();
    policy(&folder, &["seal", "policies"]).exits(0);
    make(&folder.path("policies"));
    let stopped: Vec<_> = commands()
        .into_iter()
        .filter(|step| !passes(step, folder.root()))
        .map(|step| step.split(' ').nth(2).unwrap().to_owned())
        .collect();
    assert_eq!(stopped, failing, "{change}");
}

#[test]
fn the_workflow_stops_what_it_promises_to_stop() {
    let edit = |file: &'static str, from: &'static str, to: &'static str| {
        move |policies: &Path| {
            let path = policies.join(file);
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains(from), "{file}");
            fs::write(path, text.replace(from, to)).unwrap();
        }
    };
    assert_eq!(commands().len(), 3, "formatting, compiled text, the check");
    check("nothing", |_| {}, &[]);
    check(
        "untidy",
        edit("team.rules", "default ask", "default   ask"),
        &["fmt", "check"],
    );
    check(
        "a rule, but not what it compiles to",
        edit("team.rules", "delete_", "remove_"),
        &["rules", "check"],
    );
    check(
        "what a rule compiles to, but not the rule",
        edit("compiled/team.rules.cedar", "delete_", "remove_"),
        &["rules", "check"],
    );
    check(
        "a looser case",
        edit("cases/team.yaml", "expect: allow", "expect: ask"),
        &["check"],
    );
    check(
        "no seal",
        |policies| fs::remove_file(policies.join("policies.seal")).unwrap(),
        &["check"],
    );
    check(
        "no rules",
        edit("team.rules", "default ask", "dfault ask"),
        &["fmt", "rules", "check"],
    );
}

/// The workflow runs for each change of what CODEOWNERS gives to the reviewers, and for its own.
#[test]
fn the_reviewers_own_all_that_the_workflow_checks() {
    let owners = block("codeowners");
    let owned: Vec<_> = owners
        .lines()
        .filter(|line| !line.trim_start().starts_with('#') && !line.trim().is_empty())
        .map(|line| {
            let (path, owner) = line.split_once(' ').unwrap();
            assert!(owner.trim().starts_with('@'), "{line}");
            path
        })
        .collect();
    assert_eq!(
        owned,
        [
            "/policies/",
            "/.github/workflows/policies.yml",
            "/.github/CODEOWNERS",
            // What the workflow builds the checker from.
            "/vendor/portcullis/"
        ]
    );
    let workflow = block("yaml-workflow");
    for path in [
        "policies/**",
        "vendor/portcullis/**",
        ".github/workflows/policies.yml",
    ] {
        assert!(workflow.contains(&format!("\"{path}\"")), "{path}");
    }
    assert!(
        workflow.contains("permissions:\n  contents: read\n"),
        "{workflow}"
    );
}
