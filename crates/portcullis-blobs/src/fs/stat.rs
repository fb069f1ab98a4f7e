//! What `fstat(2)` tells of a file or folder.

use rustix::fs::{FileType, Mode, Stat};

/// Whether this is a plain file.
pub(crate) fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Whether this is a folder.
pub(crate) fn is_folder(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// The size in bytes.
pub(crate) fn size_bytes(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// When it was last written, in milliseconds since the Unix epoch.
pub(crate) fn modified_ms(stat: &Stat) -> i64 {
    let nanos = i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec);
    i64::try_from(nanos / 1_000_000).unwrap_or(i64::MAX)
}

/// Whether it belongs to this user.
pub(crate) fn is_own(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw()
}

/// Whether others than its owner may write to it.
pub(crate) fn others_may_write(stat: &Stat) -> bool {
    Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH)
}

/// Whether only this user can have written it: ours, and nobody else has a right to it.
pub(crate) fn is_private(stat: &Stat) -> bool {
    is_own(stat) && !Mode::from_raw_mode(stat.st_mode).intersects(Mode::RWXG | Mode::RWXO)
}
