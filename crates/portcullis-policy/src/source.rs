//! Cedar text as policies that know where they stand.

use std::collections::BTreeMap;

use cedar_policy::{Policy, PolicyId, PolicySet};
use miette::Diagnostic;
use portcullis_types::{PolicyRef, is_hidden};

use crate::{PolicyError, PolicyProblem, depth};
use prose::is_blank;

mod prose;

/// A text with policies or rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyFile {
    /// The file's name as reasons show it. Its ending says what it is: `.cedar` or `.rules`.
    pub name: String,
    /// The text.
    pub text: String,
}

/// The annotation of a policy that no decision table exercises, with the reason why.
pub(crate) const UNTESTED: &str = "untested";

impl PolicyFile {
    /// The file's name without its folder.
    #[must_use]
    pub fn base_name(&self) -> &str {
        self.name.rsplit(['/', '\\']).next().unwrap_or(&self.name)
    }
}

/// A policy under its `@id`, with the place where it stands.
#[derive(Debug, Clone)]
pub(crate) struct LoadedPolicy {
    pub(crate) policy: Policy,
    pub(crate) reference: PolicyRef,
}

impl LoadedPolicy {
    /// The only way to one: what stands too deep in itself is none, whatever it was written in.
    pub(crate) fn new(policy: Policy, reference: PolicyRef) -> Result<Self, PolicyProblem> {
        depth::check(&policy)?;
        Ok(Self { policy, reference })
    }
}

/// Reports the characters that make a text look like another text.
pub(crate) fn check_text(file: &PolicyFile, errors: &mut Vec<PolicyError>) {
    let text = prose::with_spaces_in_prose(file);
    for (line, text) in (1..).zip(text.lines()) {
        if let Some(character) = text.chars().find(|character| is_invisible(*character)) {
            let problem = if is_blank(character) {
                PolicyProblem::Blank(character)
            } else {
                PolicyProblem::Invisible(character)
            };
            errors.push(PolicyError::new(&file.name, line, problem));
        }
    }
}

/// The policies of a Cedar file, each under its `@id`; all that is wrong goes to `errors`.
pub(crate) fn load_cedar(file: &PolicyFile, errors: &mut Vec<PolicyError>) -> Vec<LoadedPolicy> {
    if let Err((line, problem)) = depth::check_text(&file.text) {
        errors.push(PolicyError::new(&file.name, line, problem));
        return Vec::new();
    }
    let set: PolicySet = match file.text.parse() {
        Ok(set) => set,
        Err(wrong) => {
            errors.extend(wrong.iter().map(|error| {
                let line = error_line(&file.text, error).unwrap_or(1);
                let help = error.help().map(|help| help.to_string());
                PolicyError::new(
                    &file.name,
                    line,
                    PolicyProblem::Syntax {
                        message: error.to_string(),
                        help,
                    },
                )
            }));
            return Vec::new();
        }
    };
    let places = places_of(&file.text, &set);
    let line_of = |id: &PolicyId| places.get(id).map_or(1, |place| place.line);
    for template in set.templates() {
        errors.push(PolicyError::new(
            &file.name,
            line_of(template.id()),
            PolicyProblem::Template,
        ));
    }
    let mut policies: Vec<_> = set
        .policies()
        .map(|policy| (line_of(policy.id()), policy))
        .collect();
    policies.sort_by_key(|(line, policy)| (*line, ordinal(policy.id())));
    policies
        .into_iter()
        .filter_map(|(line, policy)| annotated(file, line, policy, errors))
        .collect()
}

/// The byte behind each policy or template of a text that can be parsed, in order.
pub(crate) fn ends(text: &str) -> Vec<usize> {
    let set: PolicySet = text.parse().unwrap_or_default();
    let mut ends: Vec<_> = places_of(text, &set)
        .into_values()
        .filter_map(|place| place.end)
        .collect();
    ends.sort_unstable();
    ends
}

/// The line of the first place that a diagnostic points to.
pub(crate) fn error_line(text: &str, error: &dyn Diagnostic) -> Option<usize> {
    let label = error.labels()?.next()?;
    Some(line_at(text, label.offset()))
}

