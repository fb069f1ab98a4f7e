use super::*;

#[test]
fn lines_and_columns_count_characters() {
    let text = format!("a\r\nä{}b\n", "日".repeat(300));
    let source = Source::new("x", text.clone(), 0);
    assert_eq!(source.position(0), (1, 1));
    assert_eq!(source.position(3), (2, 1));
    assert_eq!(source.position(text.find('b').unwrap()), (2, 302));
    assert_eq!(source.position(text.len()), (3, 1));
    for (index, (at, _)) in text.char_indices().enumerate() {
        assert_eq!(source.byte_of(index), at);
    }
    assert_eq!(source.byte_of(9_999), text.len());
}

#[test]
fn what_is_quoted_can_do_nothing_to_a_terminal() {
    assert_eq!(quote("a\u{1b}[31m\u{202e}b"), "`a\\u{1b}[31m\\u{202e}b`");
    // Not seen at all: marks of direction, fillers, tags.
    for hidden in ['\u{61c}', '\u{ad}', '\u{3164}', '\u{200b}', '\u{e0041}'] {
        assert_eq!(
            quote(&hidden.to_string()),
            format!("`{}`", hidden.escape_default())
        );
    }
    assert_eq!(quote(&"x".repeat(200)).chars().count(), 83);
}

#[test]
fn no_finding_can_do_anything_to_a_terminal() {
    let source = Source::new("x", String::new(), 0);
    let mut sink = Sink::new(&source);
    sink.warning(Code::Syntax, Span::default(), "a\u{1b}[2Jb", "c\u{202e}d\n");
    let found = &sink.finish()[0];
    assert_eq!(
        (found.message.as_str(), found.help.as_str()),
        ("a\\u{1b}[2Jb", "c\\u{202e}d\\n")
    );
}

#[test]
fn long_names_are_cut_where_they_are_repeated() {
    let long = "ä".repeat(5_000);
    assert_eq!(short(&long).chars().count(), MAX_NAME + 1);
    assert_eq!(short("short"), "short");
    let path = short_path(&format!("{long}.end"));
    assert!(
        path.starts_with('…') && path.ends_with("ä.end") && path.len() <= 3 * MAX_NAME + 3,
        "{path}"
    );
    assert_eq!(short_path("a.b"), "a.b");
    assert_eq!(short_path(""), "");

    let source = Source::new("x", "y".to_owned(), 0);
    let mut sink = Sink::tracing(&source, true);
    let name = Spanned {
        value: long.clone(),
        span: Span::default(),
    };
    sink.enter(Some(&name));
    sink.field(&long, Span::default(), Fate::carried("a"));
    sink.error(Code::Syntax, Span::default(), "no", "yes");
    let field = sink.take_fields().remove(0).report;
    let found = sink.finish().remove(0);
    assert!(field.field.len() < 500, "{}", field.field.len());
    for server in [field.server, found.server] {
        assert!(server.is_some_and(|server| server.len() < 500));
    }
}

#[test]
fn a_flood_of_findings_is_cut_and_said_so() {
    let source = Source::new("x", "y".to_owned(), 0);
    let mut sink = Sink::new(&source);
    for _ in 0..MAX_DIAGNOSTICS + 5 {
        sink.warning(Code::UnknownField, Span { start: 0, end: 1 }, "no", "yes");
    }
    // However many warnings came before it: a document with an error must not pass for a good one.
    for _ in 0..MAX_DIAGNOSTICS + 5 {
        sink.error(Code::Syntax, Span { start: 0, end: 1 }, "no", "yes");
    }
    assert_eq!(sink.errors(), MAX_DIAGNOSTICS + 5);
    let all = sink.finish();
    for severity in [Severity::Error, Severity::Warning] {
        let of = || all.iter().filter(|found| found.severity == severity);
        assert_eq!(of().count(), MAX_DIAGNOSTICS + 1);
        let said = of().filter(|found| found.code == Code::TooManyDiagnostics);
        assert_eq!(said.count(), 1);
    }
}
