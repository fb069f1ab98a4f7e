//! Who runs the cases of a program without a harness, and as which user they run a copy of it.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    panic::{UnwindSafe, catch_unwind},
    path::PathBuf,
    process::{Child, Command, ExitCode},
    sync::OnceLock,
    time::Duration,
};

/// What the project promises.
pub(crate) const MOST: Duration = Duration::from_secs(5);
/// How long anything may take to come up: longer than any promise, since machines are slow at times.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Nobody.
const UNPRIVILEGED: &str = "65534";

/// Runs the cases whose names hold one of `filters`, or all.
pub(crate) fn run<N: AsRef<str>, C: FnOnce() + UnwindSafe>(
    filters: &[&str],
    cases: impl IntoIterator<Item = (N, C)>,
) -> ExitCode {
    let parts: Vec<&str> = filters
        .iter()
        .copied()
        .filter(|filter| !filter.starts_with('-'))
        .collect();
    let mut failed = 0;
    for (name, case) in cases {
        let name = name.as_ref();
        if !parts.is_empty() && !parts.iter().any(|part| name.contains(part)) {
            continue;
        }
        let outcome = if catch_unwind(case).is_ok() {
            "ok"
        } else {
            "FAILED"
        };
        println!("test {name} ... {outcome}");
        failed += usize::from(outcome != "ok");
    }
    println!("{failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

/// This program, where everybody may execute it.
pub(crate) fn program() -> &'static str {
    static PROGRAM: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, program) = PROGRAM.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let program = folder.path().join("parts");
        fs::copy("/proc/self/exe", &program).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        (folder, program)
    });
    program.to_str().unwrap()
}

/// Starts this program again, as nobody where it is to `step_down`.
pub(crate) fn start_again(step_down: bool, set_up: impl FnOnce(&mut Command) -> &mut Command) -> Child {
    let mut command = Command::new(if step_down { "setpriv" } else { program() });
    if step_down {
        let user = [
            format!("--reuid={UNPRIVILEGED}"),
            format!("--regid={UNPRIVILEGED}"),
        ];
        command.args(user).args(["--clear-groups", "--", program()]);
    }
    set_up(&mut command)
        .spawn()
        .expect("`setpriv` of util-linux, to try this as an unprivileged user")
}
