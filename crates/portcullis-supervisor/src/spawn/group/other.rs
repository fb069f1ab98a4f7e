use tokio::process::Child;

/// No group: the child alone, which is killed where its handle is dropped.
pub(super) struct Group;

impl Group {
    pub(super) fn of(_: u32) -> Self {
        Self
    }

    /// Nothing can be asked of a process here, but by the end of its input.
    pub(super) fn ask_to_end(&self) {}

    pub(super) fn kill(&self, child: &mut Child) {
        // One that is gone already is what is wanted.
        let _ = child.start_kill();
    }
}

/// Sees the child's end.
pub(super) struct Exit;

impl Exit {
    pub(super) fn of(_: &Group) -> Self {
        Self
    }

    pub(super) async fn seen(&mut self, child: &mut Child) {
        let _ = child.wait().await;
    }
}
