use std::{fmt, sync::Arc};

use bytes::Bytes;
use portcullis_types::{BlobRef, Hash};

use super::Session;
use crate::{BlobError, BlobWriter, Stored, usage::Reservation};

/// Content that is being written.
pub(super) struct MemWriter {
    session: Arc<Session>,
    room: Reservation,
    content: Vec<u8>,
    /// A write failed, so that some of it is missing.
    is_broken: bool,
}

impl MemWriter {
    pub(super) fn of(session: &Arc<Session>) -> Self {
        Self {
            session: Arc::clone(session),
            room: session.inner.usage.reservation(),
            content: Vec::new(),
            is_broken: false,
        }
    }
}

impl BlobWriter for MemWriter {
    fn write(&mut self, piece: &[u8]) -> Result<(), BlobError> {
        if std::mem::replace(&mut self.is_broken, true) {
            return Err(BlobError::broken_writer());
        }
        self.room.grow(piece.len() as u64)?;
        self.content.extend_from_slice(piece);
        self.is_broken = false;
        Ok(())
    }

    fn size_bytes(&self) -> u64 {
        self.content.len() as u64
    }

    fn blob(&self) -> BlobRef {
        BlobRef(Hash::of(&self.content))
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<usize, BlobError> {
        let rest = usize::try_from(at).ok().and_then(|at| self.content.get(at..));
        let mut rest = rest.unwrap_or_default();
        // Reading from memory does not fail.
        Ok(std::io::Read::read(&mut rest, buffer).unwrap_or(0))
    }

    fn publish(self: Box<Self>) -> Result<Stored, BlobError> {
        let Self {
            session,
            room,
            content,
            is_broken,
        } = *self;
        if is_broken {
            return Err(BlobError::broken_writer());
        }
        session
            .inner
            .insert(session.number, as_it_is(content), Some(room))
    }
}

impl fmt::Debug for MemWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemWriter")
            .field("size_bytes", &self.content.len())
            .finish_non_exhaustive()
    }
}

/// What may have grown piece by piece, without the room for as much again that it may have.
pub(super) fn as_it_is(mut content: Vec<u8>) -> Bytes {
    content.shrink_to_fit();
    content.into()
}
