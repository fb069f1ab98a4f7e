//! The thread that gives the long strings of one line to who takes them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::wanted::Wanted;
use crate::strings::{InMemory, SpooledString, StringSpool, StringWriter};

/// How long after nobody waits for anything any more what a line holds that stands still is given up.
const LOOK: Duration = Duration::from_secs(1);

/// How much of a string is kept where nobody takes it, for a message that is no call's result: enough for the
/// description of a tool.
const KEPT_BYTES: usize = 1 << 20;

/// What the thread is given, with the room that it takes until it is dealt with.
pub(super) type Given = (Piece, OwnedSemaphorePermit);

#[derive(Debug)]
pub(super) enum Piece {
    Begin(Begun),
    Chunk(Vec<u8>),
    End,
    Abandon,
    /// The thread has nothing more to do.
    Line,
}

/// Who waits for a string.
pub(super) type Done = oneshot::Sender<Box<dyn SpooledString>>;

/// A string that begins.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) done: Done,
    /// Whether anybody waited for a reply when it did.
    pub(super) is_wanted: bool,
    /// Whether its line has ended: then what becomes of it is known, and whoever wants it has it.
    pub(super) ended: Arc<AtomicBool>,
}

/// Starts the thread for one line. It ends once nothing more can come.
pub(super) fn start(spool: Option<Arc<dyn StringSpool>>, wanted: Wanted) -> mpsc::Sender<Given> {
    let (pieces, received) = mpsc::channel();
    let started = thread::Builder::new()
        .name("long strings".to_owned())
        .spawn(move || take(spool.as_deref(), &wanted, &received));
    if let Err(error) = started {
        // The channel is closed now, so that the strings' ends find out.
        tracing::warn!(%error, "no thread for a long string");
    }
    pieces
}

fn take(spool: Option<&dyn StringSpool>, wanted: &Wanted, pieces: &mpsc::Receiver<Given>) {
    let mut line = Line::default();
    loop {
        // The permit goes with its piece: what is being written still takes room.
        let given = pieces.recv_timeout(LOOK);
        if !wanted.is_so() && line.is_unfinished() {
            line.give_up();
        }
        match given {
            Ok((piece, _room)) => line.take(piece, spool),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    line.finish();
}

/// The strings of one line. What the spool has of them takes room that others need as well.
#[derive(Default)]
struct Line {
    open: Option<Taken<Box<dyn StringWriter>>>,
    /// Those that are whole. Who waits for them does so once the line has ended.
    whole: Vec<Taken<Box<dyn SpooledString>>>,
    ended: Arc<AtomicBool>,
}

struct Taken<S> {
    string: S,
    done: Done,
    by_spool: bool,
}

impl Line {
    fn take(&mut self, piece: Piece, spool: Option<&dyn StringSpool>) {
        match piece {
            Piece::Begin(Begun {
                done,
                is_wanted,
                ended,
            }) => {
                let spool = spool.filter(|_| is_wanted);
                self.open = Some(Taken {
                    string: spool.map_or_else(|| InMemory::of(KEPT_BYTES).begin(), StringSpool::begin),
                    done,
                    by_spool: spool.is_some(),
                });
                self.ended = ended;
            }
            Piece::Chunk(raw) => {
                if let Some(open) = &mut self.open {
                    open.string.write(&raw);
                }
            }
            Piece::End => {
                if let Some(Taken {
                    string,
                    done,
                    by_spool,
                }) = self.open.take()
                {
                    let string = string.finish();
                    self.whole.push(Taken {
                        string,
                        done,
                        by_spool,
                    });
                }
            }
            Piece::Abandon | Piece::Line => self.open = None,
        }
    }

    /// Asked after whether anybody waits: a reply is taken for one only when its line has ended.
    fn is_unfinished(&self) -> bool {
        !self.ended.load(Ordering::Acquire)
    }

    /// Drops what the spool has of it: nobody waits for a reply, so none of this can be one.
    fn give_up(&mut self) {
        self.open.take_if(|open| open.by_spool);
        self.whole.retain(|whole| !whole.by_spool);
    }

    fn finish(self) {
        for Taken { string, done, .. } in self.whole {
            // Where nobody wants it any more, it is dropped here.
            let _ = done.send(string);
        }
    }
}