fn annotated(
    file: &PolicyFile,
    line: usize,
    policy: &Policy,
    errors: &mut Vec<PolicyError>,
) -> Option<LoadedPolicy> {
    let mut report = |problem| errors.push(PolicyError::new(&file.name, line, problem));
    let (mut id, mut description) = (None, None);
    // `Policy::annotation` parses the name that it is asked for, each time.
    for (name, value) in policy.annotations() {
        let given = Some(value).filter(|value| !value.trim().is_empty());
        match name {
            "id" => id = given,
            "description" => description = given,
            UNTESTED if given.is_none() => report(PolicyProblem::UntestedWithoutReason),
            UNTESTED => {}
            other => report(PolicyProblem::UnknownAnnotation(other.to_owned())),
        }
    }
    let mut required = |name, value: Option<&str>| {
        if value.is_none() {
            report(PolicyProblem::MissingAnnotation(name));
        }
        value.map(str::to_owned)
    };
    let (id, description) = (required("id", id), required("description", description));
    let reference = PolicyRef {
        id: id?,
        file: file.name.clone(),
        line,
        description: description?,
    };
    let policy = policy.new_id(PolicyId::new(&reference.id));
    LoadedPolicy::new(policy, reference).map_err(report).ok()
}

/// Where a policy stands in a text.
struct Place {
    /// Its first line.
    line: usize,
    /// The byte behind it, where it was found.
    end: Option<usize>,
}

/// Where each policy and template stands. The parser numbers them in order of the text, and prints each as it stands
/// there, so each is found after the one before and what is blank or comment between them.
fn places_of(text: &str, set: &PolicySet) -> BTreeMap<PolicyId, Place> {
    let policies = set.policies().map(|policy| (policy.id(), policy.to_string()));
    let templates = set
        .templates()
        .map(|template| (template.id(), template.to_string()));
    let mut sources: Vec<_> = policies.chain(templates).collect();
    sources.sort_by_key(|(id, _)| ordinal(id));
    let mut places = BTreeMap::new();
    let (mut at, mut line) = (0, 1);
    for (id, source) in sources {
        let rest = text.get(at..).unwrap_or_default();
        let start = Some(blank_bytes(rest))
            .filter(|blank| rest.get(*blank..).is_some_and(|rest| rest.starts_with(&source)));
        let end = start.map(|start| at + start + source.len());
        // Should the parser ever print a policy otherwise, it is reported at the end of the one before.
        let start = start.unwrap_or(0);
        // Counted from the policy before, so that a long file is gone through once.
        line += newlines(rest, start);
        places.insert(id.clone(), Place { line, end });
        line += newlines(&source, source.len());
        at += start + source.len();
    }
    places
}

/// The parser calls the policies of a text `policy0`, `policy1`, …
fn ordinal(id: &PolicyId) -> usize {
    AsRef::<str>::as_ref(id)
        .trim_start_matches("policy")
        .parse()
        .unwrap_or(usize::MAX)
}

/// How many bytes of white space and comments stand in front.
fn blank_bytes(text: &str) -> usize {
    let mut rest = text.trim_start();
    while let Some(comment) = rest.strip_prefix("//") {
        rest = comment
            .split_once('\n')
            .map_or("", |(_, after)| after)
            .trim_start();
    }
    text.len() - rest.len()
}

fn line_at(text: &str, offset: usize) -> usize {
    newlines(text, offset) + 1
}

/// How many lines end in the first `bytes` of a text.
fn newlines(text: &str, bytes: usize) -> usize {
    text.bytes().take(bytes).filter(|byte| *byte == b'\n').count()
}

