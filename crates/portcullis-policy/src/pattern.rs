use std::{fmt, str::FromStr};

use portcullis_types::{CapabilityId, ServerId, Source};

use crate::PolicyProblem;

/// Which tools a rule is about: `mcp.github.*`, `mcp.*.delete_*`, `mcp.*` for all of MCP's, or one tool's id.
///
/// Split like an id at its first two dots; server and tool are matched apart, never the joined text. `*` is any run
/// of characters, also none; `\*` is a literal star; all else stands for itself, byte for byte.
///
/// ```
/// use portcullis_policy::Pattern;
///
/// let pattern: Pattern = "mcp.*.delete_*".parse()?;
/// assert!(pattern.matches(&"mcp.github.delete_repo".parse()?));
/// assert!(!pattern.matches(&"mcp.github.un.delete_repo".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pattern {
    pub(crate) servers: ServerPattern,
    pub(crate) tool: Glob,
}

impl Pattern {
    /// Whether the tool is one of those meant.
    #[must_use]
    pub fn matches(&self, capability: &CapabilityId) -> bool {
        self.servers.source == capability.source()
            && self.servers.name.matches(capability.server().as_str())
            && self.tool.matches(capability.tool())
    }
}

impl FromStr for Pattern {
    type Err = PolicyProblem;

    fn from_str(text: &str) -> Result<Self, PolicyProblem> {
        let refuse = || PolicyProblem::Pattern(text.to_owned());
        let (source, rest) = split_source(text).ok_or_else(refuse)?;
        if rest == "*" {
            return Ok(Self {
                servers: ServerPattern {
                    source,
                    name: Glob::any(),
                },
                tool: Glob::any(),
            });
        }
        let (name, tool) = rest
            .split_once('.')
            .filter(|(_, tool)| !tool.is_empty())
            .ok_or_else(refuse)?;
        let name = server_glob(name)?;
        Ok(Self {
            servers: ServerPattern { source, name },
            tool: Glob::parse(tool),
        })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.servers.name.is_any() && self.tool.is_any() {
            return write!(f, "{}.*", self.servers.source.as_str());
        }
        write!(f, "{}.{}", self.servers, self.tool)
    }
}

/// Which servers (or groups of a host's tools) a rule is about: `mcp.github`, `mcp.git*`, `mcp.*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ServerPattern {
    pub(crate) source: Source,
    pub(crate) name: Glob,
}

impl FromStr for ServerPattern {
    type Err = PolicyProblem;

    fn from_str(text: &str) -> Result<Self, PolicyProblem> {
        let split = split_source(text).filter(|(_, name)| !name.is_empty() && !name.contains('.'));
        let (source, name) = split.ok_or_else(|| PolicyProblem::ServerPattern(text.to_owned()))?;
        Ok(Self {
            source,
            name: server_glob(name)?,
        })
    }
}

impl fmt::Display for ServerPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.source.as_str(), self.name)
    }
}

/// A text with wildcards.
// INVARIANT: no two wildcards stand side by side, and no literal backslash stands before a wildcard, so that the
// printed form reads back as the same pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Glob(Vec<Piece>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Piece {
    Char(char),
    Any,
}

impl Glob {
    fn any() -> Self {
        Self(vec![Piece::Any])
    }

    /// The glob that stands for `text` alone.
    pub(crate) fn of(text: &str) -> Self {
        Self(text.chars().map(Piece::Char).collect())
    }

    fn parse(text: &str) -> Self {
        let mut pieces = Vec::new();
        let mut chars = text.chars().peekable();
        while let Some(character) = chars.next() {
            let piece = match character {
                '\\' if chars.next_if_eq(&'*').is_some() => Piece::Char('*'),
                '*' => Piece::Any,
                other => Piece::Char(other),
            };
            if piece != Piece::Any || pieces.last() != Some(&Piece::Any) {
                pieces.push(piece);
            }
        }
        Self(pieces)
    }

    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.0
    }

    pub(crate) fn is_any(&self) -> bool {
        self.0 == [Piece::Any]
    }

    /// The text that it stands for, where it has no wildcard.
    pub(crate) fn literal(&self) -> Option<String> {
        self.0
            .iter()
            .map(|piece| match piece {
                Piece::Char(character) => Some(*character),
                Piece::Any => None,
            })
            .collect()
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        matches_pieces(self.0.iter().copied(), text)
    }
}

/// Greedy, going back to the last wildcard only: an earlier one can take over nothing that the last cannot, so the
/// time is at most the product of the two lengths.
pub(crate) fn matches_pieces(mut pieces: impl Iterator<Item = Piece> + Clone, text: &str) -> bool {
    let mut chars = text.chars();
    let mut retry = None;
    loop {
        let here = chars.clone();
        match (pieces.next(), chars.next()) {
            (None, None) => return true,
            (Some(Piece::Any), _) => {
                chars = here;
                retry = Some((pieces.clone(), chars.clone()));
            }
            (Some(Piece::Char(wanted)), Some(found)) if wanted == found => {}
            _ => {
                let Some((after, from)) = &mut retry else {
                    return false;
                };
                if from.next().is_none() {
                    return false;
                }
                pieces = after.clone();
                chars = from.clone();
            }
        }
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            Piece::Char('*') => f.write_str("\\*"),
            Piece::Char(character) => write!(f, "{character}"),
            Piece::Any => f.write_str("*"),
        })
    }
}

fn split_source(text: &str) -> Option<(Source, &str)> {
    let (source, rest) = text.split_once('.')?;
    [Source::Mcp, Source::Host]
        .into_iter()
        .find(|known| known.as_str() == source)
        .map(|source| (source, rest))
}

