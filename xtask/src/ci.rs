//! `cargo xtask ci`: everything that CI runs, in stages that can each be repeated alone.
//!
//! Quick stages always run, so that one run shows all that they find. After a failure the slow ones are skipped:
//! their answer costs minutes and is mostly the same fault again. `--keep-going` runs them all the same.

#![expect(clippy::disallowed_methods, reason = "stages are timed by the wall clock")]

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process::{Run, complain, say};
use crate::workspace::Root;
use crate::{Usage, deny, guard, policies, real_servers, tidy};

/// In the order in which they run.
pub(crate) const STAGES: &[Stage] = &[
    Stage {
        name: "fmt",
        about: "formatting",
        slow: false,
        work: Work::Cargo(&["fmt", "--all", "--check"]),
    },
    Stage {
        name: "guard",
        about: "no sampling, roots or logging of MCP",
        slow: false,
        work: Work::Own(guard::run),
    },
    Stage {
        name: "tidy",
        about: "layering, sizes, manifests, lock files",
        slow: false,
        work: Work::Own(tidy::run),
    },
    Stage {
        name: "deny",
        about: "licences and duplicates of dependencies",
        slow: false,
        work: Work::Own(deny::run),
    },
    Stage {
        name: "clippy",
        about: "lints, warnings denied",
        slow: true,
        work: Work::Cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    },
    Stage {
        name: "clippy-keyring",
        about: "the same for the program with its keyring, which is off by default",
        slow: true,
        work: Work::Cargo(&[
            "clippy",
            "--package",
            "portcullis-cli",
            "--features",
            "keyring",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]),
    },
    Stage {
        name: "policies",
        about: "policies parse, validate and decide as their cases say",
        slow: true,
        work: Work::Own(policies::run),
    },
    Stage {
        name: "real-servers",
        about: "the MCP servers that the tests talk to, into target/",
        slow: true,
        work: Work::Own(real_servers::run),
    },
    Stage {
        name: "test",
        about: "all tests, documentation examples included",
        slow: true,
        work: Work::Tests,
    },
    Stage {
        name: "test-keyring",
        about: "tests of the program with its keyring",
        slow: true,
        work: Work::Cargo(&[
            "test",
            "--package",
            "portcullis-cli",
            "--lib",
            "--features",
            "keyring",
        ]),
    },
    Stage {
        name: "docs",
        about: "documentation, warnings denied",
        slow: true,
        work: Work::Docs,
    },
];

/// No stage may hang a run for longer.
const DEADLINE: Duration = Duration::from_secs(30 * 60);

/// How long tests go on that look for rare meetings; by hand they are shorter.
const LONGER: &[(&str, &str)] = &[("PORTCULLIS_RACE_SECONDS", "60"), ("PORTCULLIS_KILLS", "250")];

/// One part of `ci`.
pub(crate) struct Stage {
    name: &'static str,
    about: &'static str,
    /// Takes minutes where nothing is built yet.
    slow: bool,
    work: Work,
}

enum Work {
    Cargo(&'static [&'static str]),
    /// All tests, and those that go on for a while for longer than by hand.
    Tests,
    Docs,
    Own(fn(&Root) -> Result<()>),
}

impl Stage {
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn about(&self) -> &'static str {
        self.about
    }

    pub(crate) fn run(&self, root: &Root) -> Result<()> {
        match self.work {
            Work::Cargo(arguments) => {
                component(root, arguments.first().copied().unwrap_or_default())?;
                Run::cargo(root, arguments).within(DEADLINE).status()
            }
            Work::Tests => {
                let tests = Run::cargo(root, &["test", "--workspace", "--no-fail-fast"]);
                let tests = LONGER
                    .iter()
                    .fold(tests, |tests, (name, value)| tests.with_env(name, value));
                tests.within(DEADLINE).status()
            }
            Work::Docs => {
                let docs = Run::cargo(root, &["doc", "--workspace", "--no-deps"]);
                docs.with_env("RUSTDOCFLAGS", "-D warnings")
                    .within(DEADLINE)
                    .status()
            }
            Work::Own(work) => work(root),
        }
    }
}

/// Cargo itself is always there; formatting and lints are components that a bare toolchain may lack.
fn component(root: &Root, command: &str) -> Result<()> {
    let component = match command {
        "fmt" => "rustfmt",
        "clippy" => "clippy",
        _ => return Ok(()),
    };
    let version = Run::cargo(root, &[command, "--version"]).capture();
    version
        .map(drop)
        .with_context(|| format!("this stage needs `{component}`: `rustup component add {component}`"))
}

/// The stage of this name.
pub(crate) fn stage(name: &str) -> Option<&'static Stage> {
    STAGES.iter().find(|stage| stage.name == name)
}

/// What `ci` was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// The one stage to run; all if there is none.
    stage: Option<&'static str>,
    keep_going: bool,
}

impl Options {
    pub(crate) fn parse(arguments: &[&str]) -> Result<Self> {
        let mut options = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let name = match *argument {
                "--keep-going" => {
                    options.keep_going = true;
                    continue;
                }
                "--stage" => arguments.next().copied(),
                other => match other.strip_prefix("--stage=") {
                    Some(name) => Some(name),
                    None => bail!(Usage(format!(
                        "`ci` knows `--stage NAME` and `--keep-going`, not `{other}`"
                    ))),
                },
            };
            let names: Vec<&str> = STAGES.iter().map(Stage::name).collect();
            match name.and_then(stage) {
                Some(stage) => options.stage = Some(stage.name),
                None => bail!(Usage(format!("`--stage` takes one of {}", names.join(", ")))),
            }
        }
        Ok(options)
    }
}