/// Marks that turn text around, characters that are empty, controls, and blanks that a reviewer takes for a space.
fn is_invisible(character: char) -> bool {
    // A pattern of dots without dots, and what chooses the shape of the character before it.
    let more = matches!(character, '\u{2800}' | '\u{fe00}'..='\u{fe0f}');
    let blank = character.is_whitespace() || character.is_control();
    is_hidden(character) || more || (blank && !matches!(character, ' ' | '\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loads `text` as `a.cedar`; each policy as `id@line`, each error as `line: problem`.
    fn check(text: &str, policies: &[&str], problems: &[&str]) {
        let file = PolicyFile {
            name: "a.cedar".to_owned(),
            text: text.to_owned(),
        };
        let mut errors = Vec::new();
        check_text(&file, &mut errors);
        let loaded: Vec<_> = load_cedar(&file, &mut errors)
            .iter()
            .map(|loaded| {
                assert_eq!(AsRef::<str>::as_ref(loaded.policy.id()), loaded.reference.id);
                format!("{}@{}", loaded.reference.id, loaded.reference.line)
            })
            .collect();
        assert_eq!(loaded, policies);
        let told: Vec<_> = errors
            .iter()
            .map(|error| format!("{}: {}", error.line, error.problem))
            .collect();
        assert_eq!(told, problems);
    }

    fn policy(id: &str) -> String {
        format!("@id(\"{id}\")\n@description(\"d\")\npermit (principal, action, resource);")
    }

    #[test]
    fn each_policy_knows_its_first_line() {
        let (a, b) = (policy("a"), policy("b"));
        check("", &[], &[]);
        check(
            &format!(
                "// {}\n\n{a}\n\n\n// c\n  {b}\n",
                policy("x").replace('\n', "\n// ")
            ),
            &["a@5", "b@11"],
            &[],
        );
        check(&format!("{a} {b}"), &["a@1", "b@3"], &[]);
        check(
            &format!("\r\n{}\r\n{b}", a.replace('\n', "\r\n")),
            &["a@2", "b@5"],
            &[],
        );
        // Twelve policies: they are found in order of their number, not of its spelling.
        let many: Vec<_> = (0..12).map(|n| policy(&format!("p{n}"))).collect();
        let expected: Vec<_> = (0..12).map(|n| format!("p{n}@{}", 3 * n + 1)).collect();
        let expected: Vec<_> = expected.iter().map(String::as_str).collect();
        check(&many.join("\n"), &expected, &[]);
    }

    #[test]
    fn annotations_are_checked() {
        check(
            "\npermit (principal, action, resource);",
            &[],
            &[
                "2: this policy has no `@id`",
                "2: this policy has no `@description`",
            ],
        );
        check(
            "@id(\"a\") @description(\" \") permit (principal, action, resource);",
            &[],
            &["1: this policy has no `@description`"],
        );
        check(
            &format!("@idd(\"x\")\n{}", policy("a")),
            &["a@1"],
            &["1: unknown annotation `@idd`"],
        );
        check(&format!("@untested(\"later\")\n{}", policy("a")), &["a@1"], &[]);
        check(
            &format!("@untested\n{}", policy("a")),
            &["a@1"],
            &["1: `@untested` gives no reason"],
        );
    }

    #[test]
    fn what_cannot_be_used_is_reported_where_it_stands() {
        check(
            &format!(
                "{}\npermit (principal == ?principal, action, resource);",
                policy("a")
            ),
            &["a@1"],
            &["4: a policy template stands here, and nothing would fill in its slots"],
        );
        check(
            &format!(
                "{}\n\npermit (principal, action, resource)\n  when {{ 1 + }};",
                policy("a")
            ),
            &[],
            &["6: unexpected token `}`"],
        );
        check(
            "// fine \u{202e}\n//\u{200b}",
            &[],
            &[
                "1: the invisible character U+202E stands in this line",
                "2: the invisible character U+200B stands in this line",
            ],
        );
        // What is empty, and what holds others together.
        for hidden in "\u{115f}\u{17b4}\u{180b}\u{2028}\u{2800}\u{3164}\u{ffa0}\u{fff9}\u{1d173}".chars() {
            let told = format!(
                "1: the invisible character U+{:04X} stands in this line",
                u32::from(hidden)
            );
            check(&format!("// a{hidden}b"), &[], &[&told]);
        }
        check("// größe\t日本 🏰", &[], &[]);
    }

    #[test]
    fn blanks_that_look_like_a_space_are_for_people_only() {
        for blank in "\u{a0}\u{2007}\u{202f}\u{3000}".chars() {
            let described = policy("a").replace("\"d\"", &format!("\"Pour qui{blank}?\""));
            check(&format!("// Notiz{blank}für alle\n{described}"), &["a@2"], &[]);
            let named = policy(&format!("a{blank}b"));
            let told = format!(
                "1: the blank U+{:04X} stands in this line in place of a space",
                u32::from(blank)
            );
            check(&named, &[&format!("a{blank}b@1")], &[&told]);
        }
        let rules = |text: &str| {
            let file = PolicyFile {
                name: "a.rules".to_owned(),
                text: text.to_owned(),
            };
            crate::compile_rules(&file).map_err(|errors| errors.to_string())
        };
        rules("# Notiz\u{a0}für alle\ndeny mcp.a.* #\u{3000}日本").unwrap();
        let told = rules("# a\ndeny\u{a0}mcp.a.*").unwrap_err();
        assert_eq!(
            told,
            "a.rules:2: the blank U+00A0 stands in this line in place of a space\n  help: write a space; in a name \
             that holds it, match it by `like` and `*`"
        );
    }
}
