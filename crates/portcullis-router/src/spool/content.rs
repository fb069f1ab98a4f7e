//! Bytes on their way: in memory while they are few, then in a file of the store that is no blob yet.

use std::sync::Arc;

use portcullis_blobs::{BlobError, BlobRef, BlobStore, BlobWriter, Hash, Stored};

use super::{
    SpoolFault,
    places::{Place, Places},
};

/// How much stays in memory, in bytes.
const MEMORY_BYTES: usize = 192 << 10;
/// How much is gathered before it is written, in bytes: what a core's cache holds between decoding and hashing.
const BATCH_BYTES: usize = 128 << 10;
/// How much of the beginning is kept, in bytes: what telling a kind takes.
const HEAD_BYTES: usize = 8 << 10;

#[derive(Debug)]
pub(super) struct Content {
    store: Arc<dyn BlobStore>,
    files: Places,
    /// What is not in the file yet; all there is, where there is none.
    gathered: Vec<u8>,
    file: Option<File>,
    /// For its file, where it has one already.
    place: Option<Arc<Place>>,
    head: Vec<u8>,
}

#[derive(Debug)]
struct File {
    writer: Box<dyn BlobWriter>,
    place: Arc<Place>,
}

impl Content {
    pub(super) fn new(store: Arc<dyn BlobStore>, files: Places) -> Self {
        Self {
            store,
            files,
            gathered: Vec::new(),
            file: None,
            place: None,
            head: Vec::new(),
        }
    }

    /// An empty one of the same store.
    pub(super) fn another(&self) -> Self {
        Self::new(Arc::clone(&self.store), self.files.clone())
    }

    /// An empty one for the same string: for as long as both are there, they have one place.
    pub(super) fn successor(&self) -> Self {
        Self {
            place: self.file.as_ref().map(|file| Arc::clone(&file.place)),
            ..self.another()
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), SpoolFault> {
        self.append(|gathered| gathered.extend_from_slice(bytes))
    }

    /// Appends what `more` appends to the vector that it is given.
    pub(super) fn append<T>(&mut self, more: impl FnOnce(&mut Vec<u8>) -> T) -> Result<T, SpoolFault> {
        if self.gathered.capacity() == 0 {
            self.gathered.reserve(BATCH_BYTES);
        }
        let done = more(&mut self.gathered);
        let most = if self.file.is_some() {
            BATCH_BYTES
        } else {
            MEMORY_BYTES
        };
        if self.gathered.len() >= most {
            self.flush()?;
        }
        Ok(done)
    }

    /// All is written: from now on it is read, or becomes a blob.
    pub(super) fn settle(&mut self) -> Result<(), SpoolFault> {
        if self.file.is_some() {
            self.flush()?;
            self.gathered = Vec::new();
        }
        Ok(())
    }

    pub(super) fn size_bytes(&self) -> u64 {
        let written = self.file.as_ref().map_or(0, |file| file.writer.size_bytes());
        written.saturating_add(self.gathered.len() as u64)
    }

    pub(super) fn head(&self) -> &[u8] {
        if self.file.is_some() {
            &self.head
        } else {
            self.gathered.get(..HEAD_BYTES).unwrap_or(&self.gathered)
        }
    }

    /// Only once it is settled.
    pub(super) fn blob(&self) -> BlobRef {
        match &self.file {
            Some(file) => file.writer.blob(),
            None => BlobRef(Hash::of(&self.gathered)),
        }
    }

    /// Gives everything in pieces of `size` bytes, the last one of what is left.
    pub(super) fn pieces<E: From<SpoolFault>>(
        &self,
        size: usize,
        mut piece: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let written = self.file.as_ref().map_or(0, |file| file.writer.size_bytes());
        let mut buffer = vec![0; size];
        let mut filled = 0;
        let mut at = 0;
        while let Some(file) = &self.file
            && at < written
        {
            let room = buffer.get_mut(filled..).unwrap_or_default();
            let count = file.writer.read_at(at, room).map_err(SpoolFault::Store)?;
            if count == 0 {
                // Somebody cut the file short.
                return Err(SpoolFault::Store(BlobError::NotFound(file.writer.blob())).into());
            }
            at += count as u64;
            filled += count;
            if filled == size {
                piece(&buffer)?;
                filled = 0;
            }
        }
        let mut rest = self.gathered.as_slice();
        while filled + rest.len() >= size {
            let (now, later) = rest.split_at(size - filled);
            buffer.truncate(filled);
            buffer.extend_from_slice(now);
            piece(&buffer)?;
            filled = 0;
            rest = later;
        }
        buffer.truncate(filled);
        buffer.extend_from_slice(rest);
        if buffer.is_empty() { Ok(()) } else { piece(&buffer) }
    }

    pub(super) fn publish(self) -> Result<Stored, SpoolFault> {
        let Self {
            store,
            gathered,
            file,
            ..
        } = self;
        let mut writer = match file {
            Some(file) => file.writer,
            None => store.writer()?,
        };
        writer.write(&gathered)?;
        Ok(writer.publish()?)
    }

    fn flush(&mut self) -> Result<(), SpoolFault> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let place = match self.place.take() {
                    Some(place) => place,
                    None => Arc::new(self.files.take()?),
                };
                let writer = self.store.writer()?;
                self.head = self.gathered.get(..HEAD_BYTES).unwrap_or(&self.gathered).to_vec();
                none.insert(File { writer, place })
            }
        };
        file.writer.write(&self.gathered)?;
        self.gathered.clear();
        Ok(())
    }
}
