//! docs/call-errors.md says what the code says: it is written from [`CallCode`], and this test fails on drift.

use std::{collections::BTreeSet, fs, path::Path};

use portcullis_router::CallCode;

const HEAD: &str = "# Codes of calls that have no result

The `code` of a call's error, in machine-readable output, and the `outcome` of its `tool.result` event. The codes are
stable. What a tool itself calls an error is a result, with the outcome `tool-error`; one that is none is `ok`.

This page is generated from the code; `cargo test -p portcullis-router` writes nothing and fails where the two differ,
and `PORTCULLIS_BLESS=1 cargo test -p portcullis-router` writes it.

| Code | May the server have acted? | Meaning |
| --- | --- | --- |
";

fn page() -> String {
    let row = |code: &CallCode| {
        let (name, acted, meaning) = code.describe();
        format!("| `{name}` | {acted} | {meaning} |\n")
    };
    HEAD.to_owned() + &CallCode::ALL.iter().map(row).collect::<String>()
}

#[test]
fn the_page_is_the_code() {
    let names: BTreeSet<_> = CallCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(names.len(), CallCode::ALL.len(), "each code once");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/call-errors.md");
    #[expect(
        clippy::disallowed_methods,
        reason = "a page is written only where its author asks for it"
    )]
    if std::env::var_os("PORTCULLIS_BLESS").is_some() {
        fs::write(&path, page()).unwrap();
    }
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        page(),
        "run it with `PORTCULLIS_BLESS=1`"
    );
}
