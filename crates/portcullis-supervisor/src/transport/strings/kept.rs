use std::{any::Any, mem};

use crate::strings::{SpooledString, StringWriter};

/// How much of a string is kept where nobody takes it: enough for the description of a tool.
const KEPT_BYTES: usize = 1 << 20;

/// A string that nobody takes, kept up to a size for messages that are no call's result.
#[derive(Debug, Default)]
pub(super) struct Kept {
    raw: Vec<u8>,
    dropped_bytes: usize,
}

impl StringWriter for Kept {
    fn write(&mut self, raw: &[u8]) {
        if self.dropped_bytes == 0 && self.raw.len() + raw.len() <= KEPT_BYTES {
            self.raw.extend_from_slice(raw);
        } else {
            self.dropped_bytes += mem::take(&mut self.raw).len() + raw.len();
        }
    }

    fn finish(self: Box<Self>) -> Box<dyn SpooledString> {
        self
    }
}

impl SpooledString for Kept {
    fn put_back(&self, text: &mut Vec<u8>) -> Result<(), String> {
        if self.dropped_bytes > 0 {
            let size = self.dropped_bytes + self.raw.len();
            return Err(format!(
                "a string of {size} bytes stands in it, above the limit of {KEPT_BYTES} without a store for it"
            ));
        }
        text.extend_from_slice(&self.raw);
        Ok(())
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its end alone is of no use, and would be kept for as long as the string does not end.
    #[test]
    fn what_is_too_long_is_not_kept_again() {
        let mut kept = Kept::default();
        for piece in [KEPT_BYTES, 1, 10] {
            kept.write(&vec![b'x'; piece]);
        }
        assert!(kept.raw.is_empty());
        let refused = kept.put_back(&mut Vec::new()).unwrap_err();
        assert!(
            refused.contains(&format!("of {} bytes", KEPT_BYTES + 11)),
            "{refused}"
        );
    }
}
