//! How often a pipe is read whose server talks unasked.
//!
//! Each read costs a wake-up, however little it brings: a server that prints a line at a time as fast as it can costs the
//! hub, and so its other servers, more than all of their calls. Read a little later, its lines come together; and once
//! the pipe is full, the server waits. Not so over HTTP, where what comes is not gathered: each piece of a body is a read
//! of its own, however late it is read.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Sleep, sleep};

/// So many reads in a row without a reply are done at once: log lines before a reply, progress, a burst of changes.
const FREE_READS: u32 = 16;
/// How long each later one waits.
const PAUSE: Duration = Duration::from_millis(2);
/// A read that ends no line may be part of a long reply, unless it is smaller than this.
const SMALL_BYTES: usize = 1_024;

/// Tells when a pipe may be read again. A reply is never waited for: the pause is over before a server answers what it
/// was asked after it, or the server has been talking until then.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Reads without a reply since the last one.
    unasked: u32,
    is_due: bool,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Pace {
    /// A read brought so many bytes; `ends_line` says that the end of a line was among them.
    pub(crate) fn read(&mut self, size_bytes: usize, ends_line: bool) {
        let counts = ends_line || size_bytes < SMALL_BYTES;
        self.unasked = self.unasked.saturating_add(u32::from(counts));
        self.is_due = counts && self.unasked > FREE_READS;
    }

    /// What was read last had a reply in it that was waited for.
    pub(crate) fn replied(&mut self) {
        // No pause lasts: this was read after it.
        self.unasked = 0;
        self.is_due = false;
    }

    /// Ready when the next read may be done.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self.is_due {
            true => self.poll_pause(context),
            false => Poll::Ready(()),
        }
    }

    /// Apart from the rest, so that replies do not pay for what floods need.
    #[cold]
    fn poll_pause(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(PAUSE)));
        ready!(pause.as_mut().poll(context));
        self.pause = None;
        self.is_due = false;
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::Instant;

    use super::*;

    async fn wait(pace: &mut Pace) {
        poll_fn(|context| pace.poll(context)).await;
    }

    /// How long so many reads take, each of which brings `size_bytes`.
    async fn reads(pace: &mut Pace, count: u32, size_bytes: usize, ends_line: bool) -> Duration {
        let began = Instant::now();
        for _ in 0..count {
            wait(pace).await;
            pace.read(size_bytes, ends_line);
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn who_talks_on_and_on_is_read_less_often() {
        for (size_bytes, ends_line) in [(60, true), (64 * 1_024, true), (1, false)] {
            let mut pace = Pace::default();
            let none = Duration::ZERO;
            assert_eq!(
                reads(&mut pace, FREE_READS + 1, size_bytes, ends_line).await,
                none
            );
            assert_eq!(reads(&mut pace, 100, size_bytes, ends_line).await, PAUSE * 100);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn neither_who_answers_nor_a_long_reply_waits() {
        let mut pace = Pace::default();
        for _ in 0..1_000 {
            assert_eq!(reads(&mut pace, FREE_READS, 60, true).await, Duration::ZERO);
            pace.replied();
        }
        assert_eq!(reads(&mut pace, 10_000, 4_096, false).await, Duration::ZERO);
        // Nor one after much else.
        reads(&mut pace, FREE_READS * 2, 60, true).await;
        assert_eq!(reads(&mut pace, 10_000, 4_096, false).await, PAUSE);
    }

    /// The pause runs from the read on, not from when there is something to read again.
    #[tokio::test(start_paused = true)]
    async fn who_was_silent_meanwhile_is_read_at_once() {
        let mut pace = Pace::default();
        reads(&mut pace, FREE_READS * 2, 60, true).await;
        wait(&mut pace).await;
        tokio::time::advance(PAUSE * 10).await;
        let began = Instant::now();
        wait(&mut pace).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
