//! `cargo xtask race` and `cargo xtask chaos`: the long runs of the storms whose short ones are part of the tests.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::Usage;
use crate::process::Run;
use crate::workspace::Root;

/// A name, the options that it takes, each with a number, and what it does.
pub(crate) const STORMS: &[(&str, &[&str], &str)] = &[
    (
        "race",
        &["--kills", "--drains", "--callers"],
        "callers against a server that is killed all the time (500 kills)",
    ),
    (
        "chaos",
        &["--minutes", "--rounds", "--seed"],
        "50 servers that misbehave beside 10 that are well (10 minutes)",
    ),
];

/// What building takes, and what a storm takes besides its time.
const DEADLINE: Duration = Duration::from_secs(40 * 60);

pub(crate) fn run(root: &Root, name: &str, options: &[&str]) -> Result<()> {
    let known = STORMS.iter().find(|(known, ..)| *known == name);
    let Some((_, known, _)) = known else {
        bail!(Usage(format!("there is no storm `{name}`")));
    };
    let mut minutes = 0;
    for pair in options.chunks(2) {
        match pair {
            [option, number] if known.contains(option) && number.parse::<u64>().is_ok() => {
                if *option == "--minutes" {
                    minutes = number.parse()?;
                }
            }
            _ => bail!(Usage(format!(
                "`{name}` takes {}, each with a number, but got `{}`",
                known.join(", "),
                pair.join(" ")
            ))),
        }
    }
    let mut all = vec![
        "test",
        "--release",
        "--quiet",
        "--package",
        "portcullis-supervisor",
        "--test",
        "storm",
        "--",
        name,
    ];
    all.extend(options);
    let time = Duration::from_secs(60).saturating_mul(minutes);
    Run::cargo(root, &all).within(DEADLINE + time).status()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_are_none_are_a_wrong_command_line() {
        let root = Root::of_this_checkout().unwrap();
        for options in [
            &["--minutes"][..],
            &["--minutes", "ten"],
            &["--kills", "5"],
            &["now", "5"],
        ] {
            let error = run(&root, "chaos", options).unwrap_err();
            assert!(
                error.is::<Usage>() && error.to_string().contains("`chaos` takes"),
                "{error}"
            );
        }
    }
}
