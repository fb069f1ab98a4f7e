//! The table of codes in docs/egress.md is written from [`RefusalCode`], and this test fails on drift.

use std::{fs, path::Path};

use portcullis_egress::RefusalCode;

const BEGIN: &str = "<!-- codes: written by `PORTCULLIS_BLESS=1 cargo test -p portcullis-egress` -->\n";
const END: &str = "<!-- end of codes -->\n";

fn table() -> String {
    let mut table = "\n| Code | Meaning |\n| --- | --- |\n".to_owned();
    for code in RefusalCode::ALL {
        let (name, meaning) = code.describe();
        table += &format!("| `{name}` | {meaning} |\n");
    }
    table + "\n"
}

#[test]
fn the_table_of_codes_is_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/egress.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    #[expect(
        clippy::disallowed_methods,
        reason = "a page is written only where its author asks for it"
    )]
    if std::env::var_os("PORTCULLIS_BLESS").is_some() {
        fs::write(&path, [before, BEGIN, &table(), END, after].concat()).unwrap();
        return;
    }
    assert_eq!(found, table(), "run it with `PORTCULLIS_BLESS=1`");
}

#[test]
fn codes_are_unique_and_in_snake_case() {
    let mut codes: Vec<_> = RefusalCode::ALL.iter().map(|code| code.as_str()).collect();
    assert!(
        codes
            .iter()
            .all(|code| code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
    );
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), RefusalCode::ALL.len());
}
