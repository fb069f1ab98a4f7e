use std::{
    ffi::OsStr,
    os::unix::{ffi::OsStrExt, fs::symlink},
};

use super::*;

#[expect(clippy::disallowed_methods, reason = "a test lays out a folder")]
fn write(folder: &Path, name: &str, text: &str) {
    fs::write(folder.join(name), text).unwrap();
}

#[test]
fn a_folder_is_held_to_its_seal() {
    let root = tempfile::tempdir().unwrap();
    let folder = PolicyFolder::new(root.path());
    let demanding = folder.clone().sealed(true);
    assert!(matches!(folder.load(), Err(PolicyFolderError::Empty(_))));
    write(root.path(), "team.rules", "deny mcp.shell.*\n");
    folder.load().unwrap();
    let told = demanding.load().unwrap_err().to_string();
    assert!(told.contains("not sealed"), "{told}");
    let seal = Seal::of(&folder.files().unwrap()).unwrap().to_string();
    write(root.path(), Seal::FILE_NAME, &seal);
    demanding.load().unwrap();
    write(root.path(), "team.rules", "# deny mcp.shell.*\n");
    for folder in [folder, demanding] {
        let told = folder.load().unwrap_err().to_string();
        let expected = "team.rules:1: this file is not the one that was sealed";
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
fn each_way_to_touch_it_shows_and_looking_does_not() {
    let root = tempfile::tempdir().unwrap();
    let folder = PolicyFolder::new(root.path().join("policies"));
    assert_eq!(folder.stamp(), FolderStamp::Unreadable(io::ErrorKind::NotFound));
    #[expect(clippy::disallowed_methods, reason = "a test lays out a folder")]
    fs::create_dir(folder.path()).unwrap();
    let mut before = folder.stamp();
    let mut check = |what: &str, seen: bool| {
        let after = folder.stamp();
        assert_eq!(after != before, seen, "{what}");
        before = after;
    };
    write(folder.path(), "a.rules", "default ask");
    check("a new file", true);
    folder.files().unwrap();
    check("reading", false);
    write(folder.path(), "notes.txt", "x");
    check("a file that is none of ours", false);
    write(folder.path(), "b.tmp", "default ask");
    #[expect(clippy::disallowed_methods, reason = "a test lays out a folder")]
    fs::rename(folder.path().join("b.tmp"), folder.path().join("a.rules")).unwrap();
    check("another file of the same name and text", true);
    write(folder.path(), Seal::FILE_NAME, "x");
    check("a seal", true);
    symlink("nowhere", folder.path().join("l.rules")).unwrap();
    check("a link", true);
    assert!(folder.files().is_err(), "it leads nowhere");
}

#[test]
fn files_are_named_as_they_are_called_in_their_folder() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    write(root.path(), "b.rules", "deny mcp.b.*");
    write(root.path(), "elsewhere.txt", "// a");
    symlink(at("elsewhere.txt"), at("a.cedar")).unwrap();
    write(root.path(), ".hidden.rules", "allow mcp.*");
    symlink(at("nowhere"), at(".#b.rules")).unwrap();
    let files = PolicyFolder::new(root.path()).files().unwrap();
    let found: Vec<_> = files
        .iter()
        .map(|file| (file.name.as_str(), file.text.as_str()))
        .collect();
    assert_eq!(found, [("a.cedar", "// a"), ("b.rules", "deny mcp.b.*")]);
}

/// Lays out one file by `make` and reads the folder.
fn refused(make: impl FnOnce(&Path)) -> String {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "good.rules", "default ask");
    make(root.path());
    PolicyFolder::new(root.path()).load().unwrap_err().to_string()
}

#[test]
fn a_folder_of_very_many_or_very_large_files_is_refused() {
    let told = refused(|folder| {
        (0..MAX_FILES).for_each(|number| write(folder, &format!("{number}.rules"), ""));
    });
    assert!(told.contains("over 10000 files of policies"), "{told}");
    let large = " ".repeat(4 * 1024 * 1024);
    let told = refused(|folder| {
        (0..16).for_each(|number| write(folder, &format!("{number}.cedar"), &large));
    });
    assert!(told.contains("over 64 MiB together"), "{told}");
}

#[test]
fn what_is_no_plain_text_is_refused_with_its_name() {
    #[expect(clippy::disallowed_methods, reason = "a test lays out a folder")]
    fn raw(path: &Path, bytes: &[u8]) {
        fs::write(path, bytes).unwrap();
    }
    let told = refused(|folder| raw(&folder.join("x.rules"), b"allow mcp.\xff"));
    assert!(told.contains("x.rules`: its text is not UTF-8"), "{told}");
    let told = refused(|folder| raw(&folder.join(OsStr::from_bytes(b"x\xff.rules")), b""));
    assert!(told.contains("its name is not UTF-8"), "{told}");
    let told = refused(|folder| raw(&folder.join("x\n.rules"), b""));
    assert!(told.contains("its name holds a control character"), "{told}");
    let told = refused(|folder| raw(&folder.join("x.cedar"), &vec![b' '; 4 * 1024 * 1024 + 1]));
    assert!(told.contains("x.cedar`: it is over 4 MiB"), "{told}");
    let told = refused(|folder| symlink(folder.join("nowhere"), folder.join("x.rules")).unwrap());
    assert!(told.contains("x.rules`: No such file"), "{told}");
    // What never ends is not read.
    let told = refused(|folder| symlink("/dev/zero", folder.join("x.rules")).unwrap());
    assert!(told.contains("x.rules`: it is no plain file"), "{told}");
    let told = refused(|folder| symlink(folder, folder.join("x.rules")).unwrap());
    assert!(told.contains("x.rules`: it is no plain file"), "{told}");
}
