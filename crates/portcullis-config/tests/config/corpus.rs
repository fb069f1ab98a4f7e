//! Every document of `test_data/`, and what comes of it, as a snapshot.

use std::path::{Path, PathBuf};

use crate::machine::{Machine, render};
use portcullis_config::{Document, Options, normalize};

fn documents(folder: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("test_data")
        .join(folder);
    let mut paths: Vec<_> = std::fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths
}

fn check(folder: &str, good: bool) {
    let mut options = Options::default();
    options
        .allowed_inherited_env_keys
        .extend(["FILES_TOKEN".to_owned(), "UNSET_BUT_ALLOWED".to_owned()]);
    for path in documents(folder) {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let document = Document::new(name.clone(), std::fs::read(&path).unwrap());
        let normalized = normalize(std::slice::from_ref(&document), &options, &Machine::default());
        assert_eq!(
            normalized.has_errors(),
            !good,
            "{folder}/{name}: {:#?}",
            normalized.diagnostics
        );
        let printed = format!(
            "{:?} {}",
            normalized,
            serde_json::to_string(&normalized.diagnostics).unwrap()
        );
        assert!(
            !printed.contains("canary"),
            "{folder}/{name} shows a secret: {printed}"
        );
        for diagnostic in &normalized.diagnostics {
            let end = diagnostic.span.offset_bytes + diagnostic.span.length_bytes;
            assert!(end <= document.bytes.len(), "{diagnostic}");
        }
        let snapshot = format!("{}_{}", folder.replace('/', "_"), name.replace('.', "_"));
        insta::assert_snapshot!(snapshot, render(&normalized));
    }
}

#[test]
fn good_documents_of_the_own_format() {
    check("portcullis/good", true);
}

#[test]
fn bad_documents_of_the_own_format() {
    check("portcullis/bad", false);
}

#[test]
fn good_documents_of_desktop_clients() {
    check("mcp_servers/good", true);
}

#[test]
fn bad_documents_of_desktop_clients() {
    check("mcp_servers/bad", false);
}
