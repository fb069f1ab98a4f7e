//! Which children this process has.

use std::{fs, io};

use rustix::process::{Pid, getpid};

/// The children of this process, which has one thread: those it started and those it inherited. Some may be missing
/// while others come and go; who must be sure asks `waitid`.
pub(super) fn listed() -> io::Result<Vec<Pid>> {
    match fs::read_to_string("/proc/thread-self/children") {
        Ok(text) => Ok(text.split_ascii_whitespace().filter_map(pid).collect()),
        // A kernel without this file (`CONFIG_PROC_CHILDREN`).
        Err(error) if error.kind() == io::ErrorKind::NotFound => searched(),
        Err(error) => Err(error),
    }
}

/// The same by looking at each process there is.
fn searched() -> io::Result<Vec<Pid>> {
    let parent = getpid();
    let processes = fs::read_dir("/proc")?.flatten();
    let children: Vec<Pid> = processes
        .filter_map(|entry| pid(entry.file_name().to_str()?))
        .filter(|process| parent_of(*process) == Some(parent))
        .collect();
    Ok(children)
}

/// proc(5): `pid (name) state ppid …`, and a name may hold any character.
fn parent_of(process: Pid) -> Option<Pid> {
    let text = fs::read(format!("/proc/{}/stat", process.as_raw_pid())).ok()?;
    let after_name = text.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(text.get(after_name + 1..)?).ok()?;
    pid(rest.split_ascii_whitespace().nth(1)?)
}

fn pid(text: &str) -> Option<Pid> {
    text.parse().ok().and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// A child whose name is made to look like the end of the field.
    #[test]
    fn a_child_is_found_by_looking_at_each_process() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("a) S 1 (b");
        #[expect(clippy::disallowed_methods, reason = "a program to look for")]
        fs::copy("/bin/cat", &program).unwrap();
        #[expect(clippy::disallowed_methods, reason = "a child to look for")]
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let found = searched().unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(found.contains(&Pid::from_child(&child)), "{found:?}");
        assert!(!searched().unwrap().contains(&Pid::from_child(&child)));
    }
}
