use thiserror::Error;

/// Why a text is not the name it was meant to be. The message quotes the input and says what is expected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParseError {
    /// Not `^[a-z][a-z0-9-]{0,63}$`.
    #[error("`{0}` is not a server id: use 1 to 64 characters of a-z, 0-9 and `-`, a letter first")]
    ServerId(String),
    /// Not `<source>.<server>.<tool>`.
    #[error(
        "`{0}` is not a capability id: write `mcp.<server>.<tool>`, or `host.<group>.<name>` for a host's own"
    )]
    CapabilityId(String),
    /// Not 64 lower-case hexadecimal digits.
    #[error("`{0}` is not a blake3 hash: it has 64 lower-case hexadecimal digits")]
    Hash(String),
    /// Not `blob:blake3:<hash>`.
    #[error("`{0}` is not a blob reference: write `blob:blake3:` and 64 hexadecimal digits")]
    BlobRef(String),
    /// Not one of the four tiers.
    #[error("`{0}` is not a tier: use `request_approval`, `allow_edits`, `plan` or `full_access`")]
    Tier(String),
    /// Empty, too long, or with characters that an agent's name may not have.
    #[error("`{0}` is not an agent id: use 1 to 128 characters of A-Z, a-z, 0-9, `.`, `_`, `@` and `-`")]
    AgentId(String),
    /// Not `[scheme://]host[:port][/path-prefix]`.
    #[error("`{input}` is not an egress rule: {why}; write `host`, `*.suffix` or `https://host:port/path`")]
    EgressRule {
        /// What was written.
        input: String,
        /// Which part of it is wrong.
        why: &'static str,
    },
}
