//! Catalog, dispatch and enforcement.
