//! The rules language: one rule a line, for people who do not write Cedar.

mod compile;
mod condition;

pub use compile::compile_rules;
pub(crate) use compile::{compile, entity, entity_type};
pub(crate) use condition::ArgumentIs;

use std::fmt;

use crate::{
    PolicyError, PolicyFile, PolicyProblem,
    pattern::{Pattern, Piece, ServerPattern},
};

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rule {
    DefaultDeny,
    DefaultAsk,
    /// All conditions must hold; without one, every call of the tools is meant.
    Tools(Verb, Pattern, Vec<ArgumentIs>),
    Servers {
        permit: bool,
        question: &'static str,
        servers: ServerPattern,
    },
}

/// What a rule says of the tools that its pattern means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Allow,
    Ask,
    AlwaysAsk,
    Deny,
}

impl Verb {
    fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::AlwaysAsk => "always ask",
            Self::Deny => "deny",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DefaultDeny => f.write_str("default deny"),
            Self::DefaultAsk => f.write_str("default ask"),
            Self::Tools(verb, pattern, conditions) => {
                write!(f, "{} {}", verb.as_str(), in_quotes(&pattern.to_string()))?;
                for (position, condition) in conditions.iter().enumerate() {
                    write!(f, " {} {condition}", if position == 0 { "when" } else { "and" })?;
                }
                Ok(())
            }
            Self::Servers {
                permit,
                question,
                servers,
            } => {
                write!(
                    f,
                    "{} {question} {servers}",
                    if *permit { "allow" } else { "deny" }
                )
            }
        }
    }
}

/// The questions about a whole server: a rule allows or denies them by the action's name.
const SERVER_QUESTIONS: [&str; 3] = ["elicit", "readResource", "getPrompt"];

/// The rules of a file with their lines, counted from 1, and everything that is wrong in it.
pub(crate) fn parse(file: &PolicyFile) -> (Vec<(usize, Rule)>, Vec<PolicyError>) {
    let mut rules = Vec::new();
    let mut errors = Vec::new();
    for (line, text) in (1..).zip(file.text.lines()) {
        match rule(text) {
            Ok(Some(rule)) => rules.push((line, rule)),
            Ok(None) => {}
            Err(problem) => errors.push(PolicyError::new(&file.name, line, problem)),
        }
    }
    (rules, errors)
}

/// The file in the one way to write it; what is no rule goes to `errors`.
pub(crate) fn formatted(file: &PolicyFile, errors: &mut Vec<PolicyError>) -> String {
    let mut text = String::new();
    let mut blank = false;
    for (line, source) in (1..).zip(file.text.lines()) {
        let written = match rule_and_comment(source) {
            Ok((Some(rule), "")) => rule.to_string(),
            Ok((Some(rule), comment)) => format!("{rule}  {comment}"),
            Ok((None, comment)) => comment.to_owned(),
            Err(problem) => {
                errors.push(PolicyError::new(&file.name, line, problem));
                continue;
            }
        };
        if written.is_empty() {
            blank = !text.is_empty();
            continue;
        }
        if std::mem::take(&mut blank) {
            text.push('\n');
        }
        text.push_str(&written);
        text.push('\n');
    }
    text
}

/// Whether the comment of a rule says why no decision table exercises it.
pub(crate) fn is_marked_untested(line: &str) -> bool {
    rule_and_comment(line).is_ok_and(|(_, comment)| {
        let reason = comment
            .trim_start_matches('#')
            .trim_start()
            .strip_prefix("untested:");
        reason.is_some_and(|reason| !reason.trim().is_empty())
    })
}

/// A line in front of its comment, and the comment; a line that is no rule has none.
pub(crate) fn split_comment(line: &str) -> (&str, &str) {
    let comment = rule_and_comment(line).map_or("", |(_, comment)| comment);
    let start = match comment {
        "" => line.len(),
        comment => line.trim_end().len() - comment.len(),
    };
    line.split_at_checked(start).unwrap_or((line, ""))
}

fn rule(line: &str) -> Result<Option<Rule>, PolicyProblem> {
    rule_and_comment(line).map(|(rule, _)| rule)
}

