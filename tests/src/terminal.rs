use std::{
    fs::File,
    io::{Read, Write},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    process::Stdio,
    sync::mpsc::channel,
    thread,
};

use rustix::{
    fs::{Mode, OFlags, open},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};

use crate::{
    DEADLINE, Finished, Program,
    program::{Input, Running},
};

impl Program {
    /// Runs it with a person at a terminal: standard input and error are a pseudo-terminal. For each pair, once the
    /// screen shows the first, the second is typed. What the screen showed is in `stderr`.
    #[track_caller]
    pub fn run_at_terminal(self, dialogue: &[(&str, &str)]) -> Finished {
        let (mut keyboard, line) = pair();
        let mut screen = keyboard.try_clone().unwrap();
        let mut command = self.into_command();
        command
            .stdin(line.try_clone().unwrap())
            .stderr(line)
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program can be started");
        // The command holds the terminal's other end, so its end would never come.
        drop(command);
        let pid = Pid::from_child(&child);
        let mut output = child.stdout.take().unwrap();
        let (chunk, shown) = channel();
        thread::spawn(move || {
            let mut bytes = [0; 4_096];
            // At the end of the last program, a terminal's reading fails.
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                if chunk.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let (end, ended) = channel();
        thread::spawn(move || {
            let mut text = String::new();
            output
                .read_to_string(&mut text)
                .expect("the program prints UTF-8");
            end.send((text, child.wait().unwrap()))
        });
        let mut seen = Vec::new();
        for (wanted, typed) in dialogue {
            while !String::from_utf8_lossy(&seen).contains(wanted) {
                match shown.recv_timeout(DEADLINE) {
                    Ok(bytes) => seen.extend(bytes),
                    Err(_) => {
                        let _ = kill_process(pid, Signal::KILL);
                        panic!(
                            "the screen never showed `{wanted}`: {}",
                            String::from_utf8_lossy(&seen)
                        );
                    }
                }
            }
            keyboard.write_all(format!("{typed}\n").as_bytes()).unwrap();
        }
        let Ok((stdout, status)) = ended.recv_timeout(DEADLINE) else {
            let _ = kill_process(pid, Signal::KILL);
            panic!(
                "the program did not end in {DEADLINE:?}: {}",
                String::from_utf8_lossy(&seen)
            );
        };
        seen.extend(shown.iter().flatten());
        Finished {
            code: status.code(),
            stdout,
            stderr: String::from_utf8_lossy(&seen).into_owned(),
        }
    }
}

impl Program {
    /// Starts it with its standard input and error at a terminal, which this test holds. Its end is typed: `\u{4}`.
    pub fn start_at_terminal(self) -> Running {
        let (keyboard, line) = pair();
        let screen = keyboard.try_clone().unwrap();
        let mut command = self.into_command();
        command
            .stdin(line.try_clone().unwrap())
            .stderr(line)
            .stdout(Stdio::piped());
        let child = command.spawn().expect("the program can be started");
        // The command holds the terminal's other end, so its end would never come.
        drop(command);
        Running::watch(child, Some(Input(Box::new(keyboard))), screen)
    }
}

/// Both ends of a pseudo-terminal: the person's, and the program's.
fn pair() -> (File, OwnedFd) {
    let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&person).unwrap();
    unlockpt(&person).unwrap();
    let name = ptsname(&person, Vec::new()).unwrap();
    let path = std::ffi::OsStr::from_bytes(name.to_bytes());
    let program = open(
        path,
        OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .unwrap();
    (person.into(), program)
}
