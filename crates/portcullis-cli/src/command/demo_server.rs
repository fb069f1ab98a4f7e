use std::process::ExitCode;

use portcullis_testkit::{demo, serve_stdio};

use crate::{ExitStatus, output};

/// Is one of the demo's servers until its client leaves, or it dies as its script wants.
pub(crate) fn run(name: &str) -> ExitCode {
    match demo::script(name) {
        Some(script) => serve_stdio(&script),
        None => {
            output::error(&format!(
                "there is no demo server `{name}`; there are: {}",
                demo::NAMES.join(", ")
            ));
            ExitStatus::Usage.into()
        }
    }
}
