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
    kept: Arc<Mutex<Kept>>,
    /// Values that the server was given and may print: they are never shown.
    secrets: Arc<[SecretString]>,
}

/// The last bytes, and whether there were others before them.
#[derive(Default)]
struct Kept {
    bytes: VecDeque<u8>,
    is_cut: bool,
}

impl StderrRing {
    /// Starts reading `stderr` until it ends, or until its process has: what left it may hold the pipe open for ever.
    pub(crate) fn drain(
        mut stderr: impl AsyncRead + Send + Unpin + 'static,
        secrets: Vec<SecretString>,
        mut ended: watch::Receiver<Option<String>>,
    ) -> Self {
        let ring = Self {
            kept: Arc::default(),
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

    /// What is kept, as text, without the values that the server's definition declares: neither whole, nor what is left
    /// of one where the text was cut, nor the start of one that is just being written.
    #[must_use]
    pub fn text(&self) -> String {
        let (bytes, is_cut) = {
            let kept = self.lock();
            (kept.bytes.iter().copied().collect::<Vec<_>>(), kept.is_cut)
        };
        let text = self.without_secrets(&String::from_utf8_lossy(&bytes));
        let mut shown = text.as_str();
        if is_cut {
            // What a character left that was cut itself.
            shown = shown.trim_start_matches(char::REPLACEMENT_CHARACTER);
            let left = self.longest(|secret| rest_at_start(shown, secret));
            shown = shown.get(left..).unwrap_or_default();
        }
        let whole = shown.trim_end_matches(char::REPLACEMENT_CHARACTER);
        match self.without_begun(whole) {
            all if all == whole => shown.to_owned(),
            rest => rest.to_owned(),
        }
    }

    /// The start of a text, which ends in `…` where it was cut, without those values, the start of one before the cut
    /// included.
    pub(crate) fn excerpt_without_secrets(&self, excerpt: &str) -> String {
        let text = self.without_secrets(excerpt);
        match text.strip_suffix('…') {
            Some(cut) => format!("{}…", self.without_begun(cut)),
            None => text,
        }
    }

    /// `text` without the start of a value at its end.
    fn without_begun<'a>(&self, text: &'a str) -> &'a str {
        let begun = self.longest(|secret| start_at_end(text, secret));
        text.get(..text.len() - begun).unwrap_or_default()
    }

    /// `text` without the values that the server's definition declares.
    pub(crate) fn without_secrets(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in self.secrets.iter() {
            text = text.replace(secret.expose_secret(), "[redacted]");
        }
        text
    }

    fn longest(&self, of: impl Fn(&str) -> usize) -> usize {
        let all = self.secrets.iter().map(|secret| of(secret.expose_secret()));
        all.max().unwrap_or_default()
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
        let mut kept = self.lock();
        kept.bytes.extend(bytes);
        let excess = kept.bytes.len().saturating_sub(RING_BYTES);
        kept.bytes.drain(..excess);
        kept.is_cut |= excess > 0;
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // No code panics while it holds the lock, and bytes are valid at every step.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for StderrRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StderrRing({} bytes)", self.lock().bytes.len())
    }
}

/// How many bytes at the start of `text` are the end of `secret`, but not all of it.
fn rest_at_start(text: &str, secret: &str) -> usize {
    let rests = secret
        .char_indices()
        .skip(1)
        .filter_map(|(at, _)| secret.get(at..));
    let mut fitting = rests.filter(|rest| text.starts_with(rest));
    fitting.next().map_or(0, str::len)
}

/// How many bytes at the end of `text` are the start of `secret`, but not all of it. A few letters of it say nothing, and
/// stand everywhere.
fn start_at_end(text: &str, secret: &str) -> usize {
    const FEW: usize = 3;
    let starts = secret.char_indices().rev().filter_map(|(at, _)| secret.get(..at));
    let mut fitting = starts
        .take_while(|start| start.len() > FEW)
        .filter(|start| text.ends_with(start));
    fitting.next().map_or(0, str::len)
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
            kept: Arc::default(),
            secrets: secrets.into(),
        };
        ring.push(b"bad token ghp_canary\n");
        assert_eq!(ring.last_line().as_deref(), Some("bad token [redacted]"));
        assert!(!format!("{ring:?}").contains("canary"));
    }

    /// Where what is kept begins or ends is not for the server to choose, but it may try as often as it likes.
    #[test]
    fn no_part_of_what_the_server_was_given_is_left_at_the_edges() {
        for secret in ["ghp_canary", "abcabcabc", "pässwörd-ß", "line one\nline two"] {
            let ring = || StderrRing {
                kept: Arc::default(),
                secrets: vec![SecretString::from(secret)].into(),
            };
            for cut in 0..=secret.len() {
                let before = ring();
                before.push(secret.as_bytes());
                before.push(&vec![b'.'; RING_BYTES - cut]);
                let text = before.text();
                let shown = text.trim_end_matches('.');
                assert!(
                    shown.is_empty() || shown == "[redacted]",
                    "{secret} by {cut}: {shown}"
                );
                assert!(text.len() >= RING_BYTES - secret.len());

                let after = ring();
                after.push(b"said ");
                after.push(secret.as_bytes().get(..cut).unwrap());
                let text = after.text();
                let shown = text.strip_prefix("said ").unwrap();
                assert!(
                    shown.is_empty() || shown == "[redacted]" || cut <= 4,
                    "{secret} to {cut}: {shown}"
                );
            }
            // The start of another text may have been cut within one.
            for cut in 5..secret.len() {
                let start = String::from_utf8_lossy(secret.as_bytes().get(..cut).unwrap());
                let start = start.trim_end_matches(char::REPLACEMENT_CHARACTER);
                let shown = ring().excerpt_without_secrets(&format!("{secret} and {start}…"));
                assert_eq!(shown, "[redacted] and …", "{secret} to {cut}");
            }
            let whole = ring().excerpt_without_secrets(&format!("{secret}…"));
            assert_eq!(whole, "[redacted]…");
            let plain = ring();
            plain.push(b"nothing of it");
            assert_eq!(plain.text(), "nothing of it");
        }
    }
}
