//! What happens to a blob on its way to the disk, in which order, for tests to look at: no crash of a process shows
//! whether a sync was left out.

/// One step that decides what outlasts a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// A file's content is on the disk.
    FileSynced,
    /// A file has its name.
    Named,
    /// The names in a folder are on the disk.
    FolderSynced,
    /// The whole file system is.
    FileSystemSynced,
}

/// Says that it happened, on this thread.
#[cfg(not(test))]
pub(crate) fn happened(_: Step) {}

#[cfg(test)]
pub(crate) use recorded::{happened, taken};

#[cfg(test)]
mod recorded {
    use std::cell::RefCell;

    use super::Step;

    thread_local! {
        static STEPS: RefCell<Vec<Step>> = const { RefCell::new(Vec::new()) };
    }

    pub(crate) fn happened(step: Step) {
        STEPS.with_borrow_mut(|steps| steps.push(step));
    }

    /// What happened on this thread since this was last asked.
    pub(crate) fn taken() -> Vec<Step> {
        STEPS.take()
    }
}
