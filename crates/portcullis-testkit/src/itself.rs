//! A test program as its own server.

use std::{io, path::PathBuf, process::ExitCode};

use crate::{Script, process::report, serve_stdio};

/// The variable in which a test program finds the script that it is to play.
const SCRIPT: &str = "PORTCULLIS_TESTKIT_SCRIPT";

/// How to start the test program at hand again, so that it plays a script over its own stdin and stdout.
///
/// The program plays it in a test whose only line is [`play_given`], and which gives back what that gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnServer {
    /// This program.
    pub program: PathBuf,
    /// What makes it run that test and nothing else.
    pub args: Vec<String>,
    /// The variable that it needs, and the script in it.
    pub variable: (String, String),
}

impl OwnServer {
    /// A server that plays `script` in `test`, which is named with its modules: `tests::scripted_server`.
    ///
    /// # Errors
    ///
    /// When the system does not say which program this is.
    pub fn new(test: &str, script: &Script) -> io::Result<Self> {
        // The same on every machine, however many processors it has.
        let args = ["--exact", test, "--nocapture", "-q", "--test-threads=2"];
        Ok(Self {
            program: std::env::current_exe()?,
            args: args.map(str::to_owned).to_vec(),
            variable: (SCRIPT.to_owned(), script.to_json()),
        })
    }
}

/// Plays the script that an [`OwnServer`] was started with; success at once where this is none.
#[must_use = "return it from the test"]
pub fn play_given() -> ExitCode {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the edge of the scripted server's own process"
    )]
    let given = std::env::var(SCRIPT);
    match given.map(|json| Script::from_json(&json)) {
        Ok(Ok(script)) => serve_stdio(&script),
        Ok(Err(error)) => {
            report(&error);
            ExitCode::from(2)
        }
        Err(_) => ExitCode::SUCCESS,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        process::{Command, Stdio},
    };

    use super::*;

    /// No test by itself: the one below starts this program again.
    #[test]
    fn scripted_server() -> ExitCode {
        play_given()
    }

    #[test]
    fn a_test_program_plays_its_own_server() {
        let script = Script::new("own");
        let own = OwnServer::new("itself::tests::scripted_server", &script).unwrap();
        let run = |script: &str| {
            #[expect(clippy::disallowed_methods, reason = "the server of this test")]
            let mut child = Command::new(&own.program)
                .args(&own.args)
                .env(&own.variable.0, script)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let line = concat!(
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#,
                "\n"
            );
            // One that does not even read has closed its end.
            let _ = io::Write::write_all(&mut child.stdin.take().unwrap(), line.as_bytes());
            let (mut out, mut error) = (String::new(), String::new());
            child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
            child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
            (child.wait().unwrap().success(), out, error)
        };
        let (_, out, _) = run(&own.variable.1);
        assert!(out.contains(r#""name":"own""#), "{out}");
        let (done, _, error) = run("{");
        assert!(!done && error.contains("error: "), "{error}");
    }
}
