//! Reading what is in memory where the caller runs: the way to a thread that may block, and back, takes longer than reading
//! a small blob.
//!
//! The caller's thread is one that runs other tasks, too, so nothing here waits for a disk or a lock. What takes longer than a
//! moment goes on where it may, and so does everything that is not as it should be: what is wrong is told there.

use std::{cell::Cell, time::Duration};

use bytes::Bytes;
use portcullis_types::{BlobRef, Hash};
use tokio::time::Instant;

use super::{
    folder::{is_file, is_folder, is_own, is_private, others_may_write, size_bytes},
    hash::HELPED_BYTES,
    layout,
    shelf::{Shelf, fan_out},
    whole::{Wait, Whole, fill},
};

/// The largest blob that may be read in time: larger ones are not begun.
const MOST_BYTES: u64 = 1 << 20;
/// How long is read and hashed here at most, but for the part that is begun then: about what one thread takes for a MiB. Two
/// take half of that, where each has a processor.
const TIME: Duration = Duration::from_micros(250);

thread_local! {
    /// Until when this thread is for other work.
    pub(super) static TAKEN_UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// A blob that is at hand.
pub(crate) enum AtHand {
    Whole(Bytes),
    /// It took too long.
    Begun(Begun),
}

/// A blob that is being read.
pub(crate) struct Begun {
    blob: BlobRef,
    whole: Whole,
}

impl Shelf {
    /// Reads `blob` on this thread, where all of it is in memory and nothing else is to be done or told.
    pub(crate) fn at_hand(&self, blob: BlobRef) -> Option<AtHand> {
        if !self.tells_what_is_at_hand {
            return None;
        }
        in_turn(|begun| self.read_by(begun + TIME, blob))
    }

    pub(super) fn read_by(&self, deadline: Instant, blob: BlobRef) -> Option<AtHand> {
        let shard = format!("{}/{}", layout::BLOBS, fan_out(blob));
        let (file, stat) = self.root.file_at_hand(&format!("{shard}/{}", blob.0)).ok()?;
        let size = size_bytes(&stat);
        let most = self.usage.limits().max_blob_bytes.min(MOST_BYTES);
        if !is_file(&stat) || !is_private(&stat) || size > most {
            return None;
        }
        // As where they are opened.
        for folder in [layout::BLOBS, &shard] {
            let stat = self.root.stat(folder).ok()??;
            if !is_folder(&stat) || !is_own(&stat) || others_may_write(&stat) {
                return None;
            }
        }
        if size >= HELPED_BYTES as u64 {
            let whole = Whole::begin(file, size, Wait::Never, &self.buffers, &self.helpers);
            return match whole.finish_by(deadline) {
                Ok(read) => proved(blob, read.ok()?).map(AtHand::Whole),
                Err(whole) => Some(AtHand::Begun(Begun { blob, whole })),
            };
        }
        let mut content = vec![0; usize::try_from(size).ok()?];
        fill(&file, 0, &mut content, Wait::Never).ok()?;
        let hash = Hash::of(&content);
        proved(blob, (content.into(), hash)).map(AtHand::Whole)
    }
}

impl Begun {
    /// Reads the rest; `None` where some of it is not in memory after all, or it is not what it should be.
    pub(crate) fn finish(self) -> Option<Bytes> {
        proved(self.blob, self.whole.finish().ok()?)
    }
}

/// What `work` gives, which is told when it begins. For as long as it took nothing else is done here by this thread: else who
/// asks for many at once would have it for itself.
fn in_turn<T>(work: impl FnOnce(Instant) -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    if TAKEN_UNTIL.get().is_some_and(|until| begun < until) {
        return None;
    }
    let done = work(begun);
    let ended = Instant::now();
    TAKEN_UNTIL.set(Some(ended + (ended - begun)));
    done
}

fn proved(blob: BlobRef, (content, hash): (Bytes, Hash)) -> Option<Bytes> {
    (hash == blob.0).then_some(content)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_thread_has_as_long_for_other_work_as_this_took() {
        const TOOK: Duration = Duration::from_millis(3);
        let works_for = |took| {
            in_turn(|_| {
                // The clock is put forward when this is looked at first.
                let _ = advance(took).now_or_never();
                Some(())
            })
            .is_some()
        };
        assert!(works_for(TOOK));
        assert!(!works_for(TOOK));
        advance(TOOK - Duration::from_millis(1)).await;
        assert!(!works_for(TOOK));
        advance(Duration::from_millis(1)).await;
        assert!(works_for(Duration::ZERO));
        assert!(works_for(TOOK));
    }
}
