//! What Linux says of a file system by its number (`statfs(2)`), which no call tells.

use rustix::fs::FsWord;

/// Whether a file system of this type (`statfs(2)`) is one of several machines of which the kernel locks folders here
/// alone. NFS and SMB have locks for files only.
pub(super) fn has_local_locks(file_system: FsWord) -> bool {
    const NFS: u32 = 0x6969;
    const CIFS: u32 = 0xFF53_4D42;
    const SMB2: u32 = 0xFE53_4D42;
    is_one_of(file_system, [NFS, CIFS, SMB2])
}

/// Whether a file system of this type (`statfs(2)`) lies on this machine and knows `RWF_NOWAIT` (`preadv2(2)`).
pub(super) fn has_nowait(file_system: FsWord) -> bool {
    const EXT: u32 = 0xEF53;
    const XFS: u32 = 0x5846_5342;
    const BTRFS: u32 = 0x9123_683E;
    is_one_of(file_system, [EXT, XFS, BTRFS])
}

/// Where its word is a short one it may have a sign.
fn is_one_of(file_system: FsWord, known: [u32; 3]) -> bool {
    known.map(|known| known as FsWord).contains(&file_system)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::folder::Folder;

    #[test]
    fn file_systems_are_known_by_their_number() {
        let check = |number: u32, is_of_several_machines: bool, is_nowait: bool| {
            let number = number as FsWord;
            assert_eq!(has_local_locks(number), is_of_several_machines, "{number:x}");
            assert_eq!(has_nowait(number), is_nowait, "{number:x}");
        };
        check(u32::try_from(rustix::fs::NFS_SUPER_MAGIC).unwrap(), true, false);
        // SMB, in two versions.
        check(0xFF53_4D42, true, false);
        check(0xFE53_4D42, true, false);
        // ext4, XFS, Btrfs.
        check(0xEF53, false, true);
        check(0x5846_5342, false, true);
        check(0x9123_683E, false, true);
        // tmpfs, overlayfs, FUSE.
        check(0x0102_1994, false, false);
        check(0x794C_7630, false, false);
        check(0x6573_5546, false, false);

        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::open(parent.path()).unwrap();
        let found = rustix::fs::statfs(parent.path()).unwrap().f_type;
        assert_eq!(folder.tells_what_is_at_hand(), has_nowait(found));
    }
}
