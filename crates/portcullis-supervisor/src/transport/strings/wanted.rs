use std::{fmt, sync::Arc};

/// Whether anybody waits for a reply, as the connection says it that a string came on.
#[derive(Clone)]
pub(crate) struct Wanted(Arc<dyn Fn() -> bool + Send + Sync>);

impl Wanted {
    pub(crate) fn when(is_so: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_so))
    }

    pub(super) fn is_so(&self) -> bool {
        (self.0)()
    }
}

impl Default for Wanted {
    /// Always.
    fn default() -> Self {
        Self::when(|| true)
    }
}

impl fmt::Debug for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wanted({})", self.is_so())
    }
}
