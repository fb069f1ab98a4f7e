//! The name of content that lies in memory, found on several cores.

use std::{io, thread};

use blake3::{
    Hasher,
    hazmat::{
        ChainingValue, HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root,
    },
};
use portcullis_types::Hash;

/// From which size on starting threads is worth it.
const SEVERAL_CORES_BYTES: usize = 8 << 20;
/// How often content is halved: into four parts at most, since what is no power of two halves unevenly.
const HALVINGS: u32 = 2;

/// The hash of `content`.
pub(super) fn hash(content: &[u8]) -> Hash {
    if content.len() < SEVERAL_CORES_BYTES {
        return Hash::of(content);
    }
    let (left, right) = halve(content);
    match both(left, right, 0, HALVINGS) {
        Ok((left, right)) => {
            let hash = merge_subtrees_root(&left, &right, Mode::Hash);
            Hash::from_bytes(*hash.as_bytes())
        }
        // There are no more threads to be had: one core does it too.
        Err(_) => Hash::of(content),
    }
}

/// What stands for `content`, which begins at the byte `at` of a whole, in the hash of that (BLAKE3, section 2.1).
fn part(content: &[u8], at: u64, halvings: u32) -> io::Result<ChainingValue> {
    if halvings == 0 || content.len() < SEVERAL_CORES_BYTES {
        let mut hasher = Hasher::new();
        return Ok(hasher.set_input_offset(at).update(content).finalize_non_root());
    }
    let (left, right) = halve(content);
    let (left, right) = both(left, right, at, halvings)?;
    Ok(merge_subtrees_non_root(&left, &right, Mode::Hash))
}

fn both(left: &[u8], right: &[u8], at: u64, halvings: u32) -> io::Result<(ChainingValue, ChainingValue)> {
    thread::scope(|scope| {
        let halvings = halvings.saturating_sub(1);
        let beside = at + left.len() as u64;
        let other = thread::Builder::new().spawn_scoped(scope, move || part(right, beside, halvings))?;
        let left = part(left, at, halvings)?;
        // It only hashes, which does not panic.
        let right = other
            .join()
            .map_err(|_| io::Error::other("hashing came to grief"))??;
        Ok((left, right))
    })
}

/// Cut where the tree of the hash is.
fn halve(content: &[u8]) -> (&[u8], &[u8]) {
    let left = left_subtree_len(content.len() as u64);
    content.split_at(usize::try_from(left).unwrap_or(content.len()).min(content.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_hash_on_any_number_of_cores() {
        let content: Vec<u8> = (0..40 << 20).map(|at: u32| ((at * 31) >> 7) as u8).collect();
        let least = SEVERAL_CORES_BYTES;
        for size in [
            0,
            1_000,
            least - 1,
            least,
            least + 1,
            2 * least,
            3 * least + 12_345,
            content.len(),
        ] {
            assert_eq!(hash(&content[..size]), Hash::of(&content[..size]), "{size}");
        }
    }
}
