//! A script as a process of its own.

use std::{
    fs::File,
    io::{self, Write},
    os::{fd::AsFd, unix::process::CommandExt},
    process::{Command, ExitCode, Stdio},
    sync::{Arc, atomic::AtomicBool},
};

use crate::{
    Descendant, Detach, Error, ExitReason, Process, Script,
    engine::{flood_stderr, serve},
    files::append_line,
};

/// Plays a script over the process's own stdin and stdout, after doing what [`Script::process`] says. The exit code
/// is the script's; a script that cannot be played is told on stderr and ends with code 2.
///
/// The caller should return the code from `main` at once: threads that still read or wait end with the process.
#[must_use = "return it from `main`"]
pub fn serve_stdio(script: &Script) -> ExitCode {
    match play(script) {
        Ok(reason) => reason.into(),
        Err(error) => {
            report(&error);
            ExitCode::from(2)
        }
    }
}

/// Tells an error and its causes on stderr, in one line.
pub(crate) fn report(error: &dyn std::error::Error) {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    let text = causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"));
    // Nothing better can be done where stderr is closed.
    let _ = writeln!(io::stderr(), "error: {text}");
}

fn play(script: &Script) -> Result<ExitReason, Error> {
    script.check()?;
    if let Some(reason) = prepare(&script.process)? {
        return Ok(reason);
    }
    serve(script, io::stdin(), take_stdout()?)
}

/// Does what the script says of the process; a reason where that is its end.
fn prepare(process: &Process) -> Result<Option<ExitReason>, Error> {
    if let Some(file) = &process.pid_file {
        append_line(file, &std::process::id().to_string())?;
    }
    if let Some(unless) = &process.exit_unless
        && !unless.file.exists()
    {
        return Ok(Some(ExitReason::Scripted(unless.code)));
    }
    if process.ignore_term {
        // A handler that does nothing but set a flag takes the place of the default, which would end the process.
        signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::new(AtomicBool::new(false))).map_err(
            |source| Error::SetUp {
                what: "ignore SIGTERM",
                source,
            },
        )?;
    }
    for descendant in &process.descendants {
        leave_behind(descendant)?;
    }
    flood_stderr(process.stderr_bytes);
    Ok(None)
}

/// Starts a process that sleeps, and does not wait for it.
fn leave_behind(descendant: &Descendant) -> Result<(), Error> {
    let sleep = if descendant.ignore_term {
        r#"trap "" TERM; sleep "$1""#
    } else {
        r#"exec sleep "$1""#
    };
    let mut words = vec!["sh", "-c", sleep, "sh"];
    if descendant.detach == Detach::Session {
        words.insert(0, "setsid");
    }
    let (program, arguments) = words
        .split_first()
        .map_or(("sh", &[][..]), |(program, rest)| (*program, rest));
    #[expect(
        clippy::disallowed_methods,
        reason = "a scripted server leaves processes behind for the hub to end"
    )]
    let mut command = Command::new(program);
    command
        .args(arguments)
        .arg(descendant.seconds.to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    command.stdout(if descendant.holds_stdout {
        Stdio::inherit()
    } else {
        Stdio::null()
    });
    if descendant.detach == Detach::Group {
        command.process_group(0);
    }
    let child = command.spawn().map_err(|source| Error::SetUp {
        what: "start a descendant",
        source,
    })?;
    descendant
        .pid_file
        .as_deref()
        .map_or(Ok(()), |file| append_line(file, &child.id().to_string()))
}

/// Takes stdout for the server alone: descriptor 1 then leads nowhere, so that closing the server's copy ends the
/// pipe for its reader.
fn take_stdout() -> Result<File, Error> {
    let take = || {
        let pipe = io::stdout().as_fd().try_clone_to_owned()?;
        #[expect(
            clippy::disallowed_methods,
            reason = "nothing is written there: it keeps descriptor 1 from reuse"
        )]
        let nowhere = File::options().write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdout(nowhere)?;
        Ok(File::from(pipe))
    };
    take().map_err(|source| Error::SetUp {
        what: "take over stdout",
        source,
    })
}
