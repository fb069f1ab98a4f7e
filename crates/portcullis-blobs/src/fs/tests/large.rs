//! Content that is large enough for two threads to share the work.

use super::*;
use crate::Limits;

/// Written while it is hashed, and not a whole number of parts.
const SIZE: u32 = (8 << 20) + 12_345;

fn content(seed: u32) -> Bytes {
    (0..SIZE)
        .map(|at| (at.wrapping_mul(seed) >> 9) as u8)
        .collect::<Vec<_>>()
        .into()
}

#[test]
fn what_is_there_already_needs_no_room_and_what_is_not_leaves_nothing() {
    let fixture = Fixture::new();
    let options = FsOptions {
        limits: Limits {
            quota_bytes: Some(u64::from(SIZE) + 1_000),
            ..Limits::default()
        },
        ..FsOptions::default()
    };
    let store = FsStore::open(&fixture.folder(), options).unwrap();
    let put = |content: &Bytes| fixture.runtime.block_on(store.put(content.clone()));
    let kept = content(31);
    assert!(!put(&kept).unwrap().existed);
    assert!(put(&kept).unwrap().existed);
    let refused = put(&content(37));
    assert!(matches!(refused, Err(BlobError::Quota { .. })), "{refused:?}");
    assert_eq!(fixture.temp_files(), 0);
    assert_eq!(fixture.get(&store, &kept).unwrap(), kept);
    // What was refused has taken no room.
    fixture.put(&store, &[7; 1_000]).unwrap();
}

#[test]
fn a_runtime_with_one_thread_for_such_work_does_it_too() {
    let fixture = Fixture::new();
    let store = fixture.open();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let stored = store.put(content(41)).await.unwrap();
        assert_eq!(stored.blob, blob(&content(41)));
        assert_eq!(store.get(stored.blob).await.unwrap(), content(41));
    });
}

#[test]
fn damage_anywhere_is_found() {
    let whole = content(43).slice(..(2 << 20) + 12_345);
    let check = |damage: &dyn Fn(&mut Vec<u8>)| {
        let fixture = Fixture::new();
        let store = fixture.open();
        fixture.runtime.block_on(store.put(whole.clone())).unwrap();
        assert_eq!(fixture.get(&store, &whole).unwrap(), whole);
        let mut damaged = whole.to_vec();
        damage(&mut damaged);
        fs::write(fixture.file(&whole), damaged).unwrap();
        let error = fixture.get(&store, &whole).unwrap_err();
        assert!(matches!(error, BlobError::Corrupt { .. }), "{error:?}");
        assert_eq!(fixture.root_names("quarantine-").len(), 1);
    };
    for part in 0..5 {
        check(&|content| content[part * hash::PART_BYTES + 10] ^= 1);
    }
    check(&|content| *content.last_mut().unwrap() ^= 1);
    check(&|content| content.truncate(hash::PART_BYTES * 4));
    check(&|content| content.extend_from_slice(b"more"));
    // Zeros at the end that are no longer there.
    check(&|content| content.push(0));
}
