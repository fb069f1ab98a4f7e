//! What a store is laid out over, what it tells from one, and what it cleans away.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use super::*;

#[test]
fn a_link_as_format_or_among_the_temporary_files_is_not_followed() {
    let fixture = Fixture::new();
    drop(fixture.open());
    let victim = fixture.parent.path().join("victim");
    fs::write(&victim, "portcullis-blobs 1\n").unwrap();
    symlink(&victim, fixture.folder().join("tmp").join("ab".repeat(16))).unwrap();
    drop(fixture.open());
    assert_eq!(fixture.temp_files(), 0);

    fs::remove_file(fixture.folder().join("format")).unwrap();
    symlink(&victim, fixture.folder().join("format")).unwrap();
    let error = FsStore::open(&fixture.folder(), FsOptions::default()).unwrap_err();
    assert!(matches!(error, BlobError::NotAStore { .. }), "{error:?}");
    assert!(victim.exists());
}

#[test]
fn leftovers_of_dead_writers_go_and_living_writers_stay() {
    let fixture = Fixture::new();
    let store = fixture.open();
    let living = Writer::create(&store.shelf, &store.session)
        .unwrap()
        .write_all(&[Bytes::from_static(b"slow")])
        .unwrap();
    fixture.leave("tmp", b"left by one that died");
    assert_eq!(fixture.temp_files(), 2);

    drop(fixture.open());
    assert_eq!(fixture.temp_files(), 1);
    fixture.assert_whole(0);
    living.finish().unwrap();
    fixture.assert_whole(1);
    assert_eq!(fixture.get(&store, b"slow").unwrap().as_ref(), b"slow");
    assert_eq!(fixture.temp_files(), 0);

    drop(Writer::create(&store.shelf, &store.session).unwrap());
    assert_eq!(fixture.temp_files(), 0);
}

#[test]
fn another_folder_or_a_newer_store_is_refused() {
    let check = |lay: fn(&Path), message: &str| {
        let fixture = Fixture::new();
        lay(&fixture.folder());
        let error = FsStore::open(&fixture.folder(), FsOptions::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains(message), "{error}");
        assert!(error.contains(&fixture.folder().display().to_string()), "{error}");
    };
    check(
        |folder| fs::write(folder, b"a file").unwrap(),
        "it is not a folder",
    );
    check(
        |folder| {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("diary.txt"), b"").unwrap();
        },
        "it holds `diary.txt`",
    );
    check(
        |folder| {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join(OsStr::from_bytes(b"diary\xff")), b"").unwrap();
        },
        "it holds `diary\u{fffd}`",
    );
    let with_format = |text: &str, message: &str| {
        let fixture = Fixture::new();
        fixture.put(&fixture.open(), b"stored before").unwrap();
        fs::write(fixture.folder().join("format"), text).unwrap();
        let error = FsStore::open(&fixture.folder(), FsOptions::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains(message), "{error}");
        fixture.assert_whole(1);
    };
    with_format(
        "portcullis-blobs 2\n",
        "has format 2, and this version knows up to 1",
    );
    let long = format!("portcullis-blobs 3 {}\n", "é".repeat(100));
    with_format(&long, "has format 3, and this version knows up to 1");
    with_format("portcullis-blobs 2\nand more\n", "has format 2");
    with_format("portcullis-blobs 1\nand more\n", "its `format` cannot be read");
    with_format("portcullis-blobs\n", "its `format` cannot be read");
    with_format("", "its `format` cannot be read");
}

