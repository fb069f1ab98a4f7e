//! Sessions, tags and collections where somebody interferes, and reading what is damaged.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::*;

/// Long after anything that these tests put.
pub(super) const FAR_MS: i64 = 4_000_000_000_000;

impl Fixture {
    /// A collection that takes whatever nothing keeps.
    pub(super) fn collect(&self, store: &FsStore) -> GcReport {
        let retention = Duration::ZERO;
        let options = GcOptions {
            retention,
            ..GcOptions::at(FAR_MS)
        };
        self.runtime.block_on(store.gc(options)).unwrap()
    }

    pub(super) fn tag(&self, store: &FsStore, content: &[u8], expires_ms: Option<i64>) {
        let tag = Tag {
            name: "keep".parse().unwrap(),
            blob: blob(content),
            expires_ms,
        };
        self.runtime.block_on(store.tag(tag)).unwrap();
    }

    pub(super) fn names_in(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.folder().join(folder)).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    fn tag_file(&self, content: &[u8]) -> PathBuf {
        let shard = self.folder().join("tags").join(layout::fan_out(blob(content)));
        shard.join(format!("{}.keep", blob(content).0))
    }
}

#[test]
fn a_collector_of_another_store_handle_sees_what_this_one_holds() {
    let fixture = Fixture::new();
    let (writer, collector) = (fixture.open(), fixture.open());
    fixture.put(&writer, b"held").unwrap();
    assert_eq!(fixture.collect(&collector).removed, 0);
    assert_eq!(fixture.names_in("sessions").len(), 1);
    drop(writer);
    assert_eq!(fixture.names_in("sessions").len(), 0);
    assert_eq!(fixture.collect(&collector).removed, 1);
}

/// Every collection reads all of it.
#[test]
fn what_is_put_again_and_again_is_written_down_once() {
    let fixture = Fixture::new();
    let store = fixture.open();
    for content in [b"one", b"two", b"one", b"two", b"one"] {
        fixture.put(&store, content).unwrap();
    }
    let sessions = fixture.folder().join("sessions");
    let session = sessions.join(&fixture.names_in("sessions")[0]);
    assert_eq!(fs::metadata(session).unwrap().len(), 2 * 32);
}

/// Some of them are no longer remembered then, and none is let go.
#[test]
fn a_session_holds_as_many_as_were_put() {
    let fixture = Fixture::new();
    let store = fixture.open();
    fixture.put(&store, b"first").unwrap();
    for number in 0..session::KNOWN + 10 {
        store
            .session
            .hold(&store.shelf, blob(&number.to_le_bytes()))
            .unwrap();
    }
    fixture.put(&store, b"last").unwrap();
    assert_eq!(fixture.collect(&fixture.open()).removed, 0);
    assert!(!store.session.has_proved(blob(b"first")) && store.session.has_proved(blob(b"last")));
    for _ in 0..2 {
        assert!(fixture.put(&store, b"first").unwrap().existed);
    }
    assert!(store.session.has_proved(blob(b"first")));
}

/// More than are removed under one lock.
#[test]
fn a_collection_takes_all_of_a_folder() {
    let fixture = Fixture::new();
    let options = FsOptions {
        durability: Durability::None,
        ..FsOptions::default()
    };
    let store = FsStore::open(&fixture.folder(), options).unwrap();
    let contents = (0_u32..).map(|number| Bytes::from(number.to_string()));
    let of_one_folder = contents.filter(|content| layout::fan_out(blob(content)) == "00");
    for content in of_one_folder.take(70) {
        fixture.runtime.block_on(store.put(content)).unwrap();
    }
    drop(store);
    assert_eq!(fixture.collect(&fixture.open()).removed, 70);
}

/// Where writers cannot keep a collector out there is none, and they need not.
#[test]
fn without_locks_nothing_is_collected_and_all_else_goes_on() {
    let store = Fixture::new().open();
    let none = Err(rustix::io::Errno::OPNOTSUPP);
    let refused = store.shelf.locked(folder::Lock::Exclusive, none).unwrap_err();
    assert!(matches!(refused, BlobError::NoLocks { .. }), "{refused:?}");
    store.shelf.locked(folder::Lock::Shared, none).unwrap();
}

