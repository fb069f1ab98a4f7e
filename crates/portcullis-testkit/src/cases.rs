//! The ways in which servers are known to go wrong, as data.

mod calls;
mod start;

use std::path::{Path, PathBuf};

use crate::{Behaviour, Process, Script, Tool};

/// A server that goes wrong in one way, and what a good client makes of it.
///
/// Each has a tool [`Case::ECHO`], which gives its arguments back, and where calls are what goes wrong, the tool
/// [`Case::TOOL`] beside it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Case {
    /// What goes wrong, and the server's name: `hung-handshake`.
    pub name: String,
    /// A public report of it: repository and number.
    pub report: &'static str,
    /// The server.
    pub script: Script,
    /// What a client should come to.
    pub ends: Ends,
    /// How many calls of [`Case::TOOL`] to make at once: none where calls are not what goes wrong.
    pub calls: usize,
    /// Tools that have to be listed in the end.
    pub listed: &'static [&'static str],
    /// A file that has exactly one line in the end: a call that was executed once, or was cancelled once.
    pub one_line: Option<PathBuf>,
    /// A file of process ids, none of which may be there once the connection has been closed.
    pub pids: Option<PathBuf>,
    /// Whether it is about the process or what it prints, so that there is nothing to see of it over HTTP.
    pub stdio_only: bool,
}

/// What a client should come to. Whatever it is, other servers' callers notice nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// It comes up, its tools are listed, and calls are answered.
    Well,
    /// The call ends at once, with an error or with what could be saved of the answer; the connection stays.
    CallEnds,
    /// The call ends when its deadline has come, if not before; the connection stays.
    CallTimesOut,
    /// The call fails at once, and its outcome is not known; the server is started again and answers the next one.
    Lost,
    /// It never comes up, and whoever calls it hears so.
    NeverUp,
}

impl Case {
    /// The tool that gives its arguments back.
    pub const ECHO: &'static str = "echo";
    /// The tool whose calls go wrong.
    pub const TOOL: &'static str = "tool";

    fn new(name: &str, report: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            report,
            script: Script::new(name).tool(Tool::new(Self::ECHO, Behaviour::Echo)),
            ends: Ends::Well,
            calls: 0,
            listed: &[Self::ECHO],
            one_line: None,
            pids: None,
            stdio_only: false,
        }
    }

    /// One whose calls do this and end so.
    fn call(name: &str, report: &'static str, behaviour: Behaviour, ends: Ends) -> Self {
        let case = Self::new(name, report);
        Self {
            script: case.script.tool(Tool::new(Self::TOOL, behaviour)),
            ends,
            calls: 1,
            ..case
        }
    }

    fn never_up(name: &str, report: &'static str, change: impl FnOnce(Script) -> Script) -> Self {
        Self {
            ends: Ends::NeverUp,
            listed: &[],
            ..Self::new(name, report).with(change)
        }
    }

    fn with(self, change: impl FnOnce(Script) -> Script) -> Self {
        Self {
            script: change(self.script),
            ..self
        }
    }

    fn of_process(self, process: Process) -> Self {
        Self {
            stdio_only: true,
            ..self.with(|script| script.process(process))
        }
    }
}

/// Every known case. What servers note goes into files in `folder`, which must be there.
///
/// ```
/// use portcullis_testkit::{Case, Ends, cases};
///
/// let folder = tempfile::tempdir()?;
/// for case in cases(folder.path()) {
///     // A client's test starts `case.script`, by its process or by `HttpServer`, and holds against `case.ends`
///     // what comes of it.
///     let expected = match case.ends {
///         Ends::Well | Ends::CallEnds | Ends::CallTimesOut => "the server goes on",
///         Ends::Lost => "it is started again",
///         Ends::NeverUp => "it is given up after a while",
///     };
///     println!("{} ({}): {expected}", case.name, case.report);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn cases(folder: &Path) -> Vec<Case> {
    [
        start::handshakes(),
        start::listings(),
        start::processes(folder),
        calls::bad_replies(),
        calls::calls(folder),
        calls::ends(folder),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_case_has_a_name_of_its_own_and_a_script_that_can_be_played() {
        let all = cases(Path::new("/tmp"));
        let names: HashSet<_> = all.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        for case in &all {
            let read_back = Script::from_json(&case.script.to_json()).unwrap();
            assert_eq!(read_back, case.script, "{}", case.name);
            let has = |name: &str| case.script.tools.iter().any(|tool| tool.name == name);
            assert!(has(Case::ECHO), "{}", case.name);
            assert_eq!(has(Case::TOOL), case.calls > 0, "{}", case.name);
        }
    }
}
