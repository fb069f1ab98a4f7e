//! The lints of rules.

use std::collections::HashMap;

use portcullis_types::CapabilityId;

use super::{Finding, Lint, catalog::server_id};
use crate::{
    PolicyFile,
    pattern::{Glob, Pattern, Piece, ServerPattern, matches_pieces},
    rules::{ArgumentIs, Rule, Verb, parse},
};

pub(super) fn lint(file: &PolicyFile, catalog: Option<&[CapabilityId]>) -> Vec<Finding> {
    let (rules, _) = parse(file);
    let mut findings = Vec::new();
    for (line, rule) in &rules {
        let mut report = |lint, message| {
            findings.push(Finding {
                file: file.name.clone(),
                line: *line,
                lint,
                message,
            });
        };
        let servers = match rule {
            Rule::Tools(_, pattern, _) => &pattern.servers,
            Rule::Servers { servers, .. } => servers,
            Rule::DefaultAsk | Rule::DefaultDeny => continue,
        };
        if grants(rule) && !servers.name.is_any() && servers.name.literal().is_none() {
            report(
                Lint::ServerWildcard,
                format!("`{servers}` is also whatever server is added later under such a name"),
            );
        }
        for message in literal_wildcards(rule) {
            report(Lint::LiteralWildcard, message);
        }
        let Some(catalog) = catalog else { continue };
        if let Some((lint, message)) = unknown(rule, servers, catalog) {
            report(lint, message);
        }
    }
    findings
}

fn grants(rule: &Rule) -> bool {
    match rule {
        Rule::Tools(verb, ..) => *verb != Verb::Deny,
        Rule::Servers { permit, .. } => *permit,
        Rule::DefaultAsk | Rule::DefaultDeny => false,
    }
}

/// What is a wildcard elsewhere and stands for itself here: a rule that forbids by it forbids next to nothing.
fn literal_wildcards(rule: &Rule) -> Vec<String> {
    let Rule::Tools(_, pattern, conditions) = rule else {
        return Vec::new();
    };
    let literals = [&pattern.servers.name, &pattern.tool]
        .into_iter()
        .flat_map(Glob::pieces);
    let foreign = literals.filter_map(|piece| match piece {
        Piece::Char(character @ ('?' | '[' | '{')) => Some(character),
        _ => None,
    });
    // A star that is written as an escape is found by itself.
    let is_escape = pattern.to_string().contains("\\u{");
    let of_names = foreign
        .take(usize::from(!is_escape))
        .map(|character| format!("in `{pattern}` the `{character}` is an ordinary character"));
    // Within a text people mean a star: `SELECT * FROM`.
    let is_wild = |condition: &&ArgumentIs| {
        let value = condition.value.as_str();
        value != "*" && (value.starts_with('*') || value.ends_with('*'))
    };
    let of_values = conditions.iter().filter(is_wild);
    let of_values = of_values.map(|condition| format!("in `{condition}` the `*` is an ordinary character"));
    of_names.chain(of_values).collect()
}

fn unknown(rule: &Rule, servers: &ServerPattern, catalog: &[CapabilityId]) -> Option<(Lint, String)> {
    let of_the_server = |tool: &&CapabilityId| {
        servers.source == tool.source() && servers.name.matches(tool.server().as_str())
    };
    if let Some(name) = servers.name.literal() {
        let id = format!("{}.{name}", servers.source.as_str());
        if !catalog.iter().any(|tool| server_id(tool) == id) {
            return Some((Lint::UnknownServer, format!("the catalog has no `{id}`")));
        }
    }
    match rule {
        Rule::Tools(_, pattern, _) if !catalog.iter().any(|tool| pattern.matches(tool)) => {
            let exact = pattern.servers.name.literal().is_some() && pattern.tool.literal().is_some();
            Some(if exact {
                (Lint::UnknownTool, format!("the catalog has no `{pattern}`"))
            } else {
                (
                    Lint::MatchesNothing,
                    format!("`{pattern}` is no tool of the catalog"),
                )
            })
        }
        Rule::Servers { .. } if !catalog.iter().any(|tool| of_the_server(&tool)) => Some((
            Lint::MatchesNothing,
            format!("`{servers}` is no server of the catalog"),
        )),
        _ => None,
    }
}

