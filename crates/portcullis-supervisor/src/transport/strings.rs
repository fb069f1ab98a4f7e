//! Long strings on their way from the pipe to who takes them: a thread of its own for each line that has some.

mod thread;
mod wanted;

use std::{
    collections::VecDeque,
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
};

use portcullis_wire::{LongStrings, marker_tag};
use tokio::sync::{Semaphore, oneshot};

use crate::strings::{LongString, StringSpool};
use thread::{Begun, Given, Piece, start};
pub(crate) use wanted::Wanted;

/// How much may be on its way to the thread, in bytes. Beyond it the pipe is not read.
const ROOM_BYTES: usize = 512 << 10;

/// The strings of one connection.
#[derive(Debug)]
pub(crate) struct Strings {
    spool: Option<Arc<dyn StringSpool>>,
    /// What the thread has not been given yet.
    // INVARIANT: no more than one read of the pipe gave, and its markers.
    queue: VecDeque<Piece>,
    /// The string at hand: how much of it has come.
    open: Option<(LongString, u64)>,
    /// The strings of the line at hand.
    line: Vec<LongString>,
    /// The strings of the lines whose frames come out of the decoder now.
    ended: Vec<LongString>,
    thread: Option<mpsc::Sender<Given>>,
    room: Arc<Semaphore>,
    /// Whether anybody waits for a reply. What comes while nobody does is not for the spool: it would take room from others
    /// for as long as its server does not end the line.
    wanted: Wanted,
    /// Whether the line at hand has ended.
    over: Arc<AtomicBool>,
    /// How many began.
    begun: usize,
}

impl Strings {
    pub(crate) fn new(spool: Option<Arc<dyn StringSpool>>) -> Self {
        Self::sharing(spool, Self::room())
    }

    /// The same, of a connection that has several streams of messages and one [`room`](Self::room) for all of them.
    pub(crate) fn sharing(spool: Option<Arc<dyn StringSpool>>, room: Arc<Semaphore>) -> Self {
        Self {
            spool,
            queue: VecDeque::new(),
            open: None,
            line: Vec::new(),
            ended: Vec::new(),
            thread: None,
            room,
            wanted: Wanted::default(),
            over: Arc::default(),
            begun: 0,
        }
    }

    /// The same, for who waits only now and then.
    pub(crate) fn wanted(mut self, wanted: Wanted) -> Self {
        self.wanted = wanted;
        self
    }

    /// How many began since this was asked last.
    pub(crate) fn begun(&mut self) -> usize {
        mem::take(&mut self.begun)
    }

    /// What may be on its way to the threads of one connection.
    pub(crate) fn room() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(ROOM_BYTES))
    }

    /// Whether somebody takes them.
    pub(crate) fn are_taken(&self) -> bool {
        self.spool.is_some()
    }

    /// Whether none of the frames that come out now can hold a marker.
    pub(crate) fn are_none(&self) -> bool {
        self.ended.is_empty()
    }

    /// The strings whose markers stand in `json`.
    pub(crate) fn claim(&mut self, json: &str) -> Vec<LongString> {
        let mut claimed = Vec::new();
        if self.are_none() {
            return claimed;
        }
        // A marker stands between quotes, and holds none.
        for text in json.split('"') {
            let Some(tag) = marker_tag(text) else { continue };
            if let Some(at) = self.ended.iter().position(|string| string.tag == tag) {
                claimed.push(self.ended.swap_remove(at));
            }
        }
        claimed
    }

    /// All frames have come out: what nobody claimed is not wanted.
    pub(crate) fn forget(&mut self) {
        self.ended.clear();
    }

    /// Whether there is something to hand over.
    pub(crate) fn are_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Hands all that waits to the thread, as that has room for it. Cancel safe.
    pub(crate) async fn hand_over(&mut self) {
        while let Some(piece) = self.queue.front() {
            let room = match piece {
                Piece::Chunk(raw) => raw.len().clamp(1, ROOM_BYTES),
                _ => 1,
            };
            let room = u32::try_from(room).unwrap_or(1);
            // The semaphore is never closed.
            let Ok(permit) = Arc::clone(&self.room).acquire_many_owned(room).await else {
                return self.queue.clear();
            };
            let Some(piece) = self.queue.pop_front() else {
                return;
            };
            if matches!(piece, Piece::Line) {
                self.thread = None;
                continue;
            }
            let (spool, wanted) = (&self.spool, &self.wanted);
            let thread = self
                .thread
                .get_or_insert_with(|| start(spool.clone(), wanted.clone()));
            // Where the thread came to grief, its strings' ends find out.
            let _ = thread.send((piece, permit));
        }
    }
}

impl LongStrings for Strings {
    fn begin(&mut self) -> u128 {
        let tag = rand::random();
        let (done, spooled) = oneshot::channel();
        self.queue.push_back(Piece::Begin(Begun {
            done,
            is_wanted: self.wanted.is_so(),
            ended: Arc::clone(&self.over),
        }));
        let string = LongString {
            tag,
            size_bytes: 0,
            spooled,
        };
        self.open = Some((string, 0));
        self.begun = self.begun.saturating_add(1);
        tag
    }

    fn chunk(&mut self, raw: &[u8]) {
        if let Some((_, size_bytes)) = &mut self.open {
            *size_bytes += raw.len() as u64;
        }
        self.queue.push_back(Piece::Chunk(raw.to_vec()));
    }

    fn end(&mut self) {
        self.queue.push_back(Piece::End);
        if let Some((string, size_bytes)) = self.open.take() {
            self.line.push(LongString { size_bytes, ..string });
        }
    }

    fn abandon(&mut self) {
        self.queue.push_back(Piece::Abandon);
        self.open = None;
    }

    fn line(&mut self) {
        self.queue.push_back(Piece::Line);
        // Before anybody is given what the line holds, and so no longer waits.
        mem::take(&mut self.over).store(true, Ordering::Release);
        self.ended.append(&mut self.line);
    }
}
