//! What must hold of the normaliser on any bytes.

use std::{collections::HashSet, path::Path};

use portcullis_config::{
    Diagnostic, Document, Environment, Excerpts, Options, Profile, ServerSpec, Severity, Sources,
    TransportSpec, import, normalize,
};

/// Checks all laws on `data`, the content of a document of that name.
pub(crate) fn check_named(name: &str, data: &[u8]) {
    let document = Document::new(name, data);
    for profile in [Profile::Desktop, Profile::Strict] {
        check_document(&document, profile);
    }
    check_import(&document);
}

/// Every absolute path is a program, and a few variables are set: servers get as far as they can.
struct Generous;

impl Sources for Generous {
    fn variable(&self, name: &str) -> Option<String> {
        match name {
            "PATH" => Some("/bin".to_owned()),
            "HOME" => Some("/home/me".to_owned()),
            "X" => Some("x".to_owned()),
            _ => None,
        }
    }

    fn file(&self, path: &str) -> Option<String> {
        (path == "/f").then(|| "A=1\n".to_owned())
    }
}

impl Environment for Generous {
    fn is_executable(&self, _path: &Path) -> bool {
        true
    }
}

fn check_document(document: &Document, profile: Profile) {
    let options = Options {
        profile,
        trace: true,
        ..Options::default()
    };
    let normalized = normalize(std::slice::from_ref(document), &options, &Generous);
    let again = normalize(std::slice::from_ref(document), &options, &Generous);
    assert_eq!(normalized, again, "one document, two answers");

    let ids: HashSet<_> = normalized.specs.iter().map(|spec| &spec.id).collect();
    assert_eq!(ids.len(), normalized.specs.len(), "one id twice");
    normalized.specs.iter().for_each(check_spec);
    if normalized.specs.is_empty() && normalized.diagnostics.is_empty() {
        // Only an empty list of servers is nothing to talk about; an escape may hide its name.
        let text = &document.bytes;
        let named = [&b"ervers"[..], b"xtension", b"\\"]
            .iter()
            .any(|word| text.windows(word.len()).any(|window| window == *word));
        assert!(named, "no server, and not a word about it");
    }
    let excerpts = Excerpts::new(document, &options);
    for diagnostic in &normalized.diagnostics {
        check_diagnostic(diagnostic, document);
        let shown = excerpts.render(diagnostic, false);
        let bad = |c: char| c.is_control() && c != '\n';
        assert!(!shown.contains(bad), "a control character: {shown:?}");
    }
}

/// What the profile promises of each server that comes out.
fn check_spec(spec: &ServerSpec) {
    assert!(
        spec.timeouts.call <= spec.timeouts.call_max && !spec.timeouts.connect.is_zero(),
        "{spec:?}"
    );
    let strict = spec.profile == Profile::Strict;
    if strict {
        assert_eq!(spec.id.as_str(), spec.display_name, "{spec:?}");
        for timeout in [spec.timeouts.connect, spec.timeouts.list, spec.timeouts.call] {
            assert!((1_000..=300_000).contains(&timeout.as_millis()), "{spec:?}");
        }
    }
    match &spec.transport {
        TransportSpec::Stdio(stdio) => {
            assert!(!spec.enabled || stdio.program.is_absolute(), "{spec:?}");
            assert!(
                !strict || stdio.inherit_env.is_empty(),
                "nothing was allowed: {spec:?}"
            );
            let secret = stdio
                .env
                .keys()
                .find(|name| name.split('_').any(|word| word.eq_ignore_ascii_case("token")));
            assert!(!strict || secret.is_none(), "{spec:?}");
        }
        TransportSpec::Http(http) => {
            assert!(
                matches!(http.url.scheme(), "http" | "https") && http.url.host().is_some(),
                "{spec:?}"
            );
            assert!(
                http.url.username().is_empty() && http.url.password().is_none(),
                "{spec:?}"
            );
            assert!(!http.egress.is_empty(), "{spec:?}");
        }
    }
}

/// What is printed means the same, and printing it again changes nothing.
fn check_import(document: &Document) {
    let options = Options::default();
    let imported = import(document, &options, &Generous);
    if imported.dialect.is_none() {
        assert!(imported.config.is_empty(), "of no dialect, and printed");
        return;
    }
    let printed = Document::new("b.yaml", imported.config.as_str());
    let before = normalize(std::slice::from_ref(document), &options, &Generous);
    let after = normalize(std::slice::from_ref(&printed), &options, &Generous);
    if imported.to_set.is_empty() {
        let prints = |specs: &[ServerSpec]| specs.iter().map(ServerSpec::fingerprint).collect::<Vec<_>>();
        assert_eq!(prints(&after.specs), prints(&before.specs), "{}", imported.config);
    }
    let again = import(&printed, &options, &Generous);
    let body = |config: &str| config.split_once('\n').map(|(_, body)| body.to_owned());
    assert_eq!(body(&again.config), body(&imported.config), "printed twice");
    let unread = again.diagnostics.iter().find(|found| {
        found.severity == Severity::Error && matches!(found.code.as_str(), "syntax" | "wrong-type")
    });
    assert_eq!(unread, None, "{}", imported.config);
}

fn check_diagnostic(diagnostic: &Diagnostic, document: &Document) {
    assert_eq!(diagnostic.file, document.name);
    assert!(
        !diagnostic.message.is_empty() && !diagnostic.help.is_empty(),
        "{diagnostic:?}"
    );
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
