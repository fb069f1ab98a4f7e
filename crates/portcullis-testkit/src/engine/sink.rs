use std::{
    io::Write,
    sync::{Mutex, PoisonError},
};

/// The server's output, which many threads share and a script can close.
pub(super) struct Sink(Mutex<Option<Box<dyn Write + Send>>>);

impl Sink {
    pub(super) fn new(output: impl Write + Send + 'static) -> Self {
        Self(Mutex::new(Some(Box::new(output))))
    }

    /// Writes a line and its newline, whole.
    pub(super) fn line(&self, text: impl Into<Vec<u8>>) {
        let mut bytes = text.into();
        bytes.push(b'\n');
        self.bytes(&bytes);
    }

    /// Writes bytes as they are. Where nobody reads any more, the output is closed and what comes is lost.
    pub(super) fn bytes(&self, bytes: &[u8]) {
        let mut output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = output.as_mut()
            && open.write_all(bytes).and_then(|()| open.flush()).is_err()
        {
            *output = None;
        }
    }

    /// Closes the output; what is written from now on is lost.
    pub(super) fn close(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
