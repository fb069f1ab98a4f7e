//! The program `portcullis-scripted-server`, for whoever builds a copy of it.

use std::{
    ffi::OsString,
    fs,
    io::{self, Write},
    process::ExitCode,
};

use crate::{Script, serve_stdio};

const USAGE: &str = "usage: portcullis-scripted-server --script JSON | --script-file PATH

Plays a scripted MCP server over stdin and stdout. A script is a JSON object; `{}` is a well-kept server without
tools. The fields are those of `Script` in the documentation of portcullis-testkit.";

/// Is the program `portcullis-scripted-server` with `arguments`, without the program's own name: plays the script
/// that they give over the process's own stdin and stdout.
///
/// A package's tests that need the server as a program of their own make a binary of one line:
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     portcullis_testkit::run(std::env::args_os().skip(1))
/// }
/// ```
#[must_use = "return it from `main`"]
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if matches!(arguments.as_slice(), [only] if only == "--help" || only == "-h") {
        // A reader that is gone has no use for it.
        let _ = writeln!(io::stdout(), "{USAGE}");
        return ExitCode::SUCCESS;
    }
    let script =
        text(&arguments).and_then(|text| Script::from_json(&text).map_err(|error| error.to_string()));
    match script {
        Ok(script) => serve_stdio(&script),
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::from(2)
        }
    }
}

/// The script's text, from whichever of the two options was given.
fn text(arguments: &[OsString]) -> Result<String, String> {
    match arguments {
        [option, json] if option == "--script" => json
            .to_str()
            .map(str::to_owned)
            .ok_or_else(|| "the script after `--script` is not Unicode".to_owned()),
        [option, path] if option == "--script-file" => fs::read_to_string(path).map_err(|error| {
            format!(
                "cannot read the script file `{}`: {error}",
                path.to_string_lossy()
            )
        }),
        [option] if option == "--script" || option == "--script-file" => {
            Err(format!("`{}` needs a value\n\n{USAGE}", option.to_string_lossy()))
        }
        [] => Err(format!("no script was given\n\n{USAGE}")),
        [first, ..] => Err(format!(
            "cannot make sense of `{}` there\n\n{USAGE}",
            first.to_string_lossy()
        )),
    }
}
