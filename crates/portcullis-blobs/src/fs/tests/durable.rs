//! In which order a blob comes to the disk.

use std::os::unix::fs::MetadataExt;

use super::{
    steps::{
        Step::{self, FileSynced, FileSystemSynced, FolderSynced, Named},
        at_next, taken,
    },
    *,
};

/// A store in which a blob was put, another into the same folder, and the first once more.
struct Put {
    fixture: Fixture,
    store: FsStore,
    contents: [Bytes; 2],
    steps: [Vec<Step>; 3],
}

impl Put {
    fn with(durability: Durability) -> Self {
        let fixture = Fixture::new();
        let options = FsOptions {
            durability,
            ..FsOptions::default()
        };
        let store = FsStore::open(&fixture.folder(), options).unwrap();
        let first = Bytes::from_static(b"first");
        let shard = layout::fan_out(blob(&first));
        let second = (0..)
            .map(|number: u32| Bytes::from(number.to_string()))
            .find(|content| layout::fan_out(blob(content)) == shard)
            .unwrap();
        let steps = [&first, &second, &first].map(|content| {
            taken();
            // On this thread, whose steps are looked at.
            store.shelf.put(&store.session, content).unwrap();
            taken()
        });
        Self {
            fixture,
            store,
            contents: [first, second],
            steps,
        }
    }
}

fn synced(folder: &Path) -> Step {
    FolderSynced(fs::metadata(folder).unwrap().ino())
}

#[test]
fn content_is_on_the_disk_before_its_name_and_both_before_a_put_returns() {
    let put = Put::with(Durability::Fsync);
    let [first, second] = put.contents.each_ref().map(|content| {
        let file = put.fixture.file(content);
        FileSynced(fs::metadata(file).unwrap().ino())
    });
    let file = put.fixture.file(&put.contents[0]);
    let shard = synced(file.parent().unwrap());
    let all = synced(&put.fixture.folder().join("blake3"));
    let root = synced(&put.fixture.folder());
    // The first one's folder is new, so the names of the folders above it have to be there too.
    assert_eq!(put.steps[0], [first, Named, shard, all, root]);
    assert_eq!(put.steps[1], [second, Named, shard]);
    // Whoever put it first may not have come to that yet.
    assert_eq!(put.steps[2], [first, shard]);

    let shared = vec![FileSystemSynced, Named, FileSystemSynced];
    let put = Put::with(Durability::Group);
    assert_eq!(put.steps, [shared.clone(), shared, vec![FileSystemSynced]]);

    let put = Put::with(Durability::None);
    assert_eq!(put.steps, [vec![Named], vec![Named], vec![]]);
}

/// However it comes, what is there already is not brought to the disk a second time.
#[test]
fn what_is_streamed_and_there_already_is_not_synced_again() {
    let fixture = Fixture::new();
    let store = fixture.open();
    let content = Bytes::from_static(b"first");
    let mut steps = Vec::new();
    for existed in [false, true] {
        let mut writer = store.writer().unwrap();
        writer.write(&content).unwrap();
        taken();
        assert_eq!(writer.publish().unwrap().existed, existed);
        steps.push(taken());
    }
    let file = fixture.file(&content);
    let first = FileSynced(fs::metadata(&file).unwrap().ino());
    let shard = synced(file.parent().unwrap());
    assert!(steps[0].contains(&Named), "{steps:?}");
    // Whoever put it first may not have come to that yet.
    assert_eq!(steps[1], [first, shard]);
}

/// A folder that somebody has removed is made anew, and its name is one that is not on the disk.
#[test]
fn a_folder_that_was_made_anew_has_its_name_brought_to_the_disk_too() {
    let put = Put::with(Durability::Fsync);
    let (root, file) = (put.fixture.folder(), put.fixture.file(&put.contents[0]));
    let (shard, all) = (file.parent().unwrap().to_owned(), root.join("blake3"));
    let put_again = || {
        taken();
        put.store.shelf.put(&put.store.session, &put.contents[0]).unwrap();
        let content = FileSynced(fs::metadata(&file).unwrap().ino());
        (content, taken())
    };
    fs::remove_dir_all(&shard).unwrap();
    let (content, steps) = put_again();
    assert_eq!(steps, [content, Named, synced(&shard), synced(&all)]);
    fs::remove_dir_all(&all).unwrap();
    let (content, steps) = put_again();
    assert_eq!(
        steps,
        [content, Named, synced(&shard), synced(&all), synced(&root)]
    );
    // From then on it is known.
    fs::remove_file(&file).unwrap();
    let (content, steps) = put_again();
    assert_eq!(steps, [content, Named, synced(&shard)]);
}

