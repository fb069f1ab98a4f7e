use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use secrecy::ExposeSecret;

use super::{Context, if_enabled, open_text};
use crate::{
    Code, Options, Profile, Sources, Template,
    draft::Draft,
    secrets,
    source::{Sink, quote},
    value::Spanned,
};

/// The absolute path of the program to start. A bare name is looked up in the PATH that the child will get, and
/// never in the working directory.
///
/// `env` is what the server's own variables come to.
pub(super) fn find(
    draft: &Draft,
    env: &BTreeMap<String, Template>,
    context: &Context<'_>,
    sink: &mut Sink<'_>,
) -> Option<PathBuf> {
    let command = draft.command.as_ref()?;
    let is_line = is_command_line(&command.value, context.options);
    if is_line && starts_with_bare_name(&command.value) {
        whole_line(command, sink);
        return None;
    }
    let opened = open_text(draft, command, "command", context, sink);
    // What looks like arguments may be more of the path: only the machine knows, by the path that it comes to.
    let is_there = |path: &Path| path.is_absolute() && context.environment.is_executable(path);
    if is_line && !opened.as_ref().is_some_and(|path| is_there(Path::new(path))) {
        whole_line(command, sink);
        return None;
    }
    let Some(written) = opened else {
        // A disabled server is listed all the same, with its program as it was written.
        return (!draft.enabled).then(|| PathBuf::from(&command.value));
    };
    let path = Path::new(&written);
    if written.trim().is_empty() {
        sink.error(
            Code::BadValue,
            command.span,
            "`command` is empty",
            "name the program to start",
        );
        return None;
    }
    if path.is_absolute() {
        if !context.environment.is_executable(path) {
            let message = format!(
                "the program {} is not there, or may not be executed",
                shown(&written)
            );
            let help = "check the path, and that the file is executable";
            sink.report(
                if_enabled(draft),
                Code::ProgramNotFound,
                command.span,
                message,
                help,
            );
        }
        return Some(path.to_owned());
    }
    if context.profile == Profile::Strict {
        let message = format!("the program {} is no absolute path", shown(&written));
        sink.error(
            Code::ProgramNotAbsolute,
            command.span,
            message,
            "the strict profile looks nothing up: write the whole path",
        );
        return None;
    }
    if written.contains(['/', '\\']) {
        let message = format!(
            "the program {} is a relative path, or one of another system",
            shown(&written)
        );
        let help = match written.starts_with('~') {
            true => "`~` is not expanded: write the absolute path, or `${HOME}/…`",
            false => "write its absolute path, or its bare name to have it looked up in the PATH",
        };
        let severity = if_enabled(draft);
        sink.report(severity, Code::ProgramNotAbsolute, command.span, message, help);
        // As above.
        return (!draft.enabled).then(|| PathBuf::from(&written));
    }
    look_up(
        draft,
        command,
        &written,
        child_path(draft, env, context),
        context,
        sink,
    )
}

fn look_up(
    draft: &Draft,
    command: &Spanned<String>,
    name: &str,
    (path, whose): (String, &'static str),
    context: &Context<'_>,
    sink: &mut Sink<'_>,
) -> Option<PathBuf> {
    if name.contains(char::is_whitespace) {
        whole_line(command, sink);
        return None;
    }
    let found = std::env::split_paths(&path)
        // An empty or relative part means the working directory, whatever that is.
        .filter(|folder| folder.is_absolute())
        .flat_map(|folder| {
            names(name, context)
                .into_iter()
                .map(move |name| folder.join(name))
        })
        .find(|candidate| context.environment.is_executable(candidate));
    if found.is_none() {
        let message = format!("the program {} is nowhere in {whose}", shown(name));
        let help = "install it, write its absolute path, or set `env.PATH` to where it is";
        sink.report(
            if_enabled(draft),
            Code::ProgramNotFound,
            command.span,
            message,
            help,
        );
    }
    // As above.
    found.or_else(|| (!draft.enabled).then(|| PathBuf::from(name)))
}

/// Whether it is a program and its arguments in one: more follows a bare name, or a path, which may have blanks in it,
/// stands beside what can only be an argument or a variable.
pub(crate) fn is_command_line(written: &str, options: &Options) -> bool {
    let words = || written.split_whitespace();
    words().nth(1).is_some()
        && (starts_with_bare_name(written) || words().any(|word| is_argument(word, options)))
}

fn starts_with_bare_name(written: &str) -> bool {
    let first = written.split_whitespace().next();
    first.is_some_and(|first| !first.contains(['/', '\\', '$']))
}

/// Whether a word is an option, sets a variable, is a url, or holds a secret.
fn is_argument(word: &str, options: &Options) -> bool {
    let name = word.trim_start_matches('-');
    let is_option = name.len() < word.len() && name.starts_with(|c: char| c.is_ascii_alphanumeric());
    let sets_variable = word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    });
    is_option || sets_variable || word.contains("://") || secrets::in_argument(word, options).is_some()
}

