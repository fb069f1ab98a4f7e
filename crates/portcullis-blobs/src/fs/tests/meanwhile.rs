//! What others do between two steps of ours.

use std::time::UNIX_EPOCH;

use super::{
    keeping::FAR_MS,
    steps::{
        Step::{Chosen, Created, Named},
        at_next,
    },
    *,
};

/// Whether a collection takes a blob that was stored long ago, when somebody does `meanwhile` after it was chosen.
fn is_collected(options: GcOptions, meanwhile: impl FnOnce(&Arc<Shelf>, &Arc<Session>) + 'static) -> bool {
    let fixture = Fixture::new();
    let store = fixture.open();
    fixture.put(&fixture.open(), b"chosen").unwrap();
    let file = fs::File::open(fixture.file(b"chosen")).unwrap();
    file.set_modified(UNIX_EPOCH).unwrap();

    let sweep = Sweep::begin(&store.shelf, options).unwrap();
    let (shelf, session) = (Arc::clone(&store.shelf), Arc::clone(&store.session));
    at_next(Chosen, move || meanwhile(&shelf, &session));
    let shard = layout::fan_out(blob(b"chosen"));
    let report = sweep.shard(&store.shelf, &shard).unwrap().report;
    assert_eq!(report.examined, 1);
    assert_eq!(fixture.file(b"chosen").exists(), report.removed == 0);
    report.removed == 1
}

fn put(shelf: &Arc<Shelf>, session: &Arc<Session>) {
    let stored = shelf.put(session, &Bytes::from_static(b"chosen")).unwrap();
    assert!(stored.existed);
}

#[test]
fn what_is_kept_after_a_collector_has_chosen_it_stays() {
    let tag = |shelf: &Arc<Shelf>| {
        let tag = Tag {
            name: "keep".parse().unwrap(),
            blob: blob(b"chosen"),
            expires_ms: None,
        };
        shelf.tag(&tag).unwrap();
    };
    let far = GcOptions::at(FAR_MS);
    assert!(is_collected(far.clone(), |_, _| {}));
    assert!(!is_collected(far.clone(), move |shelf, _| tag(shelf)));
    assert!(!is_collected(far.clone(), put));
    // By a session that has gone by then: its put begins the retention anew, which by this clock is over.
    assert!(is_collected(far, |shelf, _| put(shelf, &Arc::default())));
    let now_ms = i64::try_from(UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    let now = GcOptions::at(now_ms);
    assert!(is_collected(now.clone(), |_, _| {}));
    assert!(!is_collected(now, |shelf, _| put(shelf, &Arc::default())));
}

/// It looked damaged, and is good when it is moved.
#[test]
fn what_is_mended_before_it_is_moved_aside_goes_back() {
    let fixture = Fixture::new();
    let store = fixture.open();
    fixture.put(&store, b"good").unwrap();
    let (file, good) = (fixture.file(b"good"), fixture.folder().join("good"));
    fs::copy(&file, &good).unwrap();
    fs::write(&file, b"baad").unwrap();
    at_next(Named, move || fs::rename(good, file).unwrap());
    let error = store.shelf.get(blob(b"good")).unwrap_err();
    assert!(
        error.to_string().contains("somebody else has moved it"),
        "{error}"
    );
    assert_eq!(fixture.get(&store, b"good").unwrap().as_ref(), b"good");
    assert!(fixture.root_names("quarantine-").is_empty());
    fixture.assert_whole(1);
}

/// A file that a cleaner has, or has had, is left to it.
#[test]
fn a_cleaner_that_comes_before_the_lock_takes_nothing_that_is_used() {
    let fixture = Fixture::new();
    let store = fixture.open();
    let scratch = || store.shelf.root.child(layout::TEMP).unwrap();
    let folder = scratch();
    at_next(Created, move || temp::clean(&folder).unwrap());
    let first = temp::TempFile::create(Arc::new(scratch())).unwrap();
    assert_eq!(fixture.temp_files(), 1, "one that has a name");

    let folder = fixture.folder().join("tmp");
    let (tell, cleaner) = std::sync::mpsc::channel();
    at_next(Created, move || {
        let files = fs::read_dir(folder).unwrap();
        let files: Vec<_> = files
            .map(|entry| fs::File::open(entry.unwrap().path()).unwrap())
            .collect();
        for file in &files {
            let _ = rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        }
        tell.send(files).unwrap();
    });
    let second = temp::TempFile::create(Arc::new(scratch())).unwrap();
    assert_eq!(fixture.temp_files(), 3, "the cleaner has one of them");
    drop(cleaner);
    temp::clean(&scratch()).unwrap();
    assert_eq!(fixture.temp_files(), 2);
    drop((first, second));
    assert_eq!(fixture.temp_files(), 0);
}
