//! A spool for tests, which count and hold up what goes there.

use std::{
    any::Any,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{SpooledString, StringSpool, StringWriter};

/// Keeps strings in memory, counts those that are there, and writes nothing while it is held up.
#[derive(Debug, Default, Clone)]
pub(crate) struct Shelf {
    pub(crate) there: Arc<AtomicUsize>,
    /// How many ever began.
    pub(crate) begun: Arc<AtomicUsize>,
    pub(crate) written: Arc<AtomicUsize>,
    pub(crate) held_up: Arc<(Mutex<bool>, Condvar)>,
    /// How many were put back into their messages.
    pub(crate) put_back: Arc<AtomicUsize>,
    /// How many servers were given a share.
    pub(crate) shares: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Kept {
    raw: Vec<u8>,
    there: Arc<AtomicUsize>,
    written: Arc<AtomicUsize>,
    held_up: Arc<(Mutex<bool>, Condvar)>,
    put_back: Arc<AtomicUsize>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.there.fetch_sub(1, Ordering::SeqCst);
    }
}

impl StringSpool for Shelf {
    fn begin(&self) -> Box<dyn StringWriter> {
        self.there.fetch_add(1, Ordering::SeqCst);
        self.begun.fetch_add(1, Ordering::SeqCst);
        Box::new(Kept {
            raw: Vec::new(),
            there: Arc::clone(&self.there),
            written: Arc::clone(&self.written),
            held_up: Arc::clone(&self.held_up),
            put_back: Arc::clone(&self.put_back),
        })
    }

    fn share(&self) -> Arc<dyn StringSpool> {
        self.shares.fetch_add(1, Ordering::SeqCst);
        Arc::new(self.clone())
    }
}

impl StringWriter for Kept {
    fn write(&mut self, raw: &[u8]) {
        let (held_up, changed) = &*self.held_up;
        drop(
            changed
                .wait_while(held_up.lock().unwrap(), |held_up| *held_up)
                .unwrap(),
        );
        self.raw.extend_from_slice(raw);
        self.written.fetch_add(raw.len(), Ordering::SeqCst);
    }

    fn finish(self: Box<Self>) -> Box<dyn SpooledString> {
        self
    }
}

impl SpooledString for Kept {
    fn put_back(&self, text: &mut Vec<u8>) -> Result<(), String> {
        text.extend_from_slice(&self.raw);
        self.put_back.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}
