//! The decision tables in `policies/cases/`, and the two files that the README of `policies/` shows.

use std::{fs, path::Path};

use portcullis_policy::{DecisionPoint, PolicyFile, run_cases};

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
