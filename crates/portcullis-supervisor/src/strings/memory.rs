//! A spool for tests, which count and hold up what goes there.

use std::{
    any::Any,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    task::{spawn_blocking, yield_now},
    time::advance,
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
    reading: Arc<Reading>,
}

/// Whether strings may be read.
#[derive(Debug, Default)]
struct Reading {
    hangs: Mutex<bool>,
    changed: Condvar,
    began: Notify,
}

impl Reading {
    fn wait(&self) {
        let hangs = self.hangs.lock().unwrap();
        drop(self.changed.wait_while(hangs, |hangs| *hangs).unwrap());
    }
}

/// Reading hangs while this is held.
pub(crate) struct Hanging(Arc<Reading>);

impl Shelf {
    /// Lets whatever reads a string from now on hang. Paused time does not pass by itself meanwhile, since it would while
    /// threads are at work that it knows nothing of.
    pub(crate) fn hang(&self) -> Hanging {
        *self.reading.hangs.lock().unwrap() = true;
        let reading = Arc::clone(&self.reading);
        spawn_blocking(move || reading.wait());
        Hanging(Arc::clone(&self.reading))
    }
}

impl Hanging {
    /// Resolves once somebody has begun to read and has hung for `time`, and whoever waits for that has had its turn.
    pub(crate) async fn lasts(&self, time: Duration) {
        self.0.began.notified().await;
        advance(time).await;
        turns().await;
    }
}

/// Gives everybody whose time has come a turn.
pub(crate) async fn turns() {
    for _ in 0..1_000 {
        yield_now().await;
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        *self.0.hangs.lock().unwrap() = false;
        self.0.changed.notify_all();
    }
}

#[derive(Debug)]
struct Kept {
    raw: Vec<u8>,
    there: Arc<AtomicUsize>,
    written: Arc<AtomicUsize>,
    held_up: Arc<(Mutex<bool>, Condvar)>,
    put_back: Arc<AtomicUsize>,
    reading: Arc<Reading>,
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
            reading: Arc::clone(&self.reading),
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
        self.reading.began.notify_one();
        self.reading.wait();
        text.extend_from_slice(&self.raw);
        self.put_back.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}
