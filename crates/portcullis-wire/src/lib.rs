//! Chunks of bytes in, JSON-RPC frames out.
