use std::fmt;

use thiserror::Error;

/// Everything that is wrong with a set of policies, in order of file and line. None of them is loaded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct PolicyErrors(pub Vec<PolicyError>);

impl fmt::Display for PolicyErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, error) in self.0.iter().enumerate() {
            if position > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

/// One thing that is wrong, with where it stands and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct PolicyError {
    /// The file, as it was named when it was given.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub problem: PolicyProblem,
}

impl PolicyError {
    pub(crate) fn new(file: &str, line: usize, problem: PolicyProblem) -> Self {
        Self {
            file: file.to_owned(),
            line,
            problem,
        }
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Some are about no file of their own.
        if !self.file.is_empty() {
            write!(f, "{}:{}: ", self.file, self.line)?;
        }
        write!(f, "{}", self.problem)?;
        match self.problem.help() {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

/// What can be wrong with a policy, a rule or a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PolicyProblem {
    /// Neither `*.cedar` nor `*.rules`.
    #[error("this is neither a Cedar file nor a file of rules")]
    FileKind,
    /// Not Cedar.
    #[error("{message}")]
    Syntax {
        /// What the parser says.
        message: String,
        /// What the parser advises, if anything.
        help: Option<String>,
    },
    /// A template, which nothing would ever link.
    #[error("a policy template stands here, and nothing would fill in its slots")]
    Template,
    /// `@id` or `@description` is missing or empty.
    #[error("this policy has no `@{0}`")]
    MissingAnnotation(&'static str),
    /// An annotation that means nothing here.
    #[error("unknown annotation `@{0}`")]
    UnknownAnnotation(String),
    /// Two policies of one id.
    #[error("the id `{id}` is taken by the policy at {file}:{line}")]
    DuplicateId {
        /// The id.
        id: String,
        /// Where it stood first.
        file: String,
        /// The line where it stood first.
        line: usize,
    },
    /// The schema does not allow it.
    #[error("{message}")]
    Invalid {
        /// What the validator says.
        message: String,
        /// What the validator advises, if anything.
        help: Option<String>,
    },
    /// A character that is not seen, or that turns the text around.
    #[error("the invisible character U+{:04X} stands in this line", u32::from(*.0))]
    Invisible(char),
    /// A character outside of comments and descriptions that is taken for a space.
    #[error("the blank U+{:04X} stands in this line in place of a space", u32::from(*.0))]
    Blank(char),
    /// A line of a rules file that is no rule.
    #[error("`{0}` is not a rule")]
    Rule(String),
    /// `default` followed by something else than `deny` or `ask`.
    #[error("`default {0}` does not exist")]
    Default(String),
    /// More than one default.
    #[error("the default was set already at {file}:{line}")]
    SecondDefault {
        /// Where it was set first.
        file: String,
        /// The line where it was set first.
        line: usize,
    },
    /// More words after a rule.
    #[error("`{0}` stands after the end of the rule")]
    Trailing(String),
    /// `when` followed by something else than conditions on arguments.
    #[error("`{0}` is not a condition")]
    Condition(String),
    /// A quoted pattern that is no JSON string.
    #[error("the quoted pattern is not a JSON string: {0}")]
    Quotes(String),
    /// `ask elicit …`.
    #[error("`{0}` cannot be asked for, only allowed or denied")]
    AskOfServer(&'static str),
    /// A pattern that is not `<source>.<server>.<tool>`.
    #[error("`{0}` is not a pattern of tools")]
    Pattern(String),
    /// A pattern of servers that is not `<source>.<server>`.
    #[error("`{0}` is not a pattern of servers")]
    ServerPattern(String),
    /// The server part of a pattern could never match.
    #[error("no server can be called `{0}`")]
    ServerName(String),
    /// A character in a rule's pattern that can be taken for another.
    #[error("the character `{}` (U+{:04X}) in `{pattern}` may not stand in a rule", character.escape_default(), u32::from(*character))]
    Confusable {
        /// The pattern.
        pattern: String,
        /// The character.
        character: char,
    },
    /// A name in Cedar text that can be taken for another.
    #[error("{0}")]
    LooksAlike(String),
    /// `@untested` without a reason.
    #[error("`@untested` gives no reason")]
    UntestedWithoutReason,
    /// The seal is no seal.
    #[error("the seal cannot be read: {0}")]
    SealUnreadable(String),
    /// There is no seal where one is demanded.
    #[error("the policies are not sealed")]
    Unsealed,
    /// A file is not what was sealed.
    #[error("this file is not the one that was sealed")]
    SealBroken,
    /// A file that the seal does not know.
    #[error("this file is not in the seal")]
    SealLacks,
    /// The seal knows files by their names without their folders.
    #[error("a seal cannot tell this file from `{0}`: their names differ in the folder alone")]
    SealedTwice(String),
    /// A sealed file that is not there.
    #[error("this file was sealed and is not there")]
    SealedFileMissing,
    /// Not the name of a preset.
    #[error("there is no preset `{0}`")]
    Preset(String),
    /// Conditions stand deeper in each other than this.
    #[error("conditions stand more than {0} deep in each other")]
    TooDeep(usize),
    /// One policy has more operators than this.
    #[error("one policy has more than {0} operators")]
    TooLong(usize),
    /// Reading policies takes a thread with a large stack, and the system gives none.
    #[error("no thread with 256 MiB of stack can be had to read the policies: {0}")]
    NoThread(String),
    /// The embedded schema or policies are broken, or a rule could not be turned into a policy.
    #[error("{0}")]
    Internal(String),
}

impl PolicyProblem {
    /// What to do about it.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        let text = match self {
            Self::Syntax { help, .. } | Self::Invalid { help, .. } => return help.clone(),
            Self::FileKind => "name it `*.cedar` or `*.rules`",
            Self::Template => "write the policy out for each principal or resource",
            Self::MissingAnnotation("id") => {
                "write `@id(\"team.rule-name\")` above it; the id is what decisions are reported with"
            }
            Self::MissingAnnotation(_) => {
                "write `@description(\"…\")` above it: one sentence that says what it is for"
            }
            Self::UnknownAnnotation(_) => "use `@id`, `@description` and `@untested` only",
            Self::UntestedWithoutReason => "write `@untested(\"why no case exercises it\")`",
            Self::SealUnreadable(_) => {
                "write it anew with `portcullis policy seal`, once the policies are reviewed"
            }
            Self::Unsealed => "seal them with `portcullis policy seal`, once they are reviewed",
            Self::SealBroken | Self::SealLacks | Self::SealedFileMissing => {
                "restore it, or seal the folder anew with `portcullis policy seal`, once the change is reviewed"
            }
            Self::SealedTwice(_) => "rename one of them",
            Self::DuplicateId { .. } => "give each policy an id of its own",
            Self::Invisible(_) => "remove it: a reviewer would read something else than what is meant",
            Self::Blank(_) => "write a space; in a name that holds it, match it by `like` and `*`",
            Self::Rule(_) => {
                "write `default deny|ask`, or `allow|ask|always ask|deny` and a pattern such as `mcp.github.*`"
            }
            Self::Default(_) => "write `default deny` or `default ask`; to allow all, write `allow mcp.*`",
            Self::SecondDefault { .. } => "keep one of the two lines",
            Self::Trailing(_) => {
                "a rule ends with its pattern; put a name that holds spaces or starts with `#` in double quotes"
            }
            Self::Condition(_) => {
                "write `when arg.path == \"text\"`, more of them joined by `and`; for anything else write Cedar"
            }
            Self::Quotes(_) => "close it with `\"`, and write `\\\\` for a backslash",
            Self::AskOfServer(_) => {
                "write `allow` or `deny`; what to do with an allowed question is the host's to decide"
            }
            Self::Pattern(_) => {
                "write `mcp.<server>.<tool>` with `*` for any run of characters, or `mcp.*` for all"
            }
            Self::ServerPattern(_) => {
                "write `mcp.<server>` with `*` for any run of characters, or `mcp.*` for all"
            }
            Self::ServerName(_) => "a server's id has 1 to 64 characters of a-z, 0-9 and `-`, a letter first",
            Self::Confusable { .. } => "put `*` in its place: only printable ASCII can be told apart by eye",
            Self::LooksAlike(_) => {
                "use letters of one script; in a name, match what cannot be told apart by `like` and `*`"
            }
            Self::Preset(_) => "use `deny-by-default`, `ask-by-default` or `read-only`",
            Self::TooDeep(_) => "write several policies, or `[…].contains(…)` in place of a row of `||`",
            Self::TooLong(_) => "write several policies in its place",
            Self::NoThread(_) => {
                "allow this process one thread and 256 MiB of address space more (`ulimit -u`, `ulimit -v`, the limits of \
                 its container), then load them again"
            }
            Self::Internal(_) => return None,
        };
        Some(text.to_owned())
    }
}