fn whole_line(command: &Spanned<String>, sink: &mut Sink<'_>) {
    let mut words = command.value.split_whitespace();
    let shown = match (words.next(), words.next()) {
        (Some(first), Some(_)) => shown_word(first, true),
        _ => shown(&command.value),
    };
    let message = format!("the program {shown} is a whole command line");
    let help = "`command` is the program alone: put the rest into `args`";
    sink.error(Code::ProgramNotFound, command.span, message, help);
}

/// A program for a message. What follows its first word may be arguments, and these may be secrets: it is shown only
/// where all of it looks like more of a path.
fn shown(written: &str) -> String {
    let mut words = written.split_whitespace();
    let first = words.next().unwrap_or_default();
    let mut rest = words.peekable();
    if rest.peek().is_none() {
        return shown_word(written, false);
    }
    let may_be_secret = |word: &str| word.contains(['=', '?', '@']) || word.contains("://");
    let is_path = first.contains(['/', '\\'])
        && assigned(first).is_none()
        && !secrets::looks_secret(written)
        && rest.all(|word| word.contains(['/', '\\']) && !may_be_secret(word));
    match is_path {
        true => quote(written),
        false => shown_word(first, true),
    }
}

/// One word of it, without what a name or a url in it is given, and a sign that more follows.
fn shown_word(word: &str, has_more: bool) -> String {
    let name = match secrets::looks_secret(word) {
        true => "",
        false => assigned(word).unwrap_or(word),
    };
    match (name.len() < word.len(), has_more) {
        (true, _) => quote(&format!("{name}…")),
        (false, true) => quote(&format!("{name} …")),
        (false, false) => quote(name),
    }
}

/// What stands before a value, or before a url's query; `\\?\` starts a path on Windows.
fn assigned(word: &str) -> Option<&str> {
    let ends = |c: char| c == '=' || c == '?' && word.contains("://");
    word.split_once(ends).map(|(name, _)| name)
}

/// The PATH that the child will get, and what to call it.
fn child_path(
    draft: &Draft,
    env: &BTreeMap<String, Template>,
    context: &Context<'_>,
) -> (String, &'static str) {
    let Some(own) = env.get("PATH") else {
        return (
            context.environment.variable("PATH").unwrap_or_default(),
            "the PATH",
        );
    };
    // A reference without a value has been reported with `env`.
    let path = own.resolve(context.environment as &dyn Sources);
    let whose = match draft.env.iter().any(|pair| pair.name.value == "PATH") {
        true => "the server's own `env.PATH`",
        false => "the PATH of the server's `envFile`",
    };
    let path = path.map(|path| path.expose_secret().to_owned());
    (path.unwrap_or_default(), whose)
}

/// The file names that a bare name stands for: on Windows also with each extension of PATHEXT.
fn names(name: &str, context: &Context<'_>) -> Vec<String> {
    let mut names = vec![name.to_owned()];
    if cfg!(windows) {
        let extensions = context
            .environment
            .variable("PATHEXT")
            .unwrap_or_else(|| ".COM;.EXE;.BAT;.CMD".to_owned());
        names.extend(
            extensions
                .split(';')
                .filter(|extension| !extension.is_empty())
                .map(|extension| format!("{name}{extension}")),
        );
    }
    names
}
