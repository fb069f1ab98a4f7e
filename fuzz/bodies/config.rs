//! What must hold of the normaliser on any bytes.

use std::collections::HashSet;

use portcullis_config::{Diagnostic, Document, NoEnvironment, Options, Profile, normalize};

/// Checks all laws on `data`, the content of a document.
pub(crate) fn check(data: &[u8]) {
    for name in ["a.json", "a.yaml", "a"] {
        for profile in [Profile::Desktop, Profile::Strict] {
            check_document(&Document::new(name, data), profile);
        }
    }
}

fn check_document(document: &Document, profile: Profile) {
    let options = Options {
        profile,
        ..Options::default()
    };
    let normalized = normalize(std::slice::from_ref(document), &options, &NoEnvironment);
    let again = normalize(std::slice::from_ref(document), &options, &NoEnvironment);
    assert_eq!(normalized, again, "one document, two answers");

    let ids: HashSet<_> = normalized.specs.iter().map(|spec| &spec.id).collect();
    assert_eq!(ids.len(), normalized.specs.len(), "one id twice");
    if normalized.specs.is_empty() && normalized.diagnostics.is_empty() {
        // Only an empty list of servers is nothing to talk about.
        let named = document.bytes.windows(6).any(|window| window == b"ervers");
        assert!(named, "no server, and not a word about it");
    }
    for diagnostic in &normalized.diagnostics {
        check_diagnostic(diagnostic, document);
    }
}

fn check_diagnostic(diagnostic: &Diagnostic, document: &Document) {
    assert_eq!(diagnostic.file, document.name);
    assert!(!diagnostic.message.is_empty(), "{diagnostic:?}");
    assert!(
        !diagnostic.message.chars().any(char::is_control),
        "a control character: {diagnostic:?}"
    );
    assert!(
        !diagnostic.help.chars().any(char::is_control),
        "a control character: {diagnostic:?}"
    );
    let end = diagnostic
        .span
        .offset_bytes
        .checked_add(diagnostic.span.length_bytes);
    assert!(
        end.is_some_and(|end| end <= document.bytes.len()),
        "points outside the document: {diagnostic:?}"
    );
    let lines = document.bytes.iter().filter(|byte| **byte == b'\n').count() + 1;
    assert!(
        (1..=lines).contains(&diagnostic.line) && diagnostic.column >= 1,
        "points outside: {diagnostic:?}"
    );
}
