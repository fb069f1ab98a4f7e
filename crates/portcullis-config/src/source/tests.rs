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