/// What a disk did not take may be lost, and is not told by its size alone.
#[test]
fn what_is_not_on_the_disk_yet_is_not_proved() {
    let fixture = Fixture::new();
    let content = Bytes::from_static(b"first");
    fixture.put(&fixture.open(), b"first").unwrap();
    let file = fixture.file(&content);
    let shard = synced(file.parent().unwrap());
    for existed in [true, false] {
        let store = fixture.open();
        let looked = Arc::new(AtomicBool::new(false));
        at_next(shard, {
            let (session, blob, looked) = (Arc::clone(&store.session), blob(&content), Arc::clone(&looked));
            move || looked.store(!session.has_proved(blob), Ordering::SeqCst)
        });
        assert_eq!(
            store.shelf.put(&store.session, &content).unwrap().existed,
            existed
        );
        assert!(looked.load(Ordering::SeqCst), "{existed}");
        assert!(store.session.has_proved(blob(&content)));
        fs::remove_file(&file).unwrap();
    }
}

/// Nothing else comes of having written before the hash was there.
#[test]
fn what_is_written_while_it_is_hashed_comes_to_the_disk_in_the_same_order() {
    for durability in [Durability::Fsync, Durability::Group, Durability::None] {
        // The helper that is asked never comes, so that it is certain what is written when.
        let Some((helpers, release, helper)) = helper::tests::late() else {
            return;
        };
        let fixture = Fixture::new();
        let options = FsOptions {
            durability,
            ..FsOptions::default()
        };
        let mut shelf = Shelf::open_or_new(&fixture.folder(), options).unwrap();
        shelf.helpers = helpers;
        let content = Bytes::from(vec![7; 1 << 20]);
        taken();
        Arc::new(shelf).put(&Arc::default(), &content).unwrap();
        let file = fixture.file(&content);
        let folder = |path: &Path| synced(path);
        let of_file = FileSynced(fs::metadata(&file).unwrap().ino());
        let names = [
            folder(file.parent().unwrap()),
            folder(&fixture.folder().join("blake3")),
            folder(&fixture.folder()),
        ];
        let expected: Vec<_> = match durability {
            Durability::Fsync => [of_file, Named].into_iter().chain(names).collect(),
            Durability::Group => vec![FileSystemSynced, Named, FileSystemSynced],
            Durability::None => vec![Named],
        };
        let steps = taken();
        assert_eq!(steps[0], Step::WrittenMeanwhile);
        assert_eq!(steps[1..], expected);
        drop(release);
        helper.join().unwrap();
    }
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
    let steps = taken();
    let all = fixture.folder().join("tags");
    let folder = all.join(layout::fan_out(tag.blob));
    let file = folder.join(format!("{}.keep", tag.blob.0));
    let expected = [
        FileSynced(fs::metadata(file).unwrap().ino()),
        Named,
        synced(&folder),
        synced(&all),
        synced(&fixture.folder()),
    ];
    assert_eq!(steps, expected);
}

/// Each folder that is made for it, too: else a power cut could take them all with what was stored.
#[test]
fn a_store_is_on_the_disk_before_it_is_opened() {
    let fixture = Fixture::new();
    let parent = fixture.parent.path();
    let format_of = |path: &Path| FileSynced(fs::metadata(path.join("format")).unwrap().ino());

    // Made by one that died before its name was there.
    fs::create_dir(fixture.folder()).unwrap();
    taken();
    drop(fixture.open());
    let path = fixture.folder();
    let expected = [synced(parent), format_of(&path), Named, synced(&path)];
    assert_eq!(taken(), expected);

    let path = parent.join("deep/er/blobs");
    FsStore::open(&path, FsOptions::default()).unwrap();
    let above = [parent, &parent.join("deep"), &parent.join("deep/er")].map(synced);
    let expected = above.into_iter().chain([format_of(&path), Named, synced(&path)]);
    assert_eq!(taken(), expected.collect::<Vec<_>>());
    FsStore::open(&path, FsOptions::default()).unwrap();
    assert_eq!(taken(), []);
}
