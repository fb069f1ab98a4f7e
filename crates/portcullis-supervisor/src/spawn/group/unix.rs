use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tokio::process::Child;

/// Kills the whole group when dropped, however the keeper ends.
pub(super) struct Group(Option<Pid>);

impl Group {
    pub(super) fn of(pid: u32) -> Self {
        Self(i32::try_from(pid).ok().and_then(Pid::from_raw))
    }

    /// SIGTERM for each process of the group.
    pub(super) fn ask_to_end(&self) {
        self.signal(Signal::TERM);
    }

    /// SIGKILL for each.
    pub(super) fn kill(&self, _: &mut Child) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // A group that is gone already is what is wanted.
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Sees a child's end without reaping it: at each SIGCHLD of the process it asks, without waiting, whether it was
/// this child's.
pub(super) struct Exit {
    leader: Option<Pid>,
    children: Option<tokio::signal::unix::Signal>,
}

impl Exit {
    pub(super) fn of(group: &Group) -> Self {
        let children = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::child()).ok();
        Self {
            leader: group.0,
            children,
        }
    }

    /// Resolves once the child has exited. Where signals cannot be listened to, the child is reaped by this, and
    /// the kill of its group that follows relies on the group's id not being taken again within that moment.
    pub(super) async fn seen(&mut self, child: &mut Child) {
        if let (Some(leader), Some(children)) = (self.leader, &mut self.children) {
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            loop {
                match rustix::process::waitid(WaitId::Pid(leader), look) {
                    Ok(None) => {}
                    Ok(Some(_)) => return,
                    Err(_) => break,
                }
                if children.recv().await.is_none() {
                    break;
                }
            }
        }
        let _ = child.wait().await;
    }
}
