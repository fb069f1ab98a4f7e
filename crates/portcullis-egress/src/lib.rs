//! Egress rules and the guarded HTTP client.
