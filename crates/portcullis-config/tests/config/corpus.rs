//! Every document of `test_data/`, and what comes of it, as a snapshot.

use std::path::{Path, PathBuf};

use crate::machine::{Machine, render};
use portcullis_config::{Dialect, Document, Fate, Imported, Normalized, Options, import, normalize};

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

fn options() -> Options {
    let mut options = Options {
        workspace_folder: Some("/w/app".into()),
        ..Options::default()
    };
    options
        .allowed_inherited_env_keys
        .extend(["FILES_TOKEN".to_owned(), "UNSET_BUT_ALLOWED".to_owned()]);
    options
}

/// What a document comes to, and the check that it is as good or bad as its folder says.
fn checked(folder: &str, path: &Path, good: bool) -> (Document, Normalized) {
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    let document = Document::new(name.clone(), std::fs::read(path).unwrap());
    let normalized = normalize(std::slice::from_ref(&document), &options(), &Machine::default());
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
    (document, normalized)
}

fn check(folder: &str, good: bool) {
    for path in documents(folder) {
        let (document, normalized) = checked(folder, &path, good);
        let snapshot = format!("{}_{}", folder.replace('/', "_"), document.name.replace('.', "_"));
        insta::assert_snapshot!(snapshot, render(&normalized));
    }
}

/// All documents of one dialect in one snapshot: what each comes to, and what its import prints.
fn check_dialect(folder: &str, dialect: Dialect) {
    for (kind, good) in [("good", true), ("bad", false)] {
        let folder = format!("{folder}/{kind}");
        let mut text = String::new();
        let paths = documents(&folder);
        assert!(!good || paths.len() >= 12, "{folder}: {}", paths.len());
        for path in paths {
            let (document, normalized) = checked(&folder, &path, good);
            let imported = import(&document, &options(), &Machine::default());
            assert!(
                good <= (imported.dialect == Some(dialect)),
                "{}: {:?}",
                path.display(),
                imported.dialect
            );
            // Naming the dialect changes nothing.
            let named = document.clone().in_dialect(dialect);
            assert_eq!(normalize(&[named], &options(), &Machine::default()), normalized);
            text += &format!("==== {}\n{}", document.name, render(&normalized));
            if good {
                text += &format!("---- imported\n{}{}", imported.config, report(&imported));
            }
        }
        insta::assert_snapshot!(folder.replace('/', "_"), text);
    }
}

/// What an import says besides the config that it prints.
fn report(imported: &Imported) -> String {
    let mut text = String::new();
    for field in &imported.fields {
        let server = field.server.as_deref().unwrap_or("-");
        let fate = match &field.fate {
            Fate::Carried { to } => format!("carried to {to}"),
            Fate::Converted { to, how } => format!("converted to {to}: {how}"),
            Fate::Dropped { why } => format!("dropped: {why}"),
        };
        text += &format!(
            "{}:{} {server} {}: {fate}\n",
            field.line, field.column, field.field
        );
    }
    for set in &imported.to_set {
        text += &format!(
            "set {} for {} of {}, line {}\n",
            set.variable, set.field, set.server, set.line
        );
    }
    text
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

#[test]
fn documents_of_each_other_dialect() {
    for (folder, dialect) in [
        ("vscode", Dialect::VsCode),
        ("zed", Dialect::Zed),
        ("codex", Dialect::Codex),
        ("gemini", Dialect::Gemini),
        ("opencode", Dialect::Opencode),
        ("goose", Dialect::Goose),
        ("assets", Dialect::Assets),
        ("code", Dialect::Code),
    ] {
        check_dialect(folder, dialect);
    }
}

/// Each dialect's documents hold paths of another system, a shim of it, and references to values as the dialect has
/// them.
#[test]
fn every_dialect_has_twelve_good_documents_with_paths_of_windows_and_with_references() {
    let folders = [
        "portcullis",
        "mcp_servers",
        "vscode",
        "zed",
        "codex",
        "gemini",
        "opencode",
        "goose",
        "assets",
        "code",
    ];
    assert_eq!(folders.len(), Dialect::ALL.len());
    for folder in folders {
        let texts: Vec<_> = documents(&format!("{folder}/good"))
            .iter()
            .map(|path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned())
            .collect();
        assert!(texts.len() >= 12, "{folder} has {}", texts.len());
        let any = |words: &[&str]| {
            texts
                .iter()
                .any(|text| words.iter().any(|word| text.contains(word)))
        };
        assert!(any(&["C:\\"]) && any(&[".cmd"]), "{folder}: no paths of Windows");
        let references = match folder {
            "opencode" => ["{env:", "{file:"].as_slice(),
            "gemini" | "goose" => &["$HOME", "$DOCS_TOKEN", "$GITHUB_TOKEN"],
            "vscode" => &["${input:"],
            _ => &["${"],
        };
        assert!(any(references), "{folder}: no references");
    }
}