/// A rule of tools and where it stands.
struct Placed<'f> {
    file: &'f PolicyFile,
    line: usize,
    verb: Verb,
    pattern: Pattern,
    conditions: Vec<ArgumentIs>,
}

/// Rules that another rule leaves without effect, whatever is called: it means at least the same calls and is as
/// restrictive or more. Two that say the same are reported once, at the later one.
pub(super) fn shadowed(files: &[PolicyFile]) -> Vec<Finding> {
    let mut placed = Vec::new();
    for file in files.iter().filter(|file| file.name.ends_with(".rules")) {
        for (line, rule) in parse(file).0 {
            if let Rule::Tools(verb, pattern, conditions) = rule {
                placed.push(Placed {
                    file,
                    line,
                    verb,
                    pattern,
                    conditions,
                });
            }
        }
    }
    let servers = Servers::of(&placed);
    let each = placed.iter().enumerate().filter_map(|(position, rule)| {
        let others = servers.may_cover(rule).filter(|other| *other != position);
        let others = others.filter_map(|other| Some((other, placed.get(other)?)));
        let outdone_by =
            others.filter(|(other, by)| outdoes(by, rule) && (*other < position || !outdoes(rule, by)));
        let (_, by) = outdone_by.min_by_key(|(other, _)| *other)?;
        Some(Finding {
            file: rule.file.name.clone(),
            line: rule.line,
            lint: Lint::Shadowed,
            message: format!("it has no effect beside the rule at {}:{}", by.file.name, by.line),
        })
    });
    each.collect()
}

/// The positions of rules by the server that they name, so that not each is compared with each.
#[derive(Default)]
struct Servers {
    named: HashMap<String, Vec<usize>>,
    /// Those that name none, or many.
    wild: Vec<usize>,
}

impl Servers {
    fn of(placed: &[Placed<'_>]) -> Self {
        let mut servers = Self::default();
        for (position, rule) in placed.iter().enumerate() {
            match rule.pattern.servers.name.literal() {
                Some(name) => servers.named.entry(name).or_default().push(position),
                None => servers.wild.push(position),
            }
        }
        servers
    }

    /// The rules whose pattern of servers may cover that of `rule`: one name covers no wildcard.
    fn may_cover(&self, rule: &Placed<'_>) -> impl Iterator<Item = usize> {
        let name = rule.pattern.servers.name.literal();
        let named = name.and_then(|name| self.named.get(&name));
        named.into_iter().flatten().chain(&self.wild).copied()
    }
}

fn outdoes(by: &Placed<'_>, rule: &Placed<'_>) -> bool {
    let stricter = match (by.verb, rule.verb) {
        (Verb::Deny, _) | (Verb::AlwaysAsk, Verb::Ask | Verb::AlwaysAsk | Verb::Allow) => true,
        (Verb::Ask, Verb::Ask | Verb::Allow) => true,
        (Verb::Allow, Verb::Allow) => true,
        (Verb::AlwaysAsk | Verb::Ask | Verb::Allow, _) => false,
    };
    let same_calls = by
        .conditions
        .iter()
        .all(|condition| rule.conditions.contains(condition));
    stricter && same_calls && covers(&by.pattern, &rule.pattern)
}

fn covers(wide: &Pattern, narrow: &Pattern) -> bool {
    wide.servers.source == narrow.servers.source
        && glob_covers(&wide.servers.name, &narrow.servers.name)
        && glob_covers(&wide.tool, &narrow.tool)
}

/// Whether everything that `narrow` matches is matched by `wide`. A wildcard of `narrow` stands for a character that
/// no text holds: only a wildcard of `wide` can match it. Where that fails, no claim is made.
fn glob_covers(wide: &Glob, narrow: &Glob) -> bool {
    const ANY: char = '\u{10ffff}';
    let text: String = narrow
        .pieces()
        .iter()
        .map(|piece| match piece {
            Piece::Char(character) => *character,
            Piece::Any => ANY,
        })
        .collect();
    matches_pieces(wide.pieces().iter().copied(), &text)
}
