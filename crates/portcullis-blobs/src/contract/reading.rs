//! Streams, ranges and lists.

use futures::TryStreamExt;

use super::*;

#[test]
fn a_stream_gives_all_of_it_and_says_how_much_before() {
    check(Limits::default(), |store| async move {
        for size in [0, 1, (256 << 10) - 1, 256 << 10, (256 << 10) + 1, 1_000_003] {
            let blob = store.put(content(size)).await.unwrap().blob;
            let reader = store.get_stream(blob).await.unwrap();
            assert_eq!(reader.size_bytes(), size as u64);
            let pieces: Vec<Bytes> = reader.try_collect().await.unwrap();
            assert!(pieces.concat() == content(size), "{size}");
            assert_eq!(store.verify(blob).await.unwrap(), size as u64);
        }
        let missing = BlobRef(Hash::of(b"never put"));
        assert!(matches!(
            store.get_stream(missing).await,
            Err(BlobError::NotFound(_))
        ));
        assert!(matches!(store.verify(missing).await, Err(BlobError::NotFound(_))));
    });
}

#[test]
fn a_range_is_exact_or_refused() {
    check(Limits::default(), |store| async move {
        let whole = content(600_000);
        let blob = store.put(whole.clone()).await.unwrap().blob;
        for range in [
            0..0,
            0..1,
            262_143..262_145,
            100_000..500_000,
            599_999..600_000,
            600_000..600_000,
            0..600_000,
        ] {
            let (from, to) = (range.start as usize, range.end as usize);
            assert!(
                store.get_range(blob, range).await.unwrap() == whole.slice(from..to),
                "{from}..{to}"
            );
        }
        #[expect(clippy::reversed_empty_ranges, reason = "a caller may get it wrong")]
        for range in [0..600_001, 600_001..600_001, u64::MAX - 1..u64::MAX, 2..1] {
            assert!(matches!(
                store.get_range(blob, range).await,
                Err(BlobError::Range {
                    size_bytes: 600_000,
                    ..
                })
            ));
        }
        assert!(matches!(
            store.get_range(BlobRef(Hash::of(b"never put")), 0..1).await,
            Err(BlobError::NotFound(_))
        ));
    });
}

#[test]
fn the_list_and_the_figures_name_what_is_there() {
    let limits = Limits {
        quota_bytes: Some(1_000_000),
        ..Limits::default()
    };
    check(limits, |store| async move {
        assert_eq!(store.list().try_collect::<Vec<_>>().await.unwrap(), []);
        let mut expected = Vec::new();
        for size in 0..40 {
            let stored = store.put(content(size)).await.unwrap();
            expected.push((stored.blob, stored.size_bytes));
        }
        expected.sort_unstable();
        let mut listed: Vec<_> = store
            .list()
            .map_ok(|entry| (entry.blob, entry.size_bytes))
            .try_collect()
            .await
            .unwrap();
        listed.sort_unstable();
        assert_eq!(listed, expected);
        let stats = store.stats().await.unwrap();
        assert_eq!(
            (stats.blobs, stats.size_bytes, stats.tags, stats.quarantined),
            (40, 780, 0, 0)
        );
        assert_eq!(stats.quota_bytes, Some(1_000_000));
    });
}
