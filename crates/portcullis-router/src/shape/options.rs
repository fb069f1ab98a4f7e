use serde::{Deserialize, Serialize};

/// How results are shaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShapeOptions {
    /// The largest reply that is handed on, in bytes of its JSON after binary content was replaced; 64 KiB. What
    /// stands in for a larger one takes some 600 bytes, whatever this says.
    pub max_reply_bytes: usize,
    /// What becomes of a larger one.
    pub oversize: Oversize,
    /// From which size, in bytes of its text, a data URL in text, or base64 in structured content, goes to the
    /// store; 4 KiB.
    pub data_url_min_bytes: usize,
}

impl Default for ShapeOptions {
    fn default() -> Self {
        Self {
            max_reply_bytes: 64 << 10,
            oversize: Oversize::Spill,
            data_url_min_bytes: 4 << 10,
        }
    }
}

/// What becomes of a reply above the limit. It is never cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Oversize {
    /// It is stored whole, and a note with its reference takes its place.
    #[default]
    Spill,
    /// The call fails and says so.
    Reject,
}