/// Refuses what no server's id can match, since such a rule would silently do nothing.
fn server_glob(text: &str) -> Result<Glob, PolicyProblem> {
    let glob = Glob::parse(text);
    let fits = match glob.literal() {
        Some(name) => name.parse::<ServerId>().is_ok(),
        None => {
            let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            glob.0
                .iter()
                .all(|piece| matches!(piece, Piece::Any) || matches!(piece, Piece::Char(c) if letters(*c)))
                && !matches!(glob.0.first(), Some(Piece::Char(c)) if !c.is_ascii_lowercase())
        }
    };
    if fits {
        Ok(glob)
    } else {
        Err(PolicyProblem::ServerName(text.to_owned()))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        let pattern: Pattern = pattern.parse().unwrap();
        for (ids, expected) in [(yes, true), (no, false)] {
            for id in ids {
                assert_eq!(
                    pattern.matches(&id.parse().unwrap()),
                    expected,
                    "{pattern} on {id}"
                );
            }
        }
    }

    #[test]
    fn server_and_tool_are_matched_apart() {
        check(
            "mcp.github.*",
            &["mcp.github.x", "mcp.github.a.b"],
            &["mcp.github2.x", "host.github.x", "mcp.git.hub.x"],
        );
        check(
            "mcp.*.delete_*",
            &["mcp.a.delete_", "mcp.b.delete_x"],
            &["mcp.a.b.delete_x", "mcp.a.DELETE_x", "host.a.delete_x"],
        );
        check("mcp.*", &["mcp.a.b", "mcp.a.b.c"], &["host.a.b"]);
        check("host.*", &["host.a.b"], &["mcp.a.b"]);
        check("mcp.trusted.*", &["mcp.trusted.x"], &["mcp.trusted--evil.x"]);
        check(
            "mcp.git*.x",
            &["mcp.git.x", "mcp.github.x"],
            &["mcp.git.github.x"],
        );
        check(r"mcp.a.\*", &["mcp.a.*"], &["mcp.a.x", r"mcp.a.\*"]);
        check(r"mcp.a.\\*", &[r"mcp.a.\*"], &["mcp.a.*", r"mcp.a.\x"]);
        check(r"mcp.a.\u{2a}", &[r"mcp.a.\u{2a}"], &["mcp.a.*", "mcp.a.x"]);
        check("mcp.a.x*y*z", &["mcp.a.xyz", "mcp.a.x\n.yyz"], &["mcp.a.xzy"]);
        check("mcp.a.é", &["mcp.a.é"], &["mcp.a.e\u{301}"]);
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for (text, why) in [
            ("", "pattern of tools"),
            ("*", "pattern of tools"),
            ("mcp", "pattern of tools"),
            ("mcp.", "pattern of tools"),
            ("mcp.github", "pattern of tools"),
            ("mcp.git*", "pattern of tools"),
            ("mcp.github.", "pattern of tools"),
            ("github.*", "pattern of tools"),
            ("mcp.GitHub.*", "no server"),
            (r"mcp.\*.x", "no server"),
            ("mcp..x", "no server"),
            ("mcp.a_*.x", "no server"),
            ("mcp.-*.x", "no server"),
        ] {
            let told = text.parse::<Pattern>().unwrap_err().to_string();
            assert!(told.contains(why), "{text}: {told}");
        }
    }

    /// The definition of matching, word for word.
    fn naive(pieces: &[Piece], text: &[char]) -> bool {
        match pieces.split_first() {
            None => text.is_empty(),
            Some((Piece::Any, rest)) => (0..=text.len()).any(|skip| naive(rest, &text[skip..])),
            Some((Piece::Char(wanted), rest)) => text.first() == Some(wanted) && naive(rest, &text[1..]),
        }
    }

    /// Patterns and names over few letters, so that they meet often.
    pub(crate) fn pattern_texts() -> impl Strategy<Value = String> {
        (
            "(mcp|host)",
            "(a|ab|\\*|a\\*|\\*b|a\\*b)",
            "(?s)([ab.\\\\\n\"{}]|\\*|\\\\\\*){1,6}",
        )
            .prop_map(|(source, server, tool)| format!("{source}.{server}.{tool}"))
    }

    pub(crate) fn capabilities() -> impl Strategy<Value = CapabilityId> {
        ("(mcp|host)", "(a|ab|abb|b)", "(?s)[ab.*\\\\\n\"{}]{1,8}")
            .prop_map(|(source, server, tool)| format!("{source}.{server}.{tool}").parse().unwrap())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn the_matcher_agrees_with_the_definition(pattern in "(?s)[ab*\\\\\n]{0,8}", text in "(?s)[ab*\\\\\n]{0,10}") {
            let glob = Glob::parse(&pattern);
            let chars: Vec<_> = text.chars().collect();
            prop_assert_eq!(glob.matches(&text), naive(glob.pieces(), &chars));
        }

        #[test]
        fn patterns_round_trip(text in pattern_texts(), capability in capabilities()) {
            let pattern: Pattern = text.parse().unwrap();
            let back: Pattern = pattern.to_string().parse().unwrap();
            prop_assert_eq!(&back, &pattern);
            prop_assert_eq!(back.matches(&capability), pattern.matches(&capability));
        }

        #[test]
        fn an_id_is_a_pattern_of_itself(server in "[a-z][a-z0-9-]{0,8}", tool in "(?s).{1,20}") {
            let id: CapabilityId = format!("mcp.{server}.{tool}").parse().unwrap();
            let pattern: Pattern = id.to_string().parse().unwrap();
            prop_assume!(!tool.contains("\\*"));
            prop_assert!(pattern.matches(&id));
        }
    }
}
