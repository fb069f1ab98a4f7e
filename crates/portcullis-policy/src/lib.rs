//! The Cedar decision point.