/// It may have names that ours have, too.
#[test]
fn no_store_is_laid_over_files_of_somebody_and_none_of_them_goes() {
    let digits = "0123456789abcdef".repeat(2);
    let hash = "0123456789abcdef".repeat(4);
    let check = |file: &str, content: &[u8], found: &str| {
        let fixture = Fixture::new();
        let file = fixture.folder().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, content).unwrap();
        fs::set_permissions(fixture.folder(), PermissionsExt::from_mode(0o755)).unwrap();
        let error = FsStore::open(&fixture.folder(), FsOptions::default()).unwrap_err();
        assert!(matches!(error, BlobError::NotAStore { .. }), "{error:?}");
        assert!(
            error.to_string().contains(&format!("it holds `{found}`")),
            "{error}"
        );
        assert_eq!(fs::read(&file).unwrap(), content);
        let mode = fs::metadata(fixture.folder()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755, "nor is its folder changed");
        assert_eq!(fs::read_dir(fixture.folder()).unwrap().count(), 1);
    };
    check("tmp/precious", b"x", "tmp/precious");
    check("tmp/deep/precious", b"x", "tmp/deep");
    check(&format!("tmp/{digits}"), &[7; 65], &format!("tmp/{digits}"));
    check(&format!("tmp/{digits}/precious"), b"x", &format!("tmp/{digits}"));
    check("tmp", b"a file", "tmp");
    check(&format!("blake3/01/{hash}"), b"of another program", "blake3/01");

    // In a store, too, nothing goes that is not ours.
    let fixture = Fixture::new();
    fixture.put(&fixture.open(), b"makes the folders").unwrap();
    let planted = ["tmp", "sessions"].map(|name| fixture.folder().join(name).join("precious"));
    for file in &planted {
        fs::write(file, b"x").unwrap();
    }
    let store = fixture.open();
    fixture.runtime.block_on(store.gc(GcOptions::at(0))).unwrap();
    assert!(planted.iter().all(|file| file.exists()));
}

#[test]
fn to_look_at_a_store_makes_none_and_changes_nothing() {
    let fixture = Fixture::new();
    let look = || FsStore::open_existing(&fixture.folder(), FsOptions::default());
    let check = |is: bool, message: &str| {
        let error = look().unwrap_err();
        assert!(error.to_string().contains(message), "{error:?}");
        assert!(
            error
                .to_string()
                .contains(&fixture.folder().display().to_string()),
            "{error}"
        );
        assert_eq!(fixture.folder().exists(), is);
    };
    let nothing = "nothing was ever stored there";
    check(false, nothing);
    fs::create_dir(fixture.folder()).unwrap();
    fs::set_permissions(fixture.folder(), PermissionsExt::from_mode(0o755)).unwrap();
    check(true, nothing);
    // Of a laying out that was cut short.
    for name in ["tmp", "blake3"] {
        fs::create_dir(fixture.folder().join(name)).unwrap();
        check(true, nothing);
        fs::remove_dir(fixture.folder().join(name)).unwrap();
    }
    fixture.leave("", b"precious");
    check(true, "is not a blob store");
    assert_eq!(fs::read_dir(fixture.folder()).unwrap().count(), 1);
    let mode = fs::metadata(fixture.folder()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);

    fs::remove_dir_all(fixture.folder()).unwrap();
    fixture.put(&fixture.open(), b"there").unwrap();
    assert_eq!(
        fixture.get(&look().unwrap(), b"there").unwrap().as_ref(),
        b"there"
    );
    fs::remove_file(fixture.folder().join("format")).unwrap();
    check(true, "and no `format`");
    fixture.assert_whole(1);
}

#[test]
fn a_laying_out_that_was_cut_short_is_finished() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.folder().join("tmp")).unwrap();
    fixture.leave("tmp", b"portcu");
    fs::create_dir(fixture.folder().join("blake3")).unwrap();
    let store = fixture.open();
    fixture.put(&store, b"works").unwrap();
    assert_eq!(fixture.temp_files(), 0);
    assert_eq!(fixture.root_names("format"), ["format"]);
}

#[test]
fn what_the_system_says_becomes_what_to_do() {
    let check = |errno, message: &str| {
        let error = layout::error("write a blob", Path::new("blobs"), errno);
        assert!(error.to_string().contains(message), "{error}");
        let io = layout::io_error("write a blob", Path::new("blobs"), errno.into());
        assert_eq!(io.to_string(), error.to_string());
    };
    use rustix::io::Errno;
    check(
        Errno::NOSPC,
        "the disk that holds the blob store at `blobs` is full",
    );
    check(
        Errno::DQUOT,
        "the disk that holds the blob store at `blobs` is full",
    );
    check(
        Errno::ROFS,
        "the blob store at `blobs` cannot be written: its file system can only be read",
    );
    // It may have been reading, too.
    for errno in [Errno::ACCESS, Errno::PERM] {
        check(
            errno,
            "this user may not write a blob in the blob store at `blobs`: make the folder, and all in it",
        );
    }
    check(Errno::IO, "could not write a blob in the blob store at `blobs`");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Whoever owns the folder, or can write to it, can list what is stored and take it away.
#[test]
fn a_folder_that_others_can_write_to_is_made_private_or_refused() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.folder()).unwrap();
    for is_there in [false, true] {
        fs::set_permissions(fixture.folder(), PermissionsExt::from_mode(0o777)).unwrap();
        fixture.put(&fixture.open(), b"private").unwrap();
        assert_eq!(mode(&fixture.folder()), 0o700, "{is_there}");
    }

    // It takes root to give a folder away; nor does root put anything into the hands of a user.
    if rustix::process::geteuid().is_root() {
        fs::set_permissions(fixture.folder(), PermissionsExt::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(fixture.folder(), Some(1), None).unwrap();
        for opened in [FsStore::open, FsStore::open_existing] {
            let error = opened(&fixture.folder(), FsOptions::default()).unwrap_err();
            assert!(matches!(error, BlobError::Insecure { .. }), "{error:?}");
            for part in ["belongs to another user", "choose one on another file system"] {
                assert!(error.to_string().contains(part), "{error}");
            }
            assert!(
                error
                    .to_string()
                    .contains(&fixture.folder().display().to_string()),
                "{error}"
            );
        }
        assert_eq!(mode(&fixture.folder()), 0o755);
    }
}