#[test]
fn a_session_whose_process_died_holds_nothing() {
    let fixture = Fixture::new();
    let store = fixture.open();
    fixture.put(&fixture.open(), b"orphan").unwrap();
    fixture.leave("sessions", blob(b"orphan").0.as_bytes());
    // Nor does what cannot be a session's, and is not cleaned away.
    fs::write(
        fixture.folder().join("sessions/0123"),
        blob(b"orphan").0.as_bytes(),
    )
    .unwrap();
    fixture.assert_whole(1);
    assert_eq!(fixture.collect(&store).removed, 1);
    assert_eq!(fixture.names_in("sessions"), ["0123"]);
}

#[test]
fn what_is_held_while_a_collection_runs_is_seen_before_anything_goes() {
    let fixture = Fixture::new();
    let (store, late) = (fixture.open(), fixture.open());
    fixture.put(&fixture.open(), b"chosen").unwrap();
    let retention = Duration::ZERO;
    let options = GcOptions {
        retention,
        ..GcOptions::at(FAR_MS)
    };
    // The collection has begun and nothing is held; then the old content is put again.
    let sweep = Sweep::begin(&store.shelf, options).unwrap();
    assert!(fixture.put(&late, b"chosen").unwrap().existed);
    let sweep = sweep
        .shard(&store.shelf, &layout::fan_out(blob(b"chosen")))
        .unwrap();
    assert_eq!((sweep.report.examined, sweep.report.removed), (1, 0));
    assert_eq!(fixture.get(&store, b"chosen").unwrap().as_ref(), b"chosen");
}

#[test]
fn writers_keep_the_collector_out_and_the_collector_writers() {
    let fixture = Fixture::new();
    let (mut store, other) = (fixture.open(), fixture.open());
    Arc::get_mut(&mut store.shelf).unwrap().lock_tries = 3;
    fixture.put(&fixture.open(), b"wanted").unwrap();
    let folder = other.shelf.folder(blob(b"wanted")).unwrap().unwrap();

    // A writer elsewhere has looked and holds nothing yet: the collector leaves that folder alone.
    other.shelf.lock(&folder, folder::Lock::Shared).unwrap();
    let report = fixture.collect(&store);
    assert_eq!((report.removed, report.busy_parts), (0, 1));
    assert!(fixture.put(&store, b"wanted").unwrap().existed, "writers share");
    folder.unlock();

    // A collector elsewhere is about to remove: nobody takes the blob for stored.
    other.shelf.lock(&folder, folder::Lock::Exclusive).unwrap();
    let put = fixture.put(&store, b"wanted");
    assert!(matches!(put, Err(BlobError::Busy { .. })), "{put:?}");
    let tag = Tag {
        name: "keep".parse().unwrap(),
        blob: blob(b"wanted"),
        expires_ms: None,
    };
    let tagged = fixture.runtime.block_on(store.tag(tag));
    assert!(matches!(tagged, Err(BlobError::Busy { .. })), "{tagged:?}");
    assert_eq!(fixture.get(&store, b"wanted").unwrap().as_ref(), b"wanted");

    // Nor is a new one made visible, and nothing of it is left.
    let writer = Writer::create(&store.shelf, &store.session)
        .unwrap()
        .write_all(&[Bytes::from_static(b"wanted")])
        .unwrap();
    assert!(matches!(writer.finish(), Err(BlobError::Busy { .. })));
    assert_eq!(fixture.temp_files(), 0);
}

#[test]
fn a_tag_that_cannot_be_read_keeps_its_blob() {
    let check = |spoil: fn(&Path)| {
        let fixture = Fixture::new();
        let store = fixture.open();
        fixture.put(&fixture.open(), b"kept").unwrap();
        fixture.tag(&store, b"kept", Some(1));
        spoil(&fixture.tag_file(b"kept"));
        assert_eq!(fixture.collect(&store).removed, 0);
        assert_eq!(fixture.get(&store, b"kept").unwrap().as_ref(), b"kept");
    };
    check(|file| fs::write(file, b"tomorrow").unwrap());
    check(|file| fs::write(file, b"\xff\xff").unwrap());
    check(|file| fs::write(file, b"").unwrap());
    check(|file| {
        fs::remove_file(file).unwrap();
        symlink("/dev/null", file).unwrap();
    });
}

#[test]
fn report_49_links_among_tags_and_sessions_are_not_followed() {
    let fixture = Fixture::new();
    let elsewhere = fixture.parent.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("victim"), b"hands off").unwrap();
    let store = fixture.open();
    for name in ["tags", "sessions"] {
        symlink(&elsewhere, fixture.folder().join(name)).unwrap();
    }
    fixture.put(&store, b"linked").unwrap();
    fixture.tag(&store, b"linked", None);
    symlink(
        elsewhere.join("victim"),
        fixture.folder().join("sessions").join("ab".repeat(16)),
    )
    .unwrap();
    assert_eq!(fixture.collect(&fixture.open()).removed, 0);
    fixture.assert_whole(1);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
    assert_eq!(fs::read(elsewhere.join("victim")).unwrap(), b"hands off");
    assert_eq!(fixture.names_in("sessions").len(), 1, "the link went");
}

