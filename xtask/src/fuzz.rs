//! `cargo xtask fuzz [TARGET [SECONDS]]`: each fuzz target for a minute, or one for as long as asked. The same
//! bodies run over the committed corpus on the stable toolchain as ordinary tests, so this is not part of `ci`.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::Usage;
use crate::process::{Run, say};
use crate::workspace::Root;

const SECONDS: u64 = 60;

/// What a run may take besides the fuzzing itself: building with a sanitiser.
const TO_BUILD: Duration = Duration::from_secs(20 * 60);

pub(crate) fn run(root: &Root, arguments: &[&str]) -> Result<()> {
    let (wanted, seconds) = parse(arguments)?;
    let version = Run::new(root, "cargo", &["+nightly", "fuzz", "--version"]);
    version.capture().context(
        "fuzzing needs cargo-fuzz and a nightly toolchain: `rustup toolchain install nightly` and \
         `cargo install cargo-fuzz --locked`",
    )?;
    let listed = Run::new(root, "cargo", &["+nightly", "fuzz", "list"]).capture()?;
    let targets: Vec<&str> = listed
        .lines()
        .map(str::trim)
        .filter(|target| !target.is_empty())
        .collect();
    if let Some(wanted) = wanted
        && !targets.contains(&wanted)
    {
        bail!(Usage(format!(
            "there is no fuzz target `{wanted}`; there are: {}",
            targets.join(", ")
        )));
    }
    for target in targets
        .into_iter()
        .filter(|target| wanted.is_none_or(|wanted| wanted == *target))
    {
        let limit = format!("-max_total_time={seconds}");
        let fuzz = Run::new(root, "cargo", &["+nightly", "fuzz", "run", target, "--", &limit]);
        fuzz.within(TO_BUILD + Duration::from_secs(seconds)).status()?;
        say(&format!("fuzz: `{target}` ran for {seconds} s and found nothing"));
    }
    Ok(())
}

fn parse<'a>(arguments: &[&'a str]) -> Result<(Option<&'a str>, u64)> {
    match arguments {
        [] => Ok((None, SECONDS)),
        [target] => Ok((Some(target), SECONDS)),
        [target, seconds] => {
            let seconds = seconds
                .parse()
                .ok()
                .filter(|seconds| (1..=86_400).contains(seconds));
            let wrong = || Usage("the time to fuzz must be a number of seconds from 1 to 86400".to_owned());
            Ok((Some(target), seconds.ok_or_else(wrong)?))
        }
        _ => bail!(Usage(
            "`fuzz` takes a target and a number of seconds, nothing more".to_owned()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        assert_eq!(parse(&[]).unwrap(), (None, SECONDS));
        assert_eq!(parse(&["wire"]).unwrap(), (Some("wire"), SECONDS));
        assert_eq!(parse(&["wire", "5"]).unwrap(), (Some("wire"), 5));
        for wrong in [&["wire", "0"][..], &["wire", "soon"], &["wire", "5", "6"]] {
            assert!(parse(wrong).unwrap_err().is::<Usage>(), "{wrong:?}");
        }
    }
}
