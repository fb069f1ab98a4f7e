//! What the disk has lost, or loses while it is read.

use std::{fs::File, os::unix::fs::MetadataExt};

use super::{steps::while_opened, *};

/// Does this while the file at `path`, and no other, is one of which the kernel reads nothing: nobody has memory there.
#[cfg(target_os = "linux")]
fn while_lost<T>(path: &Path, does: impl FnOnce() -> T) -> T {
    let lost = fs::metadata(path).unwrap().ino();
    let becomes = move |file: File| match file.metadata().unwrap().ino() == lost {
        true => File::open("/proc/self/mem").unwrap(),
        false => file,
    };
    while_opened(becomes, does)
}

/// On this thread, whose reads fail.
#[cfg(target_os = "linux")]
#[test]
fn what_the_disk_cannot_read_is_an_error_and_can_be_put_again() {
    type Read = fn(&Arc<Shelf>, BlobRef) -> Result<(), BlobError>;
    let reads: [Read; 3] = [
        |shelf, blob| shelf.get(blob).map(drop),
        |shelf, blob| shelf.get_range(blob, &(1..3)).map(drop),
        |shelf, blob| shelf.reading(blob)?.next().map(drop),
    ];
    for size in [16, 1 << 20] {
        let content = Bytes::from(vec![7; size]);
        let fixture = Fixture::new();
        let put = || {
            let store = fixture.open();
            store.shelf.put(&store.session, &content).unwrap()
        };
        put();
        let file = fixture.file(&content);
        while_lost(&file, || {
            for read in reads {
                let error = read(&fixture.open().shelf, blob(&content)).unwrap_err();
                assert!(matches!(error, BlobError::Io { .. }), "{error:?}");
            }
        });
        // It may pass.
        assert_eq!(fixture.root_names("quarantine-").len(), 0);
        assert!(fixture.get(&fixture.open(), &content).unwrap() == content);
        let stored = while_lost(&file, put);
        assert!(!stored.existed);
        assert_eq!(fixture.root_names("quarantine-").len(), 1);
        assert_eq!(fixture.temp_files(), 0);
        assert!(fixture.get(&fixture.open(), &content).unwrap() == content);
    }
}

/// What stood in memory before is not what was read: neither zeros nor the piece before.
#[test]
fn what_is_cut_short_while_it_is_compared_is_not_the_same() {
    let content = Bytes::from(vec![0; (256 << 10) + 5]);
    for left in [0, 5, 128 << 10, content.len() as u64 - 1] {
        let fixture = Fixture::new();
        let store = fixture.open();
        store.shelf.put(&store.session, &content).unwrap();
        let path = fixture.file(&content);
        let cut = move |file| {
            let written = File::options().write(true).open(&path).unwrap();
            written.set_len(left).unwrap();
            file
        };
        let is_the_same = while_opened(cut, || store.shelf.is_the_same(blob(&content), &content));
        assert!(!is_the_same, "{left}");
    }
}
