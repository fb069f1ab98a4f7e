use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use secrecy::{ExposeSecret, SecretString};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    sync::watch,
    time::sleep,
};

/// How much of a server's standard error is kept, in bytes.
const RING_BYTES: usize = 64 * 1024;
/// How long what a process wrote before its end may take to be read from a pipe that something else holds open.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// The end of what a server wrote to its standard error. It is always read: a full pipe would block the server.
#[derive(Clone, Default)]
pub struct StderrRing {
    bytes: Arc<Mutex<VecDeque<u8>>>,
    /// Values that the server was given and may print: they are never shown.
    secrets: Arc<[SecretString]>,
}

impl StderrRing {
    /// Starts reading `stderr` until it ends, or until its process has: what left it may hold the pipe open for ever.
    pub(crate) fn drain(
        mut stderr: impl AsyncRead + Send + Unpin + 'static,
        secrets: Vec<SecretString>,
        mut ended: watch::Receiver<Option<String>>,
    ) -> Self {
        let ring = Self {
            bytes: Arc::default(),
            secrets: secrets.into(),
        };
        let writer = ring.clone();
        tokio::spawn(async move {
            let over = async {
                let _ = ended.wait_for(Option::is_some).await;
                sleep(LAST_WORDS).await;
            };
            let read = async {
                let mut chunk = vec![0; 8 * 1024];
                while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
                    writer.push(chunk.get(..count).unwrap_or_default());
                }
            };
            tokio::select! {
                () = read => {}
                () = over => {}
            }
        });
        ring
    }

    /// What is kept, as text, without the values that the server's definition declares.
    #[must_use]
    pub fn text(&self) -> String {
        let bytes: Vec<u8> = self.lock().iter().copied().collect();
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        for secret in self.secrets.iter() {
            text = text.replace(secret.expose_secret(), "[redacted]");
        }
        text
    }

    /// The last line that says something, short and safe to print.
    #[must_use]
    pub fn last_line(&self) -> Option<String> {
        let text = self.text();
        let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
        Some(line.chars().take(200).flat_map(char::escape_debug).collect())
    }

    fn push(&self, bytes: &[u8]) {
        let mut ring = self.lock();
        ring.extend(bytes);
        let excess = ring.len().saturating_sub(RING_BYTES);
        ring.drain(..excess);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<u8>> {
        // No code panics while it holds the lock, and bytes are valid at every step.
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for StderrRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StderrRing({} bytes)", self.lock().len())
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

    /// What left its process holds its standard error open, for ever.
    #[tokio::test(start_paused = true)]
    async fn reading_ends_a_moment_after_the_process() {
        use tokio::io::AsyncWriteExt;

        let (mut held, stderr) = tokio::io::duplex(64);
        let (report, ended) = watch::channel(None);
        let ring = StderrRing::drain(stderr, Vec::new(), ended);
        report.send_replace(Some("exit status: 0".to_owned()));
        held.write_all(b"last words\n").await.unwrap();
        sleep(LAST_WORDS * 2).await;
        assert_eq!(ring.last_line().as_deref(), Some("last words"));
        assert!(
            held.write_all(b"to nobody\n").await.is_err(),
            "the reader is gone"
        );
    }

    #[test]
    fn what_the_server_was_given_is_not_shown_although_it_prints_it() {
        let secrets = vec![SecretString::from("ghp_canary")];
        let ring = StderrRing {
            bytes: Arc::default(),
            secrets: secrets.into(),
        };
        ring.push(b"bad token ghp_canary\n");
        assert_eq!(ring.last_line().as_deref(), Some("bad token [redacted]"));
        assert!(!format!("{ring:?}").contains("canary"));
    }
}