/// The rule of a line, and its comment with the `#` in front.
fn rule_and_comment(line: &str) -> Result<(Option<Rule>, &str), PolicyProblem> {
    let mut words = Words(line);
    let refuse = || PolicyProblem::Rule(line.trim().to_owned());
    let Some(first) = words.next_plain() else {
        return Ok((None, line.trim()));
    };
    let mut rule = match first {
        "default" => match words.next_plain().ok_or_else(refuse)? {
            "deny" => Rule::DefaultDeny,
            "ask" => Rule::DefaultAsk,
            other => return Err(PolicyProblem::Default(other.to_owned())),
        },
        "allow" => about(Verb::Allow, &mut words, refuse)?,
        "ask" => about(Verb::Ask, &mut words, refuse)?,
        "deny" => about(Verb::Deny, &mut words, refuse)?,
        "always" if words.next_plain() == Some("ask") => about(Verb::AlwaysAsk, &mut words, refuse)?,
        _ => return Err(refuse()),
    };
    let mut next = words.next_plain();
    if let (Rule::Tools(.., conditions), Some("when")) = (&mut rule, next) {
        let (found, rest) = condition::conditions(words.0)?;
        *conditions = found;
        words.0 = rest;
        next = words.next_plain();
    }
    match next {
        None => Ok((Some(rule), words.0.trim())),
        Some(word) => Err(PolicyProblem::Trailing(word.to_owned())),
    }
}

/// The rest of a rule that starts with `verb`: a pattern of tools, or a question and a pattern of servers.
fn about(
    verb: Verb,
    words: &mut Words<'_>,
    refuse: impl Fn() -> PolicyProblem,
) -> Result<Rule, PolicyProblem> {
    let pattern = words.next_pattern()?.ok_or_else(&refuse)?;
    if let Some(question) = SERVER_QUESTIONS.into_iter().find(|question| *question == pattern) {
        let permit = match verb {
            Verb::Allow => true,
            Verb::Deny => false,
            Verb::Ask | Verb::AlwaysAsk => return Err(PolicyProblem::AskOfServer(question)),
        };
        let servers = words.next_pattern()?.ok_or_else(&refuse)?.parse()?;
        return Ok(Rule::Servers {
            permit,
            question,
            servers,
        });
    }
    let parsed: Pattern = pattern.parse()?;
    let confusable = parsed.tool.pieces().iter().find_map(|piece| match piece {
        Piece::Char(character) if !(character.is_ascii_graphic() || *character == ' ') => Some(*character),
        _ => None,
    });
    match confusable {
        Some(character) => Err(PolicyProblem::Confusable { pattern, character }),
        None => Ok(Rule::Tools(verb, parsed, Vec::new())),
    }
}

/// Quoted where a plain word would read as something else.
fn in_quotes(pattern: &str) -> String {
    if pattern.contains(char::is_whitespace) || pattern.starts_with(['"', '#']) {
        serde_json::Value::from(pattern).to_string()
    } else {
        pattern.to_owned()
    }
}

