use std::time::Duration;

/// What an answer may cost. The defaults are the ones that docs/egress.md states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// All names and values of an answer's headers together.
    pub header_bytes: usize,
    /// A body as it came over the wire.
    pub body_bytes: u64,
    /// A body once decompressed.
    pub decoded_bytes: u64,
    /// Resolution, TCP and TLS together.
    pub connect: Duration,
    /// From the start of a hop to the head of its answer.
    pub first_byte: Duration,
    /// Between two pieces of a body.
    pub idle: Duration,
    /// For the whole exchange, redirects and body included. Streams are exempt.
    pub total: Duration,
    /// How many redirects are followed.
    pub redirects: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes: 64 << 10,
            body_bytes: 64 << 20,
            decoded_bytes: 256 << 20,
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(30),
            idle: Duration::from_secs(60),
            total: Duration::from_secs(300),
            redirects: 5,
        }
    }
}
