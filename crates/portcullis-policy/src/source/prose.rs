//! What of a text only people read: comments and descriptions.

use std::borrow::Cow;

use crate::{PolicyFile, rules};

/// A blank that can be taken for a space. In prose it does no harm: people type it without knowing, and some languages
/// need it.
pub(super) fn is_blank(character: char) -> bool {
    let ends_a_line = matches!(character, '\u{2028}' | '\u{2029}');
    character.is_whitespace() && !character.is_ascii() && !character.is_control() && !ends_a_line
}

/// The text of a file, with spaces for such blanks in its comments and descriptions. Lines stay lines.
pub(super) fn with_spaces_in_prose(file: &PolicyFile) -> Cow<'_, str> {
    if !file.text.contains(is_blank) {
        return Cow::Borrowed(&file.text);
    }
    let spaced = if file.name.ends_with(".rules") {
        file.text.lines().map(|line| rule(line) + "\n").collect()
    } else {
        cedar(&file.text)
    };
    Cow::Owned(spaced)
}

fn rule(line: &str) -> String {
    let (rule, comment) = rules::split_comment(line);
    format!("{rule}{}", comment.replace(is_blank, " "))
}

#[derive(Clone, Copy)]
enum Part {
    Code,
    Comment,
    Description,
    Text,
}

fn cedar(text: &str) -> String {
    let mut spaced = String::with_capacity(text.len());
    let (mut part, mut escaped) = (Part::Code, false);
    // Without what only looks like code: a comment may hold anything.
    let mut code = String::new();
    for (at, character) in text.char_indices() {
        let (_, rest) = text.split_at(at);
        let is_prose = matches!(part, Part::Comment | Part::Description);
        part = match (part, character) {
            (Part::Code, '/') if rest.starts_with("//") => Part::Comment,
            (Part::Code, '"') if opens_description(&code) => Part::Description,
            (Part::Code, '"') => Part::Text,
            // The parser ends a comment at a carriage return as well.
            (Part::Comment, '\n' | '\r') => Part::Code,
            (Part::Description | Part::Text, '"') if !escaped => Part::Code,
            (same, _) => same,
        };
        if matches!(part, Part::Code) {
            code.push(character);
        }
        escaped = character == '\\' && !escaped;
        spaced.push(if is_prose && is_blank(character) {
            ' '
        } else {
            character
        });
    }
    spaced
}

/// Annotations have their values in brackets, and an `@` stands nowhere else in code.
fn opens_description(before: &str) -> bool {
    let name = before.trim_end().strip_suffix('(');
    name.is_some_and(|name| name.trim_end().ends_with("@description"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `_` stands for a blank that is not the usual one: `expected` has those that stay.
    #[track_caller]
    fn check(name: &str, text: &str, expected: &str) {
        for blank in ["\u{a0}", "\u{2007}", "\u{202f}", "\u{3000}"] {
            let file = PolicyFile {
                name: name.to_owned(),
                text: text.replace('_', blank),
            };
            assert_eq!(with_spaces_in_prose(&file), expected.replace('_', blank));
        }
    }

    #[test]
    fn blanks_of_prose_are_spaces() {
        for (text, expected) in [
            ("// a_b_\n_//_c", "// a b \n_// c"),
            ("// \"a_b\n\"a_b", "// \"a b\n\"a_b"),
            ("// a\r_b", "// a\r_b"),
            ("a_== \"b_// c_\n// d_\" //_", "a_== \"b_// c_\n// d_\" // "),
            (
                "@description(\"a_b\\\"_\\\\\")_",
                "@description(\"a b\\\" \\\\\")_",
            ),
            ("@description ( \"a_b\" )_", "@description ( \"a b\" )_"),
            ("@id(\"a_b\")", "@id(\"a_b\")"),
            ("\"@description(\" == \"a_b\"", "\"@description(\" == \"a_b\""),
            ("p == // @description(\n\"a_b\"", "p == // @description(\n\"a_b\""),
            ("@description( // c_d\n\"a_b\")", "@description( // c d\n\"a b\")"),
            ("\"\\\"_//_\"", "\"\\\"_//_\""),
        ] {
            check("a.cedar", text, expected);
        }
        for (text, expected) in [
            ("#_a\n\n_# b_\n", "# a\n\n_# b \n"),
            ("deny mcp.a.*_# a_#_b\n", "deny mcp.a.*_# a # b\n"),
            ("deny mcp.a.\"b # c_d\"\n", "deny mcp.a.\"b # c d\"\n"),
            ("deny_mcp.a.b#c\n", "deny_mcp.a.b#c\n"),
            ("deny \"mcp.a.b #_c\" # d_e\n", "deny \"mcp.a.b #_c\" # d_e\n"),
            (
                "deny \"mcp.a.b # c\" # c\" # d_e\n",
                "deny \"mcp.a.b # c\" # c\" # d e\n",
            ),
            ("no rule # a_b\n", "no rule # a_b\n"),
            ("deny mcp.a.*_\n_\n", "deny mcp.a.*_\n_\n"),
        ] {
            check("a.rules", text, expected);
        }
    }

    #[test]
    fn what_ends_a_line_or_is_empty_is_no_blank() {
        for character in " \t\n\r\u{b}\u{c}\u{85}\u{200b}\u{2028}\u{2029}\u{2800}\u{3164}\u{feff}".chars() {
            assert!(!is_blank(character), "{character:?}");
        }
    }
}
