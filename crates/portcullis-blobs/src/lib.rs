//! A blake3 content-addressed blob store.
