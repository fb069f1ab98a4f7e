use thiserror::Error;

/// Why a text is not the name it was meant to be. The message quotes the input and says what is expected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParseError {
    /// Not `^[a-z][a-z0-9-]{0,63}$`.
    #[error("`{}` is not a server id: use 1 to 64 characters of a-z, 0-9 and `-`, a letter first", printable(.0))]
    ServerId(String),
    /// Not `<source>.<server>.<tool>`.
    #[error(
        "`{}` is not a capability id: write `mcp.<server>.<tool>`, or `host.<group>.<name>` for a host's own",
        printable(.0)
    )]
    CapabilityId(String),
    /// Not 64 lower-case hexadecimal digits.
    #[error("`{}` is not a blake3 hash: it has 64 lower-case hexadecimal digits", printable(.0))]
    Hash(String),
    /// Not `blob:blake3:<hash>`.
    #[error("`{}` is not a blob reference: write `blob:blake3:` and 64 hexadecimal digits", printable(.0))]
    BlobRef(String),
    /// Not one of the four tiers.
    #[error("`{}` is not a tier: use `request_approval`, `allow_edits`, `plan` or `full_access`", printable(.0))]
    Tier(String),
    /// Empty, too long, or with characters that an agent's name may not have.
    #[error("`{}` is not an agent id: use 1 to 128 characters of A-Z, a-z, 0-9, `.`, `_`, `@` and `-`", printable(.0))]
    AgentId(String),
    /// Not `[scheme://]host[:port][/path-prefix]`.
    #[error("`{}` is not an egress rule: {why}; write `host`, `*.suffix` or `https://host:port/path`", printable(.input))]
    EgressRule {
        /// What was written.
        input: String,
        /// Which part of it is wrong.
        why: &'static str,
    },
}

/// Quoted input, safe to print: it may come from a hostile document, and must not steer a terminal.
fn printable(input: &str) -> String {
    let mut printable: String = input.chars().take(200).flat_map(char::escape_debug).collect();
    if input.chars().nth(200).is_some() {
        printable.push('…');
    }
    // Quotes are harmless, and easier to read as they are.
    printable.replace("\\\"", "\"").replace("\\'", "'")
}

#[cfg(test)]
mod tests {
    use crate::{CapabilityId, EgressRule};

    #[test]
    fn quoted_input_cannot_steer_a_terminal() {
        let error = "example.com\u{15}a\u{1b}[2J"
            .parse::<EgressRule>()
            .unwrap_err()
            .to_string();
        assert!(error.starts_with(r"`example.com\u{15}a\u{1b}[2J`"), "{error}");
        let error = "x"
            .repeat(10_000)
            .parse::<CapabilityId>()
            .unwrap_err()
            .to_string();
        assert!(error.len() < 400, "{error}");
        let error = r#"say "hi""#.parse::<CapabilityId>().unwrap_err().to_string();
        assert!(error.contains(r#"`say "hi"`"#), "{error}");
    }
}
