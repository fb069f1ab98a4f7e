//! `portcullis-warden`: the warden as a program of its own, for hosts whose `main` cannot call
//! `portcullis_warden::init()`; they name its path with `portcullis_warden::init_with`.

use std::{
    io::{Write, stderr},
    process::ExitCode,
};

fn main() -> ExitCode {
    portcullis_warden::init();
    // Nothing better can be done where stderr is closed.
    let _ = writeln!(stderr(), "error: this program is started by a hub, not by hand");
    ExitCode::from(2)
}
