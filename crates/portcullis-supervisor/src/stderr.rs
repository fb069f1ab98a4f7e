use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::io::{AsyncRead, AsyncReadExt};

/// How much of a server's standard error is kept, in bytes.
const RING_BYTES: usize = 64 * 1024;

/// The end of what a server wrote to its standard error. It is always read: a full pipe would block the server.
#[derive(Debug, Clone, Default)]
pub struct StderrRing(Arc<Mutex<VecDeque<u8>>>);

impl StderrRing {
    /// Starts reading `stderr` until it ends.
    pub(crate) fn drain(mut stderr: impl AsyncRead + Send + Unpin + 'static) -> Self {
        let ring = Self::default();
        let writer = ring.clone();
        tokio::spawn(async move {
            let mut chunk = vec![0; 8 * 1024];
            while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
                writer.push(chunk.get(..count).unwrap_or_default());
            }
        });
        ring
    }

    /// What is kept, as text.
    #[must_use]
    pub fn text(&self) -> String {
        let bytes: Vec<u8> = self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The last line that says something, short and safe to print.
    #[must_use]
    pub fn last_line(&self) -> Option<String> {
        let text = self.text();
        let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
        Some(line.chars().take(200).flat_map(char::escape_debug).collect())
    }

    fn push(&self, bytes: &[u8]) {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ring.extend(bytes);
        let excess = ring.len().saturating_sub(RING_BYTES);
        ring.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_keeps_the_end_and_stays_bounded() {
        let ring = StderrRing::default();
        for _ in 0..40 {
            ring.push(&[b'x'; 4096]);
        }
        ring.push(b"\nlast words\n\n");
        assert_eq!(ring.text().len(), RING_BYTES);
        assert_eq!(ring.last_line().as_deref(), Some("last words"));
    }
}
