use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    rc::Rc,
};

use super::{Context, if_enabled, literal_secret, open_text, program, template};
use crate::{
    Code, Profile, StdioSpec, Template,
    draft::Draft,
    env_file::{EnvFile, MAX_VARIABLES},
    secrets,
    source::{Sink, quote},
    template::is_variable,
    value::Span,
};

pub(super) fn build(draft: &Draft, context: &Context<'_>, sink: &mut Sink<'_>) -> Option<StdioSpec> {
    let env = env(draft, context, sink);
    let inherit_env = inherit_env(draft, &env, context, sink);
    let args = args(draft, context, sink);
    let cwd = cwd(draft, context, sink);
    let program = program::find(draft, &env, context, sink)?;
    Some(StdioSpec {
        program,
        args,
        env,
        inherit_env,
        cwd,
    })
}

fn env(draft: &Draft, context: &Context<'_>, sink: &mut Sink<'_>) -> BTreeMap<String, Template> {
    let mut env = from_file(draft, context, sink);
    for pair in &draft.env {
        let name = &pair.name.value;
        let field = format!("env.{}", quote(name).trim_matches('`'));
        if !legal_name(name, pair.name.span, context, sink) {
            continue;
        }
        let value = template(draft, |c| c == '\0', &pair.value, &field, context, sink);
        if secrets::variable(name, context.options) {
            if context.profile == Profile::Strict {
                let message = format!("`{field}` carries a capability, and its value stands in the document");
                let help =
                    format!("take it out of `env` and list `{name}` in `inheritEnv`; the host must allow it");
                sink.error(Code::CapabilityInEnv, pair.name.span, message, help);
            } else if secrets::holds(&pair.value.value, true) {
                literal_secret(pair.value.span, &field, name, sink);
            }
        } else if secrets::holds(&pair.value.value, false) {
            literal_secret(pair.value.span, &field, name, sink);
        }
        env.insert(name.clone(), value);
    }
    env
}

/// What the file of variables sets. Its values are read again when the server starts, and never held.
fn from_file(draft: &Draft, context: &Context<'_>, sink: &mut Sink<'_>) -> BTreeMap<String, Template> {
    let mut env = BTreeMap::new();
    let Some(text) = &draft.env_file else { return env };
    if context.profile == Profile::Strict {
        let message = "the strict profile reads no variables from a file";
        let help = "take `envFile` out, and list the names in `inheritEnv`; the host must allow them";
        sink.error(Code::CapabilityInEnv, text.span, message, help);
        return env;
    }
    let Some(path) = open_text(draft, text, "envFile", context, sink) else {
        return env;
    };
    if !Path::new(&path).is_absolute() {
        let message = format!("the file {} is no absolute path", quote(&path));
        let help = "write the whole path, or start it with `${HOME}`; `~` is not expanded";
        sink.report(if_enabled(draft), Code::BadValue, text.span, message, help);
        return env;
    }
    let Some(file) = context.env_file(&path) else {
        let message = format!("`envFile` names {}, which cannot be read", quote(&path));
        let help = "give the absolute path of a text file that this user may read";
        sink.report(if_enabled(draft), Code::UnsetReference, text.span, message, help);
        return env;
    };
    if let Some(line) = file.strange_line {
        let message = format!(
            "line {line} of the file {} sets no variable, and is passed over",
            quote(&path)
        );
        let help = "write `NAME=value`, one a line; comments start with `#`";
        sink.warning(Code::BadValue, text.span, message, help);
    }
    if file.has_nul {
        let message = format!("the file {} holds a NUL character", quote(&path));
        let help = "no program can be given one: take it out";
        sink.report(if_enabled(draft), Code::BadValue, text.span, message, help);
    }
    if file.names.len() > MAX_VARIABLES {
        let message = format!(
            "the file {} sets more than {MAX_VARIABLES} variables",
            quote(&path)
        );
        let help = "give the server a file of its own, with the variables that it reads";
        sink.error(Code::BadValue, text.span, message, help);
        return env;
    }
    for name in &file.names {
        env.insert(name.clone(), Template::env_file(&path, name));
    }
    env
}

impl Context<'_> {
    /// A file of variables, read once for all servers that name it.
    fn env_file(&self, path: &str) -> Option<Rc<EnvFile>> {
        if let Some(known) = self.env_files.borrow().get(path) {
            return known.clone();
        }
        let text = self.environment.file(path);
        let file = text.map(|text| Rc::new(EnvFile::read(&text)));
        self.env_files.borrow_mut().insert(path.to_owned(), file.clone());
        file
    }
}

