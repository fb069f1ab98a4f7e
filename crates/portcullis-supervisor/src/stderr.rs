use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::FutureExt;
use secrecy::{ExposeSecret, SecretString};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    sync::watch,
    time::sleep,
};

/// How much of a server's standard error is kept, in bytes.
const RING_BYTES: usize = 64 * 1024;
/// How much is read of it at once, and of how many such pieces until the next [`PAUSE`].
const PIECE_BYTES: usize = 8 * 1024;
const PIECES: usize = 8;
/// How long what is written gathers before it is read: nobody waits for it, and each time the reader wakes takes from what
/// other servers' calls have. A pipe takes 64 KiB meanwhile.
const PAUSE: Duration = Duration::from_millis(1);
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
            tokio::select! {
                () = writer.read(&mut stderr) => {}
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

    /// Reads to the end.
    async fn read(&self, stderr: &mut (impl AsyncRead + Unpin)) {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let (mut pieces, mut next) = (1, Some(stderr.read(&mut piece).await));
            while let Some(read) = next {
                let Ok(count @ 1..) = read else { return };
                self.push(piece.get(..count).unwrap_or_default());
                next = match pieces < PIECES {
                    true => stderr.read(&mut piece).now_or_never(),
                    false => None,
                };
                pieces += 1;
            }
            sleep(PAUSE).await;
        }
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
    use std::{
        io,
        pin::Pin,
        sync::atomic::{AtomicUsize, Ordering},
        task::{Context, Poll},
    };

    use tokio::io::ReadBuf;

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

    /// What can always be read, and how often it was.
    struct Flood(Arc<AtomicUsize>);

    impl AsyncRead for Flood {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            // It ends for who reads it without a pause, so that a test of that fails.
            if self.0.fetch_add(1, Ordering::Relaxed) < 100_000 {
                buffer.put_slice(b"a line that says nothing\n");
            }
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_read_now_and_then_and_an_end_at_once() {
        let reads = Arc::<AtomicUsize>::default();
        let (_report, ended) = watch::channel(None);
        let ring = StderrRing::drain(Flood(Arc::clone(&reads)), Vec::new(), ended.clone());
        sleep(PAUSE * 100).await;
        let count = reads.load(Ordering::Relaxed);
        assert!((PIECES..=PIECES * 101).contains(&count), "{count}");
        assert_eq!(ring.last_line().as_deref(), Some("a line that says nothing"));

        let ring = StderrRing::drain(&b"the end\n"[..], Vec::new(), ended);
        sleep(PAUSE).await;
        assert_eq!(ring.last_line().as_deref(), Some("the end"));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_between_two_pauses_is_lost() {
        let lines: String = (10_000..40_000).map(|number| format!("{number}\n")).collect();
        let end = lines.split_at(lines.len() - RING_BYTES).1.to_owned();
        // In pieces as a pipe gives them, full ones and others.
        for piece in [PIECE_BYTES, PIECE_BYTES * PIECES, 1_000] {
            let (mut writer, stderr) = tokio::io::duplex(piece);
            let (_report, ended) = watch::channel(None);
            let ring = StderrRing::drain(stderr, Vec::new(), ended);
            tokio::io::AsyncWriteExt::write_all(&mut writer, lines.as_bytes())
                .await
                .unwrap();
            sleep(PAUSE * 2).await;
            assert!(ring.text() == end, "in pieces of {piece}");
        }
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
