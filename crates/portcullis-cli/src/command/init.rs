use std::path::{Path, PathBuf};

use clap::Args;
use portcullis_state::{Privacy, StateError, create_folder, write_new};

use serde::Serialize;

use crate::{ExitStatus, arguments::Format, output};

/// What is written, the configuration last: where it is, all that it names is there.
const FILES: [(&str, &str); 4] = [
    ("policies/tools.rules", include_str!("init/tools.rules")),
    // What the rules compile to, as `portcullis policy rules` writes it: `policy check` wants it there.
    (
        "policies/compiled/tools.rules.cedar",
        include_str!("init/tools.rules.cedar"),
    ),
    (
        "portcullis.schema.json",
        include_str!("../../../../docs/schema/portcullis.schema.json"),
    ),
    ("portcullis.yaml", include_str!("init/portcullis.yaml")),
];

#[derive(Debug, Args)]
pub(crate) struct InitArguments {
    /// The folder to write into; it must be there
    #[arg(default_value = ".")]
    pub(crate) folder: PathBuf,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
}

#[derive(Serialize)]
struct Written {
    written: Vec<String>,
}

/// Writes the starting files, or none of them where one is there already.
pub(crate) fn run(arguments: &InitArguments) -> ExitStatus {
    let mut written = Vec::new();
    let outcome = write(&arguments.folder, &mut written, write_new);
    let written: Vec<_> = written.iter().map(|path| path.display().to_string()).collect();
    let next = written.last().map_or("portcullis.yaml", String::as_str);
    let next = format!("next: `portcullis check {next}`, then edit it; each server is commented there");
    // Also of a run that failed: what was written by then is in the way of the next.
    match arguments.format {
        Format::Json => output::json(&Written { written }),
        Format::Text => written
            .iter()
            .for_each(|path| output::line(&output::safe(&format!("wrote {path}")))),
    }
    if let Err(error) = outcome {
        output::error(&output::chain(&error));
        return ExitStatus::Failed;
    }
    if arguments.format == Format::Text {
        output::note(&output::safe(&next));
    }
    ExitStatus::Done
}

/// Writes into `folder` with `write_new`, and tells of each file when it is there.
fn write(
    folder: &Path,
    written: &mut Vec<PathBuf>,
    write_new: impl Fn(&Path, &[u8], Privacy) -> Result<(), StateError>,
) -> Result<(), StateError> {
    for (name, _) in FILES {
        let path = folder.join(name);
        if path.symlink_metadata().is_ok() {
            return Err(StateError::Exists { path });
        }
    }
    create_folder(&folder.join("policies"), Privacy::Shared)?;
    create_folder(&folder.join("policies/compiled"), Privacy::Shared)?;
    for (name, content) in FILES {
        // `./` in front of each would be noise.
        let path = match folder {
            here if here == Path::new(".") => PathBuf::from(name),
            folder => folder.join(name),
        };
        let outcome = write_new(&path, content.as_bytes(), Privacy::Shared);
        // What cannot be made sure to last is there all the same.
        if matches!(outcome, Ok(()) | Err(StateError::Unsynced { .. })) {
            written.push(path);
        }
        outcome?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use portcullis::{
        Document,
        config::{NoEnvironment, Options, normalize},
    };

    use super::*;

    #[test]
    fn what_is_written_is_good_and_nothing_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &mut Vec::new(), write_new).unwrap();
        let config = folder.path().join("portcullis.yaml");
        let text = std::fs::read_to_string(&config).unwrap();
        let read = |text: String| {
            let document = Document::new("portcullis.yaml", text);
            normalize(&[document], &Options::default(), &NoEnvironment)
        };
        let normalized = read(text.clone());
        assert_eq!(normalized.diagnostics, []);
        assert_eq!(normalized.settings.policies.unwrap().value, Path::new("policies"));
        // The commented servers are good as well: all that is wrong is that this machine has no programs.
        let uncommented = text.replace("    # ", "    ").replace("servers: []", "servers:");
        let found: Vec<_> = read(uncommented)
            .diagnostics
            .iter()
            .map(|found| found.code.as_str())
            .collect();
        assert!(!found.is_empty(), "no server is commented");
        let of_machine = |code: &&str| ["program-not-found", "unset-reference"].contains(code);
        assert!(found.iter().all(of_machine), "{found:?}");
        let policies = portcullis::read_policies(&folder.path().join("policies")).unwrap();
        for file in &policies {
            let formatted = portcullis::policy::format_policies(file).unwrap();
            assert_eq!(formatted, file.text, "{}: as `policy fmt` writes it", file.name);
        }
        let again = write(folder.path(), &mut Vec::new(), write_new).unwrap_err();
        assert!(matches!(again, StateError::Exists { .. }), "{again}");
        assert_eq!(std::fs::read_to_string(config).unwrap(), text);
    }

    /// It is in the way of the next run whether or not it will outlast a power cut.
    #[test]
    fn a_file_that_is_there_is_told_though_writing_it_failed() {
        fn told(fails: impl Fn(&Path, &[u8], Privacy) -> Result<(), StateError>) -> Vec<PathBuf> {
            let folder = tempfile::tempdir().unwrap();
            let mut written = Vec::new();
            write(folder.path(), &mut written, fails).unwrap_err();
            let inside = written
                .iter()
                .map(|path| path.strip_prefix(folder.path()).unwrap());
            inside.map(Path::to_owned).collect()
        }
        let source = || std::io::ErrorKind::Other.into();
        let unsynced = told(|path, content, privacy| {
            write_new(path, content, privacy)?;
            let (path, source) = (path.to_owned(), source());
            Err(StateError::Unsynced { path, source })
        });
        assert_eq!(unsynced, [Path::new("policies/tools.rules")]);
        // Somebody else was quicker, whether or not that is why it failed.
        let taken = told(|path, content, privacy| {
            write_new(path, content, privacy)?;
            write_new(path, content, privacy)
        });
        assert_eq!(taken, [] as [PathBuf; 0]);
        let taken = told(|path, content, privacy| {
            write_new(path, content, privacy)?;
            let (path, source) = (path.to_owned(), source());
            Err(StateError::Write { path, source })
        });
        assert_eq!(taken, [] as [PathBuf; 0]);
    }
}
