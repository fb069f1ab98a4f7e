use std::{collections::BTreeMap, ffi::OsString, path::PathBuf};

use portcullis_config::{ProcessLimits, ResolveError, Sources, StdioSpec, Template};
use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;

/// The variables that every child gets, where the hub has them; nothing else is passed on unasked.
/// `LC_*` cannot be listed through [`Sources`], so the POSIX categories are named.
const BASE: &[&str] = &[
    "PATH",
    "HOME",
    "LANG",
    "LANGUAGE",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "LC_ALL",
    "LC_ADDRESS",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_IDENTIFICATION",
    "LC_MEASUREMENT",
    "LC_MESSAGES",
    "LC_MONETARY",
    "LC_NAME",
    "LC_NUMERIC",
    "LC_PAPER",
    "LC_TELEPHONE",
    "LC_TIME",
];

/// All that is needed to spawn a child, with every reference resolved. Its values are secrets: `Debug` shows
/// the program alone.
pub struct SpawnPlan {
    /// An absolute path.
    pub program: PathBuf,
    /// The arguments.
    pub args: Vec<OsString>,
    /// The whole environment of the child, by name.
    pub environment: BTreeMap<String, SecretString>,
    /// Its working directory, or the hub's own.
    pub cwd: Option<PathBuf>,
    /// What it may use at most; a spawner that cannot see to it starts nothing.
    pub limits: ProcessLimits,
    /// Values that must not be shown although the child may print them: all that its definition declares.
    pub(crate) secrets: Vec<SecretString>,
}

/// The shortest value that counts as a secret, in bytes: what is shorter stands in ordinary text by chance.
const SECRET_BYTES: usize = 6;

/// Which part of a definition could not be resolved. Names the field and the reference, never a value.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field}: {source}")]
pub struct UnresolvedField {
    /// `args[2]`, `env.TOKEN`, `headers.Authorization`.
    pub field: String,
    /// Why not.
    source: ResolveError,
}

impl SpawnPlan {
    /// Resolves `spec` against `sources`: the stated base, then what it inherits by name, then what it sets.
    ///
    /// # Errors
    /// [`UnresolvedField`] for the first reference that has no value, or an inherited variable that is not set.
    pub fn resolve(spec: &StdioSpec, sources: &dyn Sources) -> Result<Self, UnresolvedField> {
        let mut environment = BTreeMap::new();
        for name in BASE {
            if let Some(value) = sources.variable(name) {
                environment.insert((*name).to_owned(), SecretString::from(value));
            }
        }
        let mut declared = BTreeMap::new();
        // What is set as well counts as it is set, whether or not there is something to inherit.
        for name in spec
            .inherit_env
            .iter()
            .filter(|name| !spec.env.contains_key(*name))
        {
            let value = sources.variable(name).ok_or_else(|| UnresolvedField {
                field: format!("inheritEnv.{name}"),
                source: ResolveError::Variable(name.clone()),
            })?;
            declared.insert(name.clone(), SecretString::from(value));
        }
        for (name, value) in &spec.env {
            declared.insert(name.clone(), resolve(&format!("env.{name}"), value, sources)?);
        }
        let in_args = spec.args.iter().flat_map(|arg| arg.referred_values(sources));
        let in_args = in_args.chain(spec.secrets_in_args().into_iter().map(SecretString::from));
        let mut secrets: Vec<_> = declared
            .values()
            .cloned()
            .chain(in_args)
            .filter(|value| value.expose_secret().len() >= SECRET_BYTES)
            .collect();
        // One that is a part of another must not leave the rest of that other behind.
        secrets.sort_by_key(|value| std::cmp::Reverse(value.expose_secret().len()));
        environment.extend(declared);
        let args = spec
            .args
            .iter()
            .enumerate()
            .map(|(at, arg)| {
                resolve(&format!("args[{at}]"), arg, sources).map(|arg| OsString::from(arg.expose_secret()))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            program: spec.program.clone(),
            args,
            environment,
            cwd: spec.cwd.clone(),
            limits: ProcessLimits::default(),
            secrets,
        })
    }
}

impl std::fmt::Debug for SpawnPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpawnPlan")
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

/// One field's value, the error naming the field.
pub(crate) fn resolve(
    field: &str,
    value: &Template,
    sources: &dyn Sources,
) -> Result<SecretString, UnresolvedField> {
    value.resolve(sources).map_err(|source| UnresolvedField {
        field: field.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    struct Host;

    impl Sources for Host {
        fn variable(&self, name: &str) -> Option<String> {
            match name {
                "PATH" => Some("/bin".to_owned()),
                "CANARY" => Some("leaked".to_owned()),
                "GITHUB_TOKEN" => Some("ghp".to_owned()),
                _ => None,
            }
        }

        fn file(&self, _: &str) -> Option<String> {
            None
        }
    }

    fn spec(env: &[(&str, &str)], inherit: &[&str]) -> StdioSpec {
        StdioSpec {
            program: "/bin/true".into(),
            args: vec![Template::parse("--token=${env:GITHUB_TOKEN}")],
            env: env
                .iter()
                .map(|(name, value)| ((*name).to_owned(), Template::parse(value)))
                .collect(),
            inherit_env: inherit
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<BTreeSet<_>>(),
            cwd: None,
        }
    }

    /// Report 10: a variable of the hub that nobody declared never reaches a child.
    #[test]
    fn a_child_gets_the_base_and_what_is_declared_and_nothing_else() {
        let plan = SpawnPlan::resolve(&spec(&[("MODE", "fast")], &["GITHUB_TOKEN"]), &Host).unwrap();
        let names: Vec<_> = plan.environment.keys().map(String::as_str).collect();
        assert_eq!(names, ["GITHUB_TOKEN", "MODE", "PATH"]);
        assert_eq!(plan.args, ["--token=ghp"]);
        assert!(!format!("{plan:?}").contains("ghp"));
    }

    /// As `check` says of such a definition.
    #[test]
    fn what_is_set_need_not_be_there_to_be_inherited() {
        let plan = SpawnPlan::resolve(&spec(&[("NOPE", "set")], &["NOPE", "GITHUB_TOKEN"]), &Host).unwrap();
        let of = |name: &str| plan.environment.get(name).map(|value| value.expose_secret());
        assert_eq!((of("NOPE"), of("GITHUB_TOKEN")), (Some("set"), Some("ghp")));
    }

    #[test]
    fn an_unset_reference_names_the_field() {
        let error = SpawnPlan::resolve(&spec(&[("KEY", "${env:NOPE}")], &[]), &Host).unwrap_err();
        assert_eq!(error.to_string(), "env.KEY: the variable `NOPE` is not set");
        let error = SpawnPlan::resolve(&spec(&[], &["NOPE"]), &Host).unwrap_err();
        assert_eq!(
            error.to_string(),
            "inheritEnv.NOPE: the variable `NOPE` is not set"
        );
    }
}
