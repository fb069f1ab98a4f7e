//! Two definitions, line by line, as a person can read them.

use std::str::Chars;

use serde::de::IgnoredAny;
use similar::{ChangeTag, TextDiff};

use crate::output;

/// How many lines are shown around a difference.
const AROUND: usize = 3;

/// What is different, in the manner of `diff -u`. Nothing in it can steer a terminal, and what cannot be seen is
/// spelt out, so that two texts which look alike show where they differ.
pub(super) fn lines(before: &str, after: &str) -> Vec<String> {
    let (before, after) = (readable(before), readable(after));
    let difference = TextDiff::from_lines(&before, &after);
    let mut lines = Vec::new();
    for group in difference.grouped_ops(AROUND) {
        if !lines.is_empty() {
            lines.push("⋮".to_owned());
        }
        for change in group.iter().flat_map(|op| difference.iter_changes(op)) {
            let sign = match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            };
            lines.push(format!("{sign}{}", change.value().trim_end_matches('\n')));
        }
    }
    lines
}

/// JSON one member a line, and a text of several lines on as many; what is no JSON as it is.
fn readable(text: &str) -> String {
    let pretty = match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => laid_out(text),
        Err(_) => text.to_owned(),
    };
    let mut shown = String::with_capacity(pretty.len());
    for line in pretty.lines() {
        let indent: String = line.chars().take_while(|c| *c == ' ').collect();
        let mut characters = line.chars();
        while let Some(c) = characters.next() {
            shown.push(c);
            if c == '\\'
                && let Some(escaped) = characters.next()
            {
                shown.push(escaped);
                if escaped == 'n' {
                    shown.push_str(&format!("\n{indent}    "));
                }
            }
        }
        shown.push('\n');
    }
    output::safe(&shown)
}

/// Valid JSON with its own blanks in the place of those that were there. All else stays to the letter: what is read
/// into values and written again has lost members that stand twice and digits.
fn laid_out(json: &str) -> String {
    let mut out = String::with_capacity(2 * json.len());
    let (mut depth, mut empty) = (0_usize, false);
    let mut characters = json.chars();
    while let Some(c) = characters.next() {
        match c {
            ' ' | '\t' | '\n' | '\r' => continue,
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                if !empty {
                    new_line(&mut out, depth);
                }
            }
            _ if empty => new_line(&mut out, depth),
            _ => {}
        }
        out.push(c);
        empty = matches!(c, '{' | '[');
        match c {
            '{' | '[' => depth += 1,
            ',' => new_line(&mut out, depth),
            ':' => out.push(' '),
            '"' => string(&mut out, &mut characters),
            _ => {}
        }
    }
    out
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

/// The rest of a string, to its closing quote.
fn string(out: &mut String, characters: &mut Chars<'_>) {
    let mut escaped = false;
    for c in characters {
        out.push(c);
        match c {
            '"' if !escaped => return,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(before: &str, after: &str, expected: &[&str]) {
        assert_eq!(lines(before, after), expected);
    }

    #[test]
    fn what_differs_stands_out_and_nothing_is_hidden() {
        check(r#"{"a":1}"#, r#"{"a":1}"#, &[]);
        check(
            r#"{"description":"Reads.\nFast.","name":"x"}"#,
            r#"{"description":"Reads.\nAnd mails.","name":"x"}"#,
            &[
                " {",
                r#"   "description": "Reads.\n"#,
                r#"-      Fast.","#,
                r#"+      And mails.","#,
                r#"   "name": "x""#,
                " }",
            ],
        );
        // What cannot be seen, and what would rewrite the screen.
        let (plain, hostile) = (
            r#"{"d":"good"}"#,
            "{\"d\":\"go\u{200b}od\u{202e}\\u001b[2J\\\\n\"}",
        );
        check(
            plain,
            hostile,
            &[
                " {",
                r#"-  "d": "good""#,
                r#"+  "d": "go\u{200b}od\u{202e}\u001b[2J\\n""#,
                " }",
            ],
        );
        // What stands twice, what only the library means something by, and digits beyond a double.
        check(
            r#"{"a":{"d":"good","d":1}}"#,
            r#"{"a":{"d":"evil","d":1}}"#,
            &[
                " {",
                r#"   "a": {"#,
                r#"-    "d": "good","#,
                r#"+    "d": "evil","#,
                r#"     "d": 1"#,
                "   }",
                " }",
            ],
        );
        check(
            r#"{"a":[1]}"#,
            r#"{"a":{"$serde_json::private::RawValue":"[1]"}}"#,
            &[
                " {",
                r#"-  "a": ["#,
                "-    1",
                "-  ]",
                r#"+  "a": {"#,
                r#"+    "$serde_json::private::RawValue": "[1]""#,
                "+  }",
                " }",
            ],
        );
        check(
            r#"{"m":9007199254740993}"#,
            r#"{"m":9007199254740993.0}"#,
            &[
                " {",
                r#"-  "m": 9007199254740993"#,
                r#"+  "m": 9007199254740993.0"#,
                " }",
            ],
        );
        check("", "no json \u{1b}[2K", &["+no json \\u{1b}[2K"]);
    }

    #[test]
    fn json_is_laid_out_and_nothing_else_is_changed() {
        let json = r#" { "a" : [ ] , "b" :{}, "c\"\\":[1.50 ,{"d, e":"[ {\\"}] ,"f":null} "#;
        let laid_out = laid_out(json);
        assert_eq!(
            laid_out,
            "{\n  \"a\": [],\n  \"b\": {},\n  \"c\\\"\\\\\": [\n    1.50,\n    {\n      \"d, e\": \"[ {\\\\\"\n    }\n  ],\n  \"f\": null\n}"
        );
        let again = serde_json::to_string_pretty(&serde_json::from_str::<serde_json::Value>(json).unwrap());
        assert_eq!(again.unwrap().replace("1.5,", "1.50,"), laid_out);
    }

    #[test]
    fn what_is_far_from_a_difference_is_left_out() {
        let long = |changed: &str| {
            let members: Vec<_> = (10..40).map(|n| format!(r#""m{n}":{n}"#)).collect();
            format!("{{{}}}", members.join(",")).replace("25", changed)
        };
        let shown = lines(&long("25"), &long("99"));
        assert_eq!(shown.len(), 8, "{shown:?}");
    }
}
