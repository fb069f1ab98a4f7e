//! Standard error that holds nobody up. A client that has the program as its server may read nothing of it: a pipe that is full
//! stops whoever writes, and servers choose in part how much is said.

use std::{
    io::{self, Write},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

/// How much may wait to be written, in bytes; what comes on top of it is left out, and that is said.
const MOST_WAITING: usize = 4 << 20;
/// How long the end of the program waits for what is not written yet.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Set once all that is said goes out on a thread of its own.
static DETACHED: OnceLock<Detached> = OnceLock::new();

/// From now on nobody who says something waits until it is read.
pub(crate) fn detach() {
    if DETACHED.get().is_none()
        && let Ok(detached) = Detached::to(io::stderr())
    {
        let _ = DETACHED.set(detached);
    }
}

/// Writes `text`, or has it written.
pub(crate) fn write(text: &str) {
    match DETACHED.get() {
        Some(detached) => detached.write(text),
        // Whoever cannot read it is told nothing more.
        None => drop(io::stderr().lock().write_all(text.as_bytes())),
    }
}

/// Waits until what was said is written, for a moment at most.
pub(crate) fn finish() {
    if let Some(detached) = DETACHED.get() {
        detached.finish(LAST_WORDS);
    }
}

/// Where the log goes: each event is one call of `write`.
pub(crate) struct Log;

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        write(&String::from_utf8_lossy(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A writer on a thread of its own.
struct Detached {
    tell: Sender<Said>,
    waiting: Arc<Waiting>,
}

#[derive(Default)]
struct Waiting {
    bytes: AtomicUsize,
    /// How many texts were left out since this was last said.
    left_out: AtomicUsize,
}

enum Said {
    Text(String),
    /// Dropped once all before it is written.
    End(Sender<()>),
}

impl Detached {
    fn to(sink: impl Write + Send + 'static) -> io::Result<Self> {
        let (tell, said) = mpsc::channel();
        let waiting = Arc::<Waiting>::default();
        let shared = Arc::clone(&waiting);
        thread::Builder::new()
            .name("portcullis-stderr".to_owned())
            .spawn(move || write_all(&said, &shared, sink))?;
        Ok(Self { tell, waiting })
    }

    fn write(&self, text: &str) {
        let before = self.waiting.bytes.fetch_add(text.len(), Ordering::Relaxed);
        if before.saturating_add(text.len()) > MOST_WAITING {
            self.waiting.bytes.fetch_sub(text.len(), Ordering::Relaxed);
            self.waiting.left_out.fetch_add(1, Ordering::Relaxed);
        } else {
            let _ = self.tell.send(Said::Text(text.to_owned()));
        }
    }

    /// Whether all was written in time.
    fn finish(&self, within: Duration) -> bool {
        let (end, ended) = mpsc::channel();
        let _ = self.tell.send(Said::End(end));
        ended.recv_timeout(within) == Err(RecvTimeoutError::Disconnected)
    }
}

fn write_all(said: &Receiver<Said>, waiting: &Waiting, mut sink: impl Write) {
    for said in said.iter() {
        let text = match said {
            Said::Text(text) => text,
            Said::End(ended) => {
                drop(ended);
                continue;
            }
        };
        let _ = sink.write_all(text.as_bytes());
        waiting.bytes.fetch_sub(text.len(), Ordering::Relaxed);
        let left_out = waiting.left_out.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            let _ = writeln!(
                sink,
                "note: {left_out} messages were left out here, since nobody read those before them"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Takes nothing before it is released.
    struct Full {
        released: Receiver<()>,
        took: Arc<Mutex<String>>,
    }

    impl Write for Full {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let _ = self.released.recv();
            self.took.lock().unwrap().push_str(str::from_utf8(text).unwrap());
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_says_something_does_not_wait_for_a_reader_and_what_is_left_out_is_counted() {
        let (release, released) = mpsc::channel();
        let took = Arc::<Mutex<String>>::default();
        let sink = Full {
            released,
            took: Arc::clone(&took),
        };
        let detached = Detached::to(sink).unwrap();
        let line = format!("{}\n", "x".repeat((1 << 10) - 1));
        let fits = MOST_WAITING / line.len();
        (0..fits + 7).for_each(|_| detached.write(&line));
        assert!(!detached.finish(Duration::from_millis(1)), "nobody has read it");
        drop(release);
        assert!(detached.finish(PATIENCE));
        let took_so_far = std::mem::take(&mut *took.lock().unwrap());
        let (lines, notes): (Vec<_>, Vec<_>) = took_so_far.lines().partition(|line| line.starts_with('x'));
        assert_eq!(lines.len(), fits);
        let note = "note: 7 messages were left out here, since nobody read those before them";
        assert_eq!(notes, [note]);
        // From then on there is room again.
        detached.write("more\n");
        assert!(detached.finish(PATIENCE));
        assert_eq!(*took.lock().unwrap(), "more\n");
    }
}
