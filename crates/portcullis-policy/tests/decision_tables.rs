//! The decision tables in `policies/cases/`, and the two files that the README of `policies/` shows.

use std::{fs, path::Path};

use portcullis_policy::{
    DecisionPoint, PolicyFile, compile_rules, compiled_text, format_policies, lint, run_cases,
};

fn policies() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../policies"))
}

#[test]
fn every_table_comes_out_as_it_says() {
    let mut tables = Vec::new();
    for entry in fs::read_dir(policies().join("cases")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(name.ends_with(".yaml"), "{name}");
        tables.push(PolicyFile {
            name,
            text: fs::read_to_string(path).unwrap(),
        });
    }
    assert!(tables.len() >= 6, "the tables were found");
    let report = run_cases(&tables, &[]);
    assert!(report.passed(), "{report}");
}

/// The fenced blocks of `language` in the README.
fn blocks(readme: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let blocks = readme.split(&fence).skip(1);
    blocks
        .filter_map(|rest| rest.split_once("```"))
        .map(|(block, _)| block.to_owned())
        .collect()
}

#[test]
fn the_readme_shows_what_loads_and_what_it_decides() {
    let readme = fs::read_to_string(policies().join("README.md")).unwrap();
    let [rules, cedar, table] =
        ["rules", "cedar", "yaml"].map(|language| blocks(&readme, language).remove(0));
    let files = [
        PolicyFile {
            name: "team.rules".to_owned(),
            text: rules,
        },
        PolicyFile {
            name: "files.cedar".to_owned(),
            text: cedar,
        },
    ];
    let report = run_cases(
        &[PolicyFile {
            name: "team.yaml".to_owned(),
            text: table,
        }],
        &files,
    );
    assert!(report.passed(), "{report}");
    assert!(DecisionPoint::load(&files).unwrap().policies().len() > 7);
}

fn file(name: &str, text: &str) -> PolicyFile {
    PolicyFile {
        name: name.to_owned(),
        text: text.to_owned(),
    }
}

#[test]
fn the_page_for_reviewers_shows_what_happens() {
    let page = fs::read_to_string(policies().join("../docs/policies.md")).unwrap();
    let [rules, compiled, cedar, table] =
        ["rules", "compiled", "cedar", "yaml"].map(|language| blocks(&page, language).remove(0));
    let files = [file("team.rules", &rules), file("deploy.cedar", &cedar)];
    let report = run_cases(&[file("team.yaml", &table)], &files);
    assert!(report.passed(), "{report}");
    let findings = lint(&files, None).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
    assert_eq!(format_policies(&files[1]).unwrap(), cedar);
    assert_eq!(
        compile_rules(&file("one.rules", "deny mcp.*.delete_*")).unwrap(),
        compiled
    );
    let by_day = "tools: [{tool: mcp.ci.deploy}]\ncases:\n  - {tool: mcp.ci.deploy, nowMs: 1785236400000, expect: ask}\n  - {tool: mcp.ci.deploy, nowMs: 1785196800000, expect: deny}\n";
    let report = run_cases(&[file("day.yaml", by_day)], &files[1..]);
    assert!(report.passed(), "{report}");
}

/// What the presets' rules mean is committed beside them.
#[test]
fn presets_are_formatted_and_their_compiled_text_is_committed() {
    let read = |path: &str| fs::read_to_string(policies().join(path)).unwrap();
    for name in ["deny-by-default.rules", "ask-by-default.rules"] {
        let rules = file(name, &read(&format!("presets/{name}")));
        assert_eq!(format_policies(&rules).unwrap(), rules.text, "{name}");
        let committed = read(&format!("presets/compiled/{name}.cedar"));
        assert_eq!(
            compiled_text(&rules).unwrap(),
            committed,
            "`portcullis policy rules policies/presets`"
        );
    }
    let read_only = file("read-only.cedar", &read("presets/read-only.cedar"));
    assert_eq!(format_policies(&read_only).unwrap(), read_only.text);
}