fn inherit_env(
    draft: &Draft,
    env: &BTreeMap<String, Template>,
    context: &Context<'_>,
    sink: &mut Sink<'_>,
) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for text in &draft.inherit_env {
        let name = &text.value;
        if !legal_name(name, text.span, context, sink) {
            continue;
        }
        if context.profile == Profile::Strict && !context.options.allowed_inherited_env_keys.contains(name) {
            let message = format!("the host does not allow {} to be inherited", shown(name));
            let help = "take it out, or have the host add it to its allowed inherited variables";
            sink.error(Code::InheritNotAllowed, text.span, message, help);
        }
        if env.contains_key(name) {
            let message = format!("{} is inherited and set in `env`: `env` counts", shown(name));
            sink.warning(Code::IgnoredField, text.span, message, "keep one of the two");
        } else if secrets::looks_secret(name) && context.environment.variable(name).is_none() {
            let message = "an item of `inheritEnv` looks like a secret itself, and is the name of nothing";
            let help = "name the variable that holds the value; the value itself has no place here";
            sink.error(Code::BadValue, text.span, message, help);
        } else if draft.enabled && context.environment.variable(name).is_none() {
            let message = format!(
                "`inheritEnv` needs the variable {}, which is not set",
                quote(name)
            );
            let help = format!("set `{name}` before the hub starts, or take it out of the list");
            sink.error(Code::UnsetReference, text.span, message, help);
        }
        names.insert(name.clone());
    }
    names
}

/// Strict documents name variables as POSIX has it; others in any way that a process can be given.
fn legal_name(name: &str, span: Span, context: &Context<'_>, sink: &mut Sink<'_>) -> bool {
    let is_possible = !name.contains('=') && !name.contains(char::is_control) && !name.trim().is_empty();
    let legal = is_variable(name) || (is_possible && context.profile == Profile::Desktop);
    if !legal {
        let message = format!("{} is no name that a variable can have", shown(name));
        sink.error(
            Code::BadValue,
            span,
            message,
            "use letters, digits and `_`, no digit first",
        );
    }
    legal
}

/// A variable's name for a message. Whoever writes the value in its place, or behind it, does not see it printed.
fn shown(name: &str) -> String {
    match name.split_once('=') {
        Some((name, _)) => quote(&format!("{name}=…")),
        None if secrets::looks_secret(name) => "`…`".to_owned(),
        None => quote(name),
    }
}

fn args(draft: &Draft, context: &Context<'_>, sink: &mut Sink<'_>) -> Vec<Template> {
    let mut args = Vec::with_capacity(draft.args.len());
    // The option before, should it want a secret: `--api-key`, and the next argument is it.
    let mut wants_secret = false;
    for (text, index) in draft.args.iter().zip(1..) {
        let field = format!("args (item {index})");
        let arg = template(draft, |c| c == '\0', text, &field, context, sink);
        let (option, value) = match text.value.split_once('=') {
            Some((option, value)) if option.starts_with('-') => (option, Some(value)),
            _ => (text.value.as_str(), None),
        };
        let is_option = option.starts_with('-') && !option.contains(char::is_whitespace);
        let names_secret = is_option && secrets::name(option, context.options);
        let literal = !arg.has_references() && !text.value.is_empty();
        let refers = arg
            .variables()
            .any(|name| secrets::variable(name, context.options))
            || arg.files().next().is_some()
            || arg.keyring_entries().next().is_some();
        if refers {
            let message =
                format!("`{field}` takes a secret, and a program's arguments can be read by other programs");
            sink.warning(
                Code::ExposedSecret,
                text.span,
                message,
                "give it in `env`, if the server takes it from there",
            );
        } else if literal
            && (names_secret && value.is_some_and(|value| !value.is_empty())
                || wants_secret && !is_option
                || secrets::in_argument(&text.value, context.options).is_some())
        {
            literal_secret(text.span, &field, "NAME", sink);
        }
        wants_secret = names_secret && value.is_none();
        args.push(arg);
    }
    args
}

fn cwd(draft: &Draft, context: &Context<'_>, sink: &mut Sink<'_>) -> Option<PathBuf> {
    let text = draft.cwd.as_ref()?;
    let cwd = open_text(draft, text, "cwd", context, sink)?;
    if !Path::new(&cwd).is_absolute() {
        let message = format!("the folder {} is no absolute path", quote(&cwd));
        let help = "write the whole path, or start it with `${HOME}`; `~` is not expanded";
        sink.report(if_enabled(draft), Code::BadValue, text.span, message, help);
    }
    Some(PathBuf::from(cwd))
}