/// Whoever could write to the root once may have made them, and would change what is written there.
#[test]
fn a_folder_in_the_store_that_others_can_write_to_is_made_private_or_refused() {
    let fixture = Fixture::new();
    let tag = Tag {
        name: "keep".parse().unwrap(),
        blob: blob(b"private"),
        expires_ms: None,
    };
    let work = || -> Result<(), BlobError> {
        let store = FsStore::open(&fixture.folder(), FsOptions::default())?;
        fixture.put(&store, b"private")?;
        fixture.get(&store, b"private")?;
        store.shelf.tag(&tag)
    };
    work().unwrap();
    let shard = layout::fan_out(tag.blob);
    let inner = [
        "tmp",
        "sessions",
        "blake3",
        "tags",
        &format!("blake3/{shard}"),
        &format!("tags/{shard}"),
    ];
    for name in inner {
        let folder = fixture.folder().join(name);
        fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
        work().unwrap();
        assert_eq!(mode(&folder), 0o700, "{name}");

        // It takes root to give a folder away.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&folder, Some(1), None).unwrap();
            fixture.leave("tmp", b"of somebody");
            let error = work().unwrap_err();
            assert!(matches!(error, BlobError::Insecure { .. }), "{name}: {error:?}");
            assert_eq!(fixture.temp_files(), usize::from(name == "tmp"), "{name}");
            let named = folder.file_name().unwrap().to_str().unwrap();
            assert!(error.to_string().contains(named), "{error}");
            std::os::unix::fs::chown(&folder, Some(0), None).unwrap();
        }
    }
    work().unwrap();
    fixture.assert_whole(1);
}

/// An empty folder of a name that ours have is no foreign file, whoever made it.
#[test]
fn no_store_is_laid_out_over_folders_of_somebody_else() {
    for name in ["blake3", "tmp"] {
        let fixture = Fixture::new();
        let folder = fixture.folder().join(name);
        fs::create_dir_all(&folder).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&folder, Some(1), None).unwrap();
            let error = FsStore::open(&fixture.folder(), FsOptions::default()).unwrap_err();
            assert!(matches!(error, BlobError::Insecure { .. }), "{name}: {error:?}");
            assert!(!fixture.folder().join("format").exists());
            std::os::unix::fs::chown(&folder, Some(0), None).unwrap();
        }
        fixture.put(&fixture.open(), b"works").unwrap();
    }
}

#[test]
fn what_is_private_belongs_to_this_user_and_nobody_else_has_a_right_to_it() {
    let ours = rustix::fs::fstat(tempfile::tempfile().unwrap()).unwrap();
    let check = |uid: u32, mode: u32, expected: [bool; 3]| {
        let mut stat = ours;
        stat.st_uid += uid;
        stat.st_mode = mode;
        let told = [
            stat::is_own(&stat),
            stat::others_may_write(&stat),
            stat::is_private(&stat),
        ];
        assert_eq!(told, expected, "{uid} {mode:o}");
    };
    check(0, 0o600, [true, false, true]);
    check(1, 0o600, [false, false, false]);
    for mode in [0o620, 0o602] {
        check(0, mode, [true, true, false]);
    }
    for mode in [0o640, 0o610, 0o604, 0o601] {
        check(0, mode, [true, false, false]);
    }
}