/// The words of a line. A word that starts with `#` begins a comment; a `#` inside a word does not.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn next_plain(&mut self) -> Option<&'a str> {
        let rest = self.0.trim_start();
        if rest.is_empty() || rest.starts_with('#') {
            return None;
        }
        let (word, rest) = rest.split_at_checked(rest.find(char::is_whitespace).unwrap_or(rest.len()))?;
        self.0 = rest;
        Some(word)
    }

    /// A plain word, or a JSON string for a name that holds spaces.
    fn next_pattern(&mut self) -> Result<Option<String>, PolicyProblem> {
        let rest = self.0.trim_start();
        if !rest.starts_with('"') {
            return Ok(self.next_plain().map(str::to_owned));
        }
        let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        match stream.next() {
            Some(Ok(pattern)) => {
                let rest = rest.get(stream.byte_offset()..).unwrap_or_default();
                if !rest.is_empty() && !rest.starts_with(char::is_whitespace) {
                    return Err(PolicyProblem::Trailing(rest.to_owned()));
                }
                self.0 = rest;
                Ok(Some(pattern))
            }
            Some(Err(error)) => Err(PolicyProblem::Quotes(error.to_string())),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &str) {
        let told = match rule(line) {
            Ok(Some(rule)) => rule.to_string(),
            Ok(None) => "nothing".to_owned(),
            Err(problem) => format!("error: {problem}"),
        };
        assert_eq!(told, expected, "{line}");
    }

    #[test]
    fn a_line_is_a_rule_or_a_comment() {
        check("", "nothing");
        check("  # allow mcp.*", "nothing");
        check("default deny", "default deny");
        check(
            "\tdefault  ask  # the team wants to see every call",
            "default ask",
        );
        check("allow mcp.github.*", "allow mcp.github.*");
        check("ask mcp.*.delete_*", "ask mcp.*.delete_*");
        check("always ask mcp.mail.send", "always ask mcp.mail.send");
        check("deny mcp.shell.*#x", "deny mcp.shell.*#x");
        check("deny mcp.*.* # all", "deny mcp.*");
        check(
            r#"deny "mcp.fs.read file" # spaces"#,
            r#"deny "mcp.fs.read file""#,
        );
        check(r#"deny "mcp.fs.\\*""#, r"deny mcp.fs.\*");
        check("allow elicit mcp.*", "allow elicit mcp.*");
        check("deny readResource mcp.github", "deny readResource mcp.github");
        check("allow mcp.elicit.x", "allow mcp.elicit.x");
        check(
            r##"allow "mcp.fs.read file" when arg.path=="/srv" and arg["q"] == "#" # why"##,
            r##"allow "mcp.fs.read file" when arg.path == "/srv" and arg.q == "#""##,
        );
        check(
            r#"deny mcp.a.when when arg.x == "1""#,
            r#"deny mcp.a.when when arg.x == "1""#,
        );
    }

    #[test]
    fn what_is_no_rule_says_why() {
        check("permit mcp.*", "error: `permit mcp.*` is not a rule");
        check("allow", "error: `allow` is not a rule");
        check("Allow mcp.*", "error: `Allow mcp.*` is not a rule");
        check("always mcp.*", "error: `always mcp.*` is not a rule");
        check("default", "error: `default` is not a rule");
        check("default allow", "error: `default allow` does not exist");
        check("allow mcp.a.b when", "error: `` is not a condition");
        check(
            r#"allow mcp.a.b when arg.x == "1" or"#,
            "error: `or` stands after the end of the rule",
        );
        check(
            r#"allow elicit mcp.a when arg.x == "1""#,
            "error: `when` stands after the end of the rule",
        );
        check(
            r#"default ask when arg.x == "1""#,
            "error: `when` stands after the end of the rule",
        );
        check(
            "deny mcp.fs.read file",
            "error: `file` stands after the end of the rule",
        );
        check(
            r#"deny "mcp.fs.a"b"#,
            "error: `b` stands after the end of the rule",
        );
        check(
            "ask elicit mcp.*",
            "error: `elicit` cannot be asked for, only allowed or denied",
        );
        check(
            "allow elicit mcp.a.b",
            "error: `mcp.a.b` is not a pattern of servers",
        );
        check("deny mcp.git*", "error: `mcp.git*` is not a pattern of tools");
        check("deny mcp.Git.*", "error: no server can be called `Git`");
        check(
            "deny mcp.a.s\u{441}an*",
            r"error: the character `\u{441}` (U+0441) in `mcp.a.sсan*` may not stand in a rule",
        );
        check(
            r#"deny "mcp.a.x\ny""#,
            "error: the character `\\n` (U+000A) in `mcp.a.x\ny` may not stand in a rule",
        );
        assert!(matches!(rule(r#"deny "mcp.a.x"#), Err(PolicyProblem::Quotes(_))));
    }

    #[test]
    fn a_printed_rule_reads_back() {
        for line in [
            "default ask",
            "allow mcp.*",
            r#"deny "mcp.a.\" # x""#,
            r"ask mcp.a.\*",
            r#"always ask "mcp.a.b c\\*""#,
            r#"ask mcp.a.* when arg["a.b"].c[0] == "x \\ \"y" and arg.z == """#,
        ] {
            let first = rule(line).unwrap().unwrap();
            assert_eq!(
                rule(&first.to_string()).unwrap().as_ref(),
                Some(&first),
                "{first}"
            );
        }
    }
}
