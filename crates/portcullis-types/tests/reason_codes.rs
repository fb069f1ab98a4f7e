//! docs/reason-codes.md says what the code says: it is written from [`ReasonCode`], and this test fails on drift.

use std::{fs, path::Path};

use portcullis_types::ReasonCode;

const HEAD: &str = "# Reason codes

Why an answer came out as it did: the `code` of a decision, in events, errors and `portcullis policy explain`. The
codes are stable. This page is generated from the code; `cargo test -p portcullis-types` writes nothing and fails
where the two differ, and `PORTCULLIS_BLESS=1 cargo test -p portcullis-types` writes it.

| Code | Answer | Meaning |
| --- | --- | --- |
";

fn page() -> String {
    let row = |code: ReasonCode| {
        let (name, meaning) = code.describe();
        let answer = match name.split_once('.') {
            Some((answer, _)) => answer,
            None => "allow",
        };
        format!("| `{name}` | {answer} | {meaning} |\n")
    };
    HEAD.to_owned() + &ReasonCode::ALL.map(row).concat()
}

#[test]
fn the_page_is_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reason-codes.md");
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
