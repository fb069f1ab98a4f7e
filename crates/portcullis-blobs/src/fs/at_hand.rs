//! Reading what is in memory where the caller runs: the way to a thread that may block, and back, takes longer than reading
//! a small blob.
//!
//! The caller's thread is one that runs other tasks, too. So nothing that is on the disk alone is waited for, what takes longer
//! than a moment is given up, and so is everything that is not as it should be: the other way reads it anew, and tells what is
//! wrong.

use std::{cell::Cell, time::Duration};

use bytes::Bytes;
use portcullis_types::{BlobRef, Hash};
use tokio::time::Instant;

use super::{
    hash::HELPED_BYTES,
    layout,
    shelf::Shelf,
    stat::{is_file, is_folder, is_own, is_private, others_may_write, size_bytes},
    whole::{Wait, Whole, fill},
};

/// The largest blob that may be read in time: larger ones are not begun.
const MOST_BYTES: u64 = 1 << 20;
/// For how long new parts of a blob are begun here: about what one thread takes for a MiB. Two take half of that, where each
/// has a processor. What is too small for two is one part.
const TIME: Duration = Duration::from_micros(250);

thread_local! {
    /// Until when this thread is for other work.
    pub(super) static TAKEN_UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

impl Shelf {
    /// Reads `blob` on this thread, where all of it is in memory and nothing else is to be done or told.
    pub(crate) fn at_hand(&self, blob: BlobRef) -> Option<Bytes> {
        if !self.tells_what_is_at_hand {
            return None;
        }
        in_turn(|begun| self.read_by(begun + TIME, blob))
    }

    pub(super) fn read_by(&self, deadline: Instant, blob: BlobRef) -> Option<Bytes> {
        let shard = format!("{}/{}", layout::BLOBS, layout::fan_out(blob));
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
        let (content, hash) = if size >= HELPED_BYTES as u64 {
            let whole = Whole::begin(file, size, Wait::Never, &self.buffers, &self.helpers);
            whole.finish_by(deadline)?.ok()?
        } else {
            let mut content = vec![0; usize::try_from(size).ok()?];
            fill(&file, 0, &mut content, Wait::Never).ok()?;
            let hash = Hash::of(&content);
            (content.into(), hash)
        };
        (hash == blob.0).then_some(content)
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
