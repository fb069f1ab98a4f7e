//! `cargo xtask law [CASES [SEED]]`: the long run of two laws of the decision point, built for release. The index
//! answers as plain Cedar does, on that many pairs of policies and question; and rules, the policies that they
//! compile to and the text of these agree, on a tenth as many. The same tests run in `ci`, shorter.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::Usage;
use crate::process::{Run, say};
use crate::workspace::Root;

const CASES: u64 = 1_000_000;
const SEED: u64 = 1;
/// How many questions one set of rules is asked in the test.
const QUESTIONS_PER_RULES: u64 = 12;
/// A first build for release, and the run itself.
const DEADLINE: Duration = Duration::from_secs(12 * 60 * 60);

pub(crate) fn run(root: &Root, arguments: &[&str]) -> Result<()> {
    let (cases, seed) = parse(arguments)?;
    let test = |filter: &[&str]| {
        let all = [&["test", "--release", "--package", "portcullis-policy"], filter].concat();
        let run = Run::cargo(root, &all).within(DEADLINE);
        run.with_env("PORTCULLIS_LAW_CASES", &cases.to_string())
            .with_env("PORTCULLIS_LAW_SEED", &seed.to_string())
            .with_env("PORTCULLIS_RULES_CASES", &rule_sets(cases).to_string())
    };
    test(&["--test", "index_law"]).status()?;
    test(&["--lib", "rules_their_policies"]).status()?;
    say(&format!(
        "law: {cases} pairs of policies and question from seed {seed}, and {} questions about rules, all agreed",
        rule_sets(cases) * QUESTIONS_PER_RULES
    ));
    Ok(())
}

fn rule_sets(cases: u64) -> u64 {
    (cases / 10).div_ceil(QUESTIONS_PER_RULES)
}

fn parse(arguments: &[&str]) -> Result<(u64, u64)> {
    let number = |text: &str, what: &str| {
        let number = text.parse().ok().filter(|number| *number > 0);
        number.with_context(|| Usage(format!("{what} must be a number above 0, but is `{text}`")))
    };
    match arguments {
        [] => Ok((CASES, SEED)),
        [cases] => Ok((number(cases, "the number of cases")?, SEED)),
        [cases, seed] => Ok((number(cases, "the number of cases")?, number(seed, "the seed")?)),
        _ => bail!(Usage(
            "`law` takes a number of cases and a seed, nothing more".to_owned()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        assert_eq!(parse(&[]).unwrap(), (1_000_000, 1));
        assert_eq!(parse(&["500"]).unwrap(), (500, 1));
        assert_eq!(parse(&["500", "7"]).unwrap(), (500, 7));
        for wrong in [&["0"][..], &["many"], &["5", "-1"], &["5", "6", "7"]] {
            assert!(parse(wrong).unwrap_err().is::<Usage>(), "{wrong:?}");
        }
    }

    /// A filter that finds no test passes, and would prove nothing.
    #[test]
    fn the_tests_that_are_run_are_there() {
        let root = Root::of_this_checkout().unwrap();
        for (file, test) in [
            ("tests/index_law.rs", "fn the_index_answers_as_plain_cedar_does("),
            ("src/decision_point/tests/rules.rs", "fn rules_their_policies"),
        ] {
            let path = root.join("crates/portcullis-policy").join(file);
            assert!(std::fs::read_to_string(path).unwrap().contains(test), "{file}");
        }
    }

    #[test]
    fn the_long_run_asks_a_hundred_thousand_questions_about_rules() {
        assert!(rule_sets(CASES) * QUESTIONS_PER_RULES >= 100_000);
    }
}
