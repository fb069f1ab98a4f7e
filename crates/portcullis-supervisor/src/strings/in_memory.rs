//! Long strings for who has no store, and those that are not for it: kept in memory, up to a limit for all of one spool
//! together.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{SpooledString, StringSpool, StringWriter};

/// The most that all strings of one spool take at a time, in bytes: what a line may have.
const ROOM_BYTES: usize = 64 << 20;

/// Keeps long strings in memory until their results are whole again. A string for which there is no room fails the
/// result that it stands in, and no other.
#[derive(Debug, Clone)]
pub(crate) struct InMemory {
    room: Arc<AtomicUsize>,
    most: usize,
}

#[derive(Debug)]
struct Kept {
    raw: Vec<u8>,
    /// Its size, also where it was given up.
    size: usize,
    given_up: bool,
    spool: InMemory,
}

impl InMemory {
    /// One whose strings take no more than `most` bytes at a time.
    pub(crate) fn of(most: usize) -> Self {
        let room = Arc::new(AtomicUsize::new(most));
        Self { room, most }
    }

    /// Takes `count` bytes of the room, or none.
    fn take(&self, count: usize) -> bool {
        let taken = |room: usize| room.checked_sub(count);
        self.room
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, taken)
            .is_ok()
    }

    fn give_back(&self, count: usize) {
        self.room.fetch_add(count, Ordering::AcqRel);
    }
}

impl Default for InMemory {
    fn default() -> Self {
        Self::of(ROOM_BYTES)
    }
}

impl StringSpool for InMemory {
    fn begin(&self) -> Box<dyn StringWriter> {
        Box::new(Kept {
            raw: Vec::new(),
            size: 0,
            given_up: false,
            spool: self.clone(),
        })
    }

    /// There is one server alone.
    fn share(&self) -> Arc<dyn StringSpool> {
        Arc::new(self.clone())
    }
}

impl Kept {
    fn give_up(&mut self) {
        self.given_up = true;
        self.spool.give_back(self.raw.len());
        self.raw = Vec::new();
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.spool.give_back(self.raw.len());
    }
}

impl StringWriter for Kept {
    fn write(&mut self, raw: &[u8]) {
        self.size = self.size.saturating_add(raw.len());
        if self.given_up {
            return;
        }
        if self.spool.take(raw.len()) {
            self.raw.extend_from_slice(raw);
        } else {
            self.give_up();
        }
    }

    fn finish(self: Box<Self>) -> Box<dyn SpooledString> {
        self
    }
}

impl SpooledString for Kept {
    fn put_back(&self, text: &mut Vec<u8>) -> Result<(), String> {
        if self.given_up {
            let (size, most) = (self.size, self.spool.most);
            let bound = match size > most {
                true => format!("it may have {most} bytes where no store takes it"),
                false => format!("such strings may have {most} bytes together where no store takes them"),
            };
            return Err(format!("a string of {size} bytes stands in it, and {bound}"));
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

    fn spooled(spool: &InMemory, pieces: &[&str]) -> Box<dyn SpooledString> {
        let mut writer = spool.begin();
        for piece in pieces {
            writer.write(piece.as_bytes());
        }
        writer.finish()
    }

    fn text(string: &dyn SpooledString) -> Result<String, String> {
        let mut text = Vec::new();
        string.put_back(&mut text)?;
        Ok(String::from_utf8(text).unwrap())
    }

    #[test]
    fn strings_share_their_room_and_give_it_back() {
        let spool = InMemory::of(10);
        let first = spooled(&spool, &["abc", "def"]);
        let second = spooled(&spool, &["gh", "ijklm", "n"]);
        assert_eq!(text(first.as_ref()).unwrap(), "abcdef");
        assert_eq!(
            text(second.as_ref()).unwrap_err(),
            "a string of 8 bytes stands in it, and such strings may have 10 bytes together where no store takes them"
        );
        drop(first);
        let third = spooled(&spool, &["0123456789"]);
        assert_eq!(text(third.as_ref()).unwrap(), "0123456789");
        drop((second, third));
        // One that alone is too long is told of its own bound.
        let long = spooled(&spool, &["0123456789", "0"]);
        assert_eq!(
            text(long.as_ref()).unwrap_err(),
            "a string of 11 bytes stands in it, and it may have 10 bytes where no store takes it"
        );
        // One that was broken off has not taken its room along.
        let mut broken = spool.begin();
        broken.write(b"01234567");
        drop(broken);
        assert_eq!(spool.room.load(Ordering::Acquire), 10);
    }
}