#[test]
fn a_clock_that_jumps_takes_nothing_that_is_kept() {
    let fixture = Fixture::new();
    let store = fixture.open();
    fixture.put(&fixture.open(), b"loose").unwrap();
    fixture.put(&fixture.open(), b"tagged").unwrap();
    fixture.put(&store, b"held").unwrap();
    fixture.tag(&store, b"tagged", None);
    for content in [b"loose".as_slice(), b"tagged", b"held"] {
        let file = fs::File::open(fixture.file(content)).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(10 * 365 * 24 * 3600))
            .unwrap();
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    let mut removed = Vec::new();
    for now_ms in [now, 0, i64::MIN, now + 1, FAR_MS, 0, i64::MAX] {
        let options = GcOptions {
            retention: Duration::ZERO,
            ..GcOptions::at(now_ms)
        };
        removed.push(fixture.runtime.block_on(store.gc(options)).unwrap().removed);
    }
    assert_eq!(removed, [0, 0, 0, 0, 1, 0, 0]);
    fixture.assert_whole(2);
    for content in [b"tagged".as_slice(), b"held"] {
        assert_eq!(fixture.get(&store, content).unwrap(), content);
    }
    // A put through the jump: the retention begins with the last put, not with the first.
    let file = fs::File::open(fixture.file(b"held")).unwrap();
    file.set_modified(UNIX_EPOCH).unwrap();
    fixture.put(&store, b"held").unwrap();
    drop(store);
    let options = GcOptions::at(now);
    assert_eq!(
        fixture
            .runtime
            .block_on(fixture.open().gc(options))
            .unwrap()
            .removed,
        0
    );
}

#[test]
fn a_collection_leaves_what_is_not_ours_and_takes_old_leftovers() {
    let fixture = Fixture::new();
    let store = fixture.open();
    fixture.put(&fixture.open(), b"loose").unwrap();
    let shard = fixture.file(b"loose").parent().unwrap().to_owned();
    for name in ["README", &"f".repeat(64), ".hidden"] {
        fs::write(shard.join(name), b"of somebody").unwrap();
    }
    fixture.leave("tmp", b"left by one that died");
    fs::write(fixture.folder().join("quarantine-x-y"), b"damaged").unwrap();
    assert_eq!(
        fixture
            .runtime
            .block_on(store.gc(GcOptions::at(0)))
            .unwrap()
            .examined,
        1
    );
    assert_eq!(fixture.root_names("quarantine-").len(), 1);
    assert_eq!(fixture.temp_files(), 0);
    assert_eq!(fixture.collect(&store).removed, 1);
    assert_eq!(fixture.root_names("quarantine-").len(), 0);
    assert_eq!(fs::read_dir(&shard).unwrap().count(), 3);
}

/// It may have been read wrongly, or be worth a look, however long ago it was stored.
#[test]
fn what_is_set_aside_stays_for_the_retention_from_then_on() {
    let fixture = Fixture::new();
    let store = fixture.open();
    fixture.put(&store, b"the true content").unwrap();
    let path = fixture.file(b"the true content");
    fs::write(&path, b"the fake content").unwrap();
    let file = fs::File::open(&path).unwrap();
    file.set_modified(UNIX_EPOCH).unwrap();
    fixture.get(&store, b"the true content").unwrap_err();

    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    let options = GcOptions::at(now_ms);
    let retention_ms = options.retention.as_millis() as i64;
    let collect = |options| fixture.runtime.block_on(store.gc(options)).unwrap();
    collect(options);
    collect(GcOptions::at(now_ms + retention_ms - 60_000));
    let dry_run = true;
    collect(GcOptions {
        dry_run,
        ..GcOptions::at(FAR_MS)
    });
    assert_eq!(fixture.root_names("quarantine-").len(), 1);
    collect(GcOptions::at(now_ms + retention_ms + 60_000));
    assert_eq!(fixture.root_names("quarantine-").len(), 0);
}

