//! Blobs larger than memory should hold: what a process takes for them on their way in and out.

#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test, which looks at its own process"
)]

use futures::{StreamExt, TryStreamExt, stream};
use portcullis_blobs::{BlobStore, Bytes, Durability, FsOptions, FsStore};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 128 * MIB;
/// Of which the store itself keeps some for the next read.
const MOST_KIB: u64 = 8 << 10;

fn kib(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    value.trim().trim_end_matches(" kB").trim().parse().unwrap()
}

/// What `work` gives, which takes little memory at any time.
async fn in_little<T>(what: &str, work: impl Future<Output = T>) -> T {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = kib("VmRSS:");
    let done = work.await;
    let grew = kib("VmHWM:").saturating_sub(before);
    assert!(grew <= MOST_KIB, "{what}: it grew by {grew} KiB");
    done
}

/// Pieces that differ, each made as it is asked for.
fn pieces() -> impl Iterator<Item = Bytes> {
    (0..SIZE / MIB).map(|number| Bytes::from(vec![u8::try_from(number).unwrap(); MIB as usize]))
}

/// The only test here: others beside it would take memory, too.
#[tokio::test]
async fn a_large_blob_lies_in_no_memory_but_where_it_is_asked_for_whole() {
    let parent = tempfile::tempdir().unwrap();
    let options = FsOptions {
        durability: Durability::None,
        ..FsOptions::default()
    };
    let store = FsStore::open(&parent.path().join("blobs"), options).unwrap();
    // What comes once is there already.
    store.put(Bytes::from(vec![7; MIB as usize])).await.unwrap();

    let streamed = store.put_stream(stream::iter(pieces().map(Ok)).boxed());
    let streamed = in_little("put_stream", streamed).await.unwrap();
    assert_eq!((streamed.size_bytes, streamed.existed), (SIZE, false));
    let written = in_little("writer", async {
        let mut writer = store.writer().unwrap();
        pieces().for_each(|piece| writer.write(&piece).unwrap());
        writer.publish().unwrap()
    });
    let written = written.await;
    assert_eq!((written.blob, written.existed), (streamed.blob, true));
    let read = in_little("get_stream", async {
        let mut reader = store.get_stream(streamed.blob).await.unwrap();
        let mut bytes = 0;
        while let Some(piece) = reader.try_next().await.unwrap() {
            bytes += piece.len() as u64;
        }
        bytes
    });
    assert_eq!(read.await, SIZE);
    let range = in_little(
        "get_range",
        store.get_range(streamed.blob, 3 * MIB - 1..3 * MIB + 1),
    );
    assert_eq!(range.await.unwrap().as_ref(), [2, 3]);
    in_little("verify", store.verify(streamed.blob)).await.unwrap();

    // That it would be seen.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = kib("VmRSS:");
    let whole = store.get(streamed.blob).await.unwrap();
    assert_eq!(whole.len() as u64, SIZE);
    assert!(kib("VmHWM:") - before > MOST_KIB);
}
