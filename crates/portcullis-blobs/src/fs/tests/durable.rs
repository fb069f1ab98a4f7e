//! In which order a blob comes to the disk.

use std::os::unix::fs::MetadataExt;

use super::{
    steps::{
        Step::{self, FileSynced, FileSystemSynced, FolderSynced, Named},
        taken,
    },
    *,
};

/// Puts a new blob, another into the same folder, and the first once more.
fn check(durability: Durability, expected: [&[Step]; 3]) {
    let fixture = Fixture::new();
    let options = FsOptions {
        durability,
        ..FsOptions::default()
    };
    let store = FsStore::open(&fixture.folder(), options).unwrap();
    let first = Bytes::from_static(b"first");
    let shard = shelf::fan_out(blob(&first));
    let second = (0..)
        .map(|number: u32| Bytes::from(number.to_string()))
        .find(|content| shelf::fan_out(blob(content)) == shard)
        .unwrap();
    for (content, expected) in [&first, &second, &first].into_iter().zip(expected) {
        taken();
        // On this thread, whose steps are looked at.
        let hashing = Hashing::begin(content);
        store.shelf.put(&store.session, content, hashing).unwrap();
        assert_eq!(taken(), expected, "{durability:?}");
    }
}

#[test]
fn content_is_on_the_disk_before_its_name_and_both_before_a_put_returns() {
    // The first one's folder is new, so the names of the folders above it have to be there too.
    let first = [FileSynced, Named, FolderSynced, FolderSynced, FolderSynced];
    let second = [FileSynced, Named, FolderSynced];
    // Whoever put it first may not have come to that yet.
    let again = [FileSynced, FolderSynced];
    check(Durability::Fsync, [&first, &second, &again]);

    let shared = [FileSystemSynced, Named, FileSystemSynced];
    check(Durability::Group, [&shared, &shared, &[FileSystemSynced]]);

    check(Durability::None, [&[Named], &[Named], &[]]);
}

/// A length that were there before the content would outlast a power cut without it: a file of zeros that passes for the
/// blob.
#[test]
fn the_length_of_a_file_comes_with_its_content() {
    let content = vec![7; 1 << 20];
    for durability in [Durability::Fsync, Durability::Group, Durability::None] {
        let fixture = Fixture::new();
        let options = FsOptions {
            durability,
            ..FsOptions::default()
        };
        let store = FsStore::open(&fixture.folder(), options).unwrap();
        let mut writer = writer::Writer::create(&store.shelf, &store.session).unwrap();
        let written = || {
            let mut files = fs::read_dir(fixture.folder().join("tmp")).unwrap();
            files.next().unwrap().unwrap().metadata().unwrap()
        };
        writer.make_room(content.len() as u64).unwrap();
        assert_eq!(written().len(), 0, "{durability:?}");
        if durability == Durability::None {
            assert_eq!(written().blocks(), 0);
        }
        writer.append(&content[..600_000]).unwrap();
        assert_eq!(written().len(), 600_000, "{durability:?}");
        writer.append(&content[600_000..]).unwrap();
        assert_eq!(written().len(), 1 << 20, "{durability:?}");
        drop(writer);

        let stored = fixture
            .runtime
            .block_on(store.put(content.clone().into()))
            .unwrap();
        assert_eq!(stored.size_bytes, 1 << 20);
        assert_eq!(fs::metadata(fixture.file(&content)).unwrap().len(), 1 << 20);
    }
}

#[test]
fn a_tag_is_on_the_disk_before_it_returns() {
    let fixture = Fixture::new();
    let store = fixture.open();
    fixture.put(&store, b"kept").unwrap();
    let tag = Tag {
        name: "keep".parse().unwrap(),
        blob: blob(b"kept"),
        expires_ms: None,
    };
    taken();
    store.shelf.tag(&tag).unwrap();
    let expected = [FileSynced, Named, FolderSynced, FolderSynced, FolderSynced];
    assert_eq!(taken(), expected);
}