/// Nothing of it would keep a blob from a collector.
#[test]
fn what_is_not_ours_among_the_tags_is_no_tag_and_stays() {
    let fixture = Fixture::new();
    let store = fixture.open();
    fixture.put(&store, b"tagged").unwrap();
    fixture.tag(&store, b"tagged", None);
    let tags = fixture.folder().join("tags");
    fs::write(tags.join("README"), b"of somebody").unwrap();
    let name = fixture.tag_file(b"tagged").file_name().unwrap().to_owned();
    let other = if layout::fan_out(blob(b"tagged")) == "00" {
        "01"
    } else {
        "00"
    };
    for folder in ["zz", other] {
        fs::create_dir(tags.join(folder)).unwrap();
        fs::write(tags.join(folder).join(&name), b"never").unwrap();
    }
    assert_eq!(fixture.runtime.block_on(store.tags()).unwrap().len(), 1);
    let untag = store.untag("keep".parse().unwrap(), None);
    assert_eq!(fixture.runtime.block_on(untag).unwrap(), 1);
    assert!(tags.join("README").exists());
    assert!(fixture.root_names("quarantine-").is_empty());
}

/// What cannot have been written by a session holds nothing, and keeps no collector from its work.
#[test]
fn a_folder_or_a_pipe_among_the_sessions_does_not_stop_a_collection() {
    let fixture = Fixture::new();
    let store = fixture.open();
    fixture.put(&store, b"held").unwrap();
    fixture.put(&fixture.open(), b"loose").unwrap();
    let sessions = fixture.folder().join("sessions");
    fs::create_dir(sessions.join("ab".repeat(16))).unwrap();
    // One that a writer has open is not cleaned away.
    let pipe = sessions.join("cd".repeat(16));
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let open = fs::File::options().read(true).write(true).open(&pipe).unwrap();
    rustix::fs::flock(&open, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert_eq!(fixture.collect(&store).removed, 1);
    assert_eq!(fixture.get(&store, b"held").unwrap().as_ref(), b"held");
}

#[test]
fn a_damaged_blob_never_comes_to_its_end_and_gives_no_range() {
    let check = |damage: fn(&mut Vec<u8>)| {
        let fixture = Fixture::new();
        let store = fixture.open();
        let whole: Vec<u8> = (0..700_000_u32).map(|at| (at % 249) as u8).collect();
        let blob = fixture
            .runtime
            .block_on(store.put(whole.clone().into()))
            .unwrap()
            .blob;
        let spoil = || {
            let mut content = whole.clone();
            damage(&mut content);
            fs::write(fixture.file(&whole), content).unwrap();
        };
        spoil();
        // Where it lies stays the same file when it is moved aside.
        let damaged = fixture.parent.path().join("damaged");
        fs::hard_link(fixture.file(&whole), &damaged).unwrap();
        let streamed = fixture.runtime.block_on(async {
            let mut reader = store.get_stream(blob).await?;
            let mut bytes = Vec::new();
            while let Some(piece) = reader.next().await {
                match piece {
                    Ok(piece) => bytes.extend_from_slice(&piece),
                    Err(error) => {
                        assert!(reader.next().await.is_none(), "nothing comes after the error");
                        assert_ne!(bytes, whole);
                        // Not even what is there comes whole.
                        let size = fs::metadata(&damaged).unwrap().len();
                        assert!(
                            (bytes.len() as u64) < size || size == 0,
                            "{} of {size}",
                            bytes.len()
                        );
                        return Err(error);
                    }
                }
            }
            Ok(bytes)
        });
        let error = streamed.unwrap_err();
        assert!(matches!(error, BlobError::Corrupt { .. }), "{error:?}");
        assert!(error.to_string().contains(&blob.to_string()), "{error}");
        assert_eq!(fixture.root_names("quarantine-").len(), 1);

        spoil();
        let range = fixture.runtime.block_on(store.get_range(blob, 5..6));
        assert!(matches!(range, Err(BlobError::Corrupt { .. })), "{range:?}");
        spoil();
        let verified = fixture.runtime.block_on(store.verify(blob));
        assert!(matches!(verified, Err(BlobError::Corrupt { .. })), "{verified:?}");
        spoil();
        let got = fixture.runtime.block_on(store.get(blob));
        assert!(matches!(got, Err(BlobError::Corrupt { .. })));
        assert!(matches!(
            fixture.runtime.block_on(store.get(blob)),
            Err(BlobError::NotFound(_))
        ));
        assert_eq!(fixture.runtime.block_on(store.stats()).unwrap().quarantined, 4);
    };
    check(|content| content[0] ^= 1);
    check(|content| *content.last_mut().unwrap() ^= 1);
    check(|content| content.truncate(262_144));
    check(|content| content.truncate(0));
    check(|content| content.push(0));
}
