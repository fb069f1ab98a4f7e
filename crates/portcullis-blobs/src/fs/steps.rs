//! What happens to a blob on its way to the disk, in which order, for tests to look at: no crash of a process shows
//! whether a sync was left out. Tests can have something happen at such a step, too.

#[cfg(not(test))]
use std::fs::File;
use std::os::fd::AsFd;

/// One step that decides what outlasts a power cut, or between which others may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Something was written whose name is not known yet.
    WrittenMeanwhile,
    /// The content of that file is on the disk.
    FileSynced(Inode),
    /// A file has its name.
    Named,
    /// The names in that folder are on the disk.
    FolderSynced(Inode),
    /// The whole file system is.
    FileSystemSynced,
    /// A file was made that is not locked yet.
    Created,
    /// A collector has chosen what goes, and is about to look again.
    Chosen,
}

/// Which file or folder of the file system.
pub(crate) type Inode = u64;

/// Says that it happened, on this thread.
#[cfg(not(test))]
pub(crate) fn happened(_: impl FnOnce() -> Step) {}

/// Hands on the file of a blob that was opened to be read.
#[cfg(not(test))]
pub(crate) fn opened(file: File) -> File {
    file
}

#[cfg(test)]
pub(crate) use recorded::{at_next, happened, opened, taken, while_opened};

/// Which one is open there, 0 where that cannot be told.
pub(crate) fn inode(open: impl AsFd) -> Inode {
    rustix::fs::fstat(open).map_or(0, |stat| stat.st_ino)
}

#[cfg(test)]
mod recorded {
    use std::{cell::RefCell, fs::File};

    use super::Step;

    /// What happens at a step, once.
    type Meanwhile = (Step, Box<dyn FnOnce()>);

    /// What becomes of a file that was opened to be read.
    type Opened = Box<dyn Fn(File) -> File>;

    thread_local! {
        static STEPS: RefCell<Vec<Step>> = const { RefCell::new(Vec::new()) };
        static MEANWHILE: RefCell<Option<Meanwhile>> = const { RefCell::new(None) };
        static OPENED: RefCell<Option<Opened>> = const { RefCell::new(None) };
    }

    pub(crate) fn happened(step: impl FnOnce() -> Step) {
        let step = step();
        // These two tell nothing of what is on the disk.
        if !matches!(step, Step::Created | Step::Chosen) {
            STEPS.with_borrow_mut(|steps| steps.push(step));
        }
        let meanwhile = MEANWHILE.with_borrow_mut(|next| next.take_if(|(at, _)| *at == step));
        if let Some((_, does)) = meanwhile {
            does();
        }
    }

    /// What happened on this thread since this was last asked.
    pub(crate) fn taken() -> Vec<Step> {
        STEPS.take()
    }

    /// Does this when `step` happens next on this thread.
    pub(crate) fn at_next(step: Step, does: impl FnOnce() + 'static) {
        MEANWHILE.set(Some((step, Box::new(does))));
    }

    pub(crate) fn opened(file: File) -> File {
        OPENED.with_borrow(|becomes| match becomes {
            Some(becomes) => becomes(file),
            None => file,
        })
    }

    /// Does this while each file that is opened on this thread to be read `becomes` another, or has something happen to it.
    pub(crate) fn while_opened<T>(becomes: impl Fn(File) -> File + 'static, does: impl FnOnce() -> T) -> T {
        OPENED.set(Some(Box::new(becomes)));
        let done = does();
        OPENED.set(None);
        done
    }
}
