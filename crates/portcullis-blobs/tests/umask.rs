//! The umask belongs to the whole process, so the one test that changes it has a process of its own.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use futures::TryStreamExt;
use portcullis_blobs::{BlobStore, Bytes, FsOptions, FsStore, Tag};
use rustix::fs::Mode;

#[test]
fn only_the_owner_may_look_whatever_the_umask() {
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for umask in [0o000, 0o777] {
        let parent = tempfile::tempdir().unwrap();
        let before = rustix::process::umask(Mode::from_raw_mode(umask));
        let store = FsStore::open(&parent.path().join("deep/er/blobs"), FsOptions::default());
        let stored = store.and_then(|store| {
            runtime.block_on(async {
                let stored = store.put(Bytes::from_static(b"for my eyes only")).await?;
                let tag = Tag {
                    name: "keep".parse().expect("a name"),
                    blob: stored.blob,
                    expires_ms: None,
                };
                store.tag(tag).await?;
                // What holds it goes with the handle, so that one stays to be looked at.
                Ok(store)
            })
        });
        rustix::process::umask(before);
        let store = stored.unwrap();
        runtime.block_on(async {
            let listed: Vec<_> = store.list().try_collect().await.unwrap();
            assert_eq!(listed.len(), 1);
            assert_eq!(store.verify(listed[0].blob).await.unwrap(), listed[0].size_bytes);
        });

        let mut files = 0;
        let mut folders = vec![parent.path().join("deep")];
        while let Some(folder) = folders.pop() {
            assert_eq!(mode(&folder), 0o700, "{folder:?} under umask {umask:o}");
            for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files += 1;
                    assert_eq!(mode(&path), 0o600, "{path:?} under umask {umask:o}");
                }
            }
        }
        assert_eq!(files, 4, "the blob, its tag, what holds it and the format");
    }
}
