//! `when arg.path == "value"`: what a rule may ask of a call's arguments.

use std::fmt;

use serde_json::Value;

use crate::{PolicyProblem, arguments::push_key};

/// The argument at `path` has the text `value`, whatever its JSON type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArgumentIs {
    /// As the tags write it: `options.limit`, `list[0]`, `["a.b"]`.
    pub(crate) path: String,
    pub(crate) value: String,
}

impl fmt::Display for ArgumentIs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dot = if self.path.starts_with('[') { "" } else { "." };
        write!(f, "arg{dot}{} == {}", self.path, Value::from(self.value.as_str()))
    }
}

/// The conditions that stand after `when`, and what stands behind them.
pub(super) fn conditions(text: &str) -> Result<(Vec<ArgumentIs>, &str), PolicyProblem> {
    let mut conditions = Vec::new();
    let mut rest = text;
    loop {
        let (condition, behind) = condition(rest).ok_or_else(|| refusal(rest))?;
        check_characters(&condition)?;
        conditions.push(condition);
        match behind
            .trim_start()
            .strip_prefix("and")
            .filter(|more| more.starts_with(char::is_whitespace))
        {
            Some(more) => rest = more,
            None => return Ok((conditions, behind)),
        }
    }
}

fn refusal(text: &str) -> PolicyProblem {
    PolicyProblem::Condition(text.trim().to_owned())
}

fn condition(text: &str) -> Option<(ArgumentIs, &str)> {
    let (path, rest) = path(text.trim_start().strip_prefix("arg")?)?;
    let rest = rest.trim_start().strip_prefix("==")?.trim_start();
    let (value, rest) = json_string(rest)?;
    let ends = rest.is_empty() || rest.starts_with(char::is_whitespace);
    ends.then_some((ArgumentIs { path, value }, rest))
}

/// `.key`, `[0]` and `["any key"]`, at least one of them, in the spelling of the tags.
fn path(text: &str) -> Option<(String, &str)> {
    let mut path = String::new();
    let mut rest = text;
    loop {
        if let Some(key) = rest.strip_prefix('.') {
            let ends = |c: char| c.is_whitespace() || matches!(c, '.' | '[' | ']' | '#' | '"' | '=');
            let (key, behind) = key.split_at_checked(key.find(ends).unwrap_or(key.len()))?;
            if key.is_empty() {
                return None;
            }
            push_key(&mut path, key);
            rest = behind;
        } else if let Some(inner) = rest.strip_prefix('[') {
            let behind = if inner.starts_with('"') {
                let (key, behind) = json_string(inner)?;
                push_key(&mut path, &key);
                behind
            } else {
                let (index, behind) = inner.split_at_checked(inner.find(']')?)?;
                let canonical = index.parse::<u32>().ok()?.to_string();
                if canonical != index {
                    return None;
                }
                path.push_str(&format!("[{index}]"));
                behind
            };
            rest = behind.strip_prefix(']')?;
        } else {
            return (!path.is_empty()).then_some((path, rest));
        }
    }
}

/// The JSON string at the start of `text`, and what stands behind it.
fn json_string(text: &str) -> Option<(String, &str)> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<String>();
    let value = stream.next()?.ok()?;
    Some((value, text.get(stream.byte_offset()..)?))
}

fn check_characters(condition: &ArgumentIs) -> Result<(), PolicyProblem> {
    let shown = condition.to_string();
    let mut characters = condition.path.chars().chain(condition.value.chars());
    match characters.find(|character| !(character.is_ascii_graphic() || *character == ' ')) {
        None => Ok(()),
        Some(character) => Err(PolicyProblem::Confusable {
            pattern: shown,
            character,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let told = match conditions(text) {
            Ok((conditions, rest)) => {
                let shown: Vec<_> = conditions.iter().map(ToString::to_string).collect();
                format!("{}|{rest}", shown.join(" and "))
            }
            Err(problem) => format!("error: {problem}"),
        };
        assert_eq!(told, expected, "{text}");
    }

    #[test]
    fn paths_are_spelt_as_the_tags_spell_them() {
        check(r#" arg.path == "/srv""#, r#"arg.path == "/srv"|"#);
        check(r#"arg.a.b[0].c=="x" # why"#, r#"arg.a.b[0].c == "x"| # why"#);
        check(r#"arg["a"]["b"] == "x""#, r#"arg.a.b == "x"|"#);
        check(r#"arg["a.b"][""] == """#, r#"arg["a.b"][""] == ""|"#);
        check(
            r#"arg.a == "x and y" and arg.b == "\"z\"""#,
            r#"arg.a == "x and y" and arg.b == "\"z\""|"#,
        );
        let (conditions, _) = conditions(r#"arg["a.b"].c[2] == "x""#).unwrap();
        assert_eq!(conditions[0].path, r#"["a.b"].c[2]"#);
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for text in [
            "",
            "arg",
            r#"arg == "x""#,
            r#"arg. == "x""#,
            r#"arg.a = "x""#,
            "arg.a == x",
            "arg.a == 1",
            r#"arg.a == "x"y"#,
            r#"arg.a != "x""#,
            r#"arg[01] == "x""#,
            r#"arg[x] == "x""#,
            r#"arg.a#type == "string""#,
            r#"args.a == "x""#,
            r#"arg.a == "x" and"#,
        ] {
            if text.ends_with("and") {
                check(text, r#"arg.a == "x"| and"#);
            } else {
                check(text, &format!("error: `{text}` is not a condition"));
            }
        }
        check(
            "arg.a == \"\u{441}\"",
            "error: the character `\\u{441}` (U+0441) in `arg.a == \"\u{441}\"` may not stand in a rule",
        );
    }
}