pub(crate) fn run(root: &Root, options: Options) -> Result<()> {
    let wanted: Vec<&Stage> = STAGES
        .iter()
        .filter(|stage| options.stage.is_none_or(|name| name == stage.name))
        .collect();
    let started = Instant::now();
    let outcomes = run_stages(root, &wanted, options.keep_going);
    say(&summary(&wanted, &outcomes, started.elapsed()));
    let failed: Vec<&str> = wanted
        .iter()
        .zip(&outcomes)
        .filter(|(_, outcome)| matches!(outcome, Outcome::Failed(_)))
        .map(|(stage, _)| stage.name)
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    bail!("ci: failed: {}", failed.join(", "))
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Passed(Duration),
    Failed(Duration),
    Skipped,
}

fn run_stages(root: &Root, stages: &[&Stage], keep_going: bool) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    let mut failed = false;
    for stage in stages {
        if failed && stage.slow && !keep_going {
            outcomes.push(Outcome::Skipped);
            continue;
        }
        say(&format!("\n=== {}: {}", stage.name, stage.about));
        let started = Instant::now();
        let result = stage.run(root);
        let took = started.elapsed();
        match result {
            Ok(()) => outcomes.push(Outcome::Passed(took)),
            Err(error) => {
                failed = true;
                complain(&format!("error: {error:#}"));
                outcomes.push(Outcome::Failed(took));
            }
        }
    }
    outcomes
}

fn summary(stages: &[&Stage], outcomes: &[Outcome], total: Duration) -> String {
    let mut text = format!("\n{:<14}{:>9}  result\n", "stage", "seconds");
    for (stage, outcome) in stages.iter().zip(outcomes) {
        let line = match outcome {
            Outcome::Passed(took) => format!("{:<14}{:>9.1}  ok", stage.name, took.as_secs_f64()),
            Outcome::Failed(took) => {
                format!(
                    "{:<14}{:>9.1}  FAILED; to repeat it alone: cargo xtask {}",
                    stage.name,
                    took.as_secs_f64(),
                    stage.name
                )
            }
            Outcome::Skipped => format!("{:<14}{:>9}  skipped after a failure", stage.name, "-"),
        };
        text.push_str(&line);
        text.push('\n');
    }
    text.push_str(&format!("{:<14}{:>9.1}", "all", total.as_secs_f64()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fine(_: &Root) -> Result<()> {
        Ok(())
    }

    fn broken(_: &Root) -> Result<()> {
        bail!("it broke")
    }

    const fn made(name: &'static str, slow: bool, work: fn(&Root) -> Result<()>) -> Stage {
        Stage {
            name,
            about: "a test",
            slow,
            work: Work::Own(work),
        }
    }

    #[track_caller]
    fn check(stages: &[&Stage], keep_going: bool, expected: &str) {
        let outcomes = run_stages(&Root::of_this_checkout().unwrap(), stages, keep_going);
        let shown: String = outcomes
            .iter()
            .map(|outcome| match outcome {
                Outcome::Passed(_) => '.',
                Outcome::Failed(_) => 'F',
                Outcome::Skipped => '-',
            })
            .collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn quick_stages_always_run_and_slow_ones_stop_at_a_failure() {
        let (quick, slow) = (made("quick", false, fine), made("slow", true, fine));
        let (bad, bad_slow) = (made("bad", false, broken), made("bad-slow", true, broken));
        check(&[&quick, &slow, &quick], false, "...");
        check(&[&bad, &quick, &slow, &quick], false, "F.-.");
        check(&[&slow, &bad_slow, &slow, &quick], false, ".F-.");
        check(&[&bad, &slow, &bad_slow, &slow], true, "F.F.");
    }

    #[test]
    fn a_failure_says_how_to_repeat_it() {
        let stages = [
            &made("good", false, fine),
            &made("bad", false, broken),
            &made("late", true, fine),
        ];
        let outcomes = [
            Outcome::Passed(Duration::from_millis(1_240)),
            Outcome::Failed(Duration::from_secs(61)),
            Outcome::Skipped,
        ];
        let text = summary(&stages, &outcomes, Duration::from_secs(63));
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "good                1.2  ok",
                "bad                61.0  FAILED; to repeat it alone: cargo xtask bad",
                "late                  -  skipped after a failure",
                "all                63.0",
            ]
        );
    }

    #[test]
    fn options() {
        assert_eq!(Options::parse(&[]).unwrap(), Options::default());
        let one = Options {
            stage: Some("guard"),
            keep_going: false,
        };
        assert_eq!(Options::parse(&["--stage", "guard"]).unwrap(), one);
        assert_eq!(Options::parse(&["--stage=guard"]).unwrap(), one);
        assert_eq!(
            Options::parse(&["--keep-going"]).unwrap(),
            Options {
                stage: None,
                keep_going: true
            }
        );
        for wrong in [&["--stage"][..], &["--stage", "nonsense"], &["guard"]] {
            assert!(Options::parse(wrong).unwrap_err().is::<Usage>(), "{wrong:?}");
        }
    }

    #[test]
    fn each_stage_has_a_name_of_its_own_that_can_be_run() {
        for one in STAGES {
            assert_eq!(
                STAGES.iter().filter(|other| other.name == one.name).count(),
                1,
                "{}",
                one.name
            );
            assert!(stage(one.name).is_some());
        }
    }
}
