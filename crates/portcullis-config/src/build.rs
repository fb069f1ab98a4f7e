//! Judges drafts by the rules of their profile and turns those that pass into [`ServerSpec`]s.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use portcullis_types::ServerId;
use secrecy::ExposeSecret;

use crate::{
    Code, Egress, Environment, Limits, Options, Origin, ProcessLimits, Profile, ResolveError, ServerSpec,
    Severity, Sources, Template, TransportSpec,
    draft::{Declared, Draft, EgressSource},
    env_file::EnvFile,
    network::NetworkDraft,
    secrets,
    source::{MAX_NAME, Sink, quote},
    value::{Span, Spanned},
};

mod http;
mod network;
mod program;
mod stdio;
mod timeouts;

pub(crate) use http::derived_rule;
pub(crate) use program::is_command_line;
pub(crate) use timeouts::strict_range;

/// What a server is judged by besides its own fields.
pub(crate) struct Context<'a> {
    pub(crate) options: &'a Options,
    pub(crate) environment: &'a dyn Environment,
    pub(crate) profile: Profile,
    pub(crate) egress: EgressSource,
    /// What the document allows all its servers.
    pub(crate) allowed_hosts: Egress,
    /// The way to all its HTTP servers.
    pub(crate) network: NetworkDraft,
    /// The timeout that the document gives for all its servers, in milliseconds.
    pub(crate) timeout: Option<u64>,
    /// The plugin that declares the servers.
    pub(crate) plugin: Option<String>,
    /// The files of variables, by path, that were read so far; `None` for one that cannot be read.
    pub(crate) env_files: RefCell<HashMap<String, Option<Rc<EnvFile>>>>,
}

/// The spec, or `None` where there was an error; each is in `sink` then.
pub(crate) fn build(draft: &Draft, context: &Context<'_>, sink: &mut Sink<'_>) -> Option<ServerSpec> {
    let errors_before = sink.errors();
    sink.enter(Some(&draft.name));
    let id = id(draft, context, sink);
    let timeouts = timeouts::build(&draft.timeouts, context, sink);
    let transport = transport(draft, context, sink);
    sink.enter(None);
    if draft.broken || sink.errors() > errors_before {
        return None;
    }
    Some(ServerSpec {
        id,
        display_name: draft.name.value.clone(),
        description: draft.description.clone(),
        transport: transport?,
        timeouts,
        protocol: draft.protocol,
        enabled: draft.enabled,
        disabled_tools: draft.disabled_tools.clone(),
        disabled_auto_approve_tools: draft.disabled_auto_approve_tools.clone(),
        isolation: draft.isolation,
        limits: limits(draft),
        profile: context.profile,
        origin: Origin {
            file: sink.source().file.clone(),
            line: sink.source().line(draft.name.span),
            plugin: context.plugin.clone(),
        },
    })
}

fn limits(draft: &Draft) -> Limits {
    let given = |field: &Option<Spanned<u64>>, default: u32| {
        field
            .as_ref()
            .and_then(|given| u32::try_from(given.value).ok())
            .unwrap_or(default)
    };
    let value = |field: &Option<Spanned<u64>>| field.as_ref().map(|given| given.value);
    let default = Limits::default();
    Limits {
        calls_in_flight: given(&draft.limits.calls_in_flight, default.calls_in_flight),
        calls_waiting: given(&draft.limits.calls_waiting, default.calls_waiting),
        tools: given(&draft.limits.tools, default.tools),
        process: ProcessLimits {
            memory_bytes: value(&draft.limits.memory_bytes),
            open_files: value(&draft.limits.open_files),
            processes: value(&draft.limits.processes),
            cpu_seconds: value(&draft.limits.cpu_seconds),
            file_bytes: value(&draft.limits.file_bytes),
        },
    }
}

fn id(draft: &Draft, context: &Context<'_>, sink: &mut Sink<'_>) -> ServerId {
    let name = &draft.name.value;
    let id = ServerId::from_display_name(name);
    // A draft without a name was reported when it was read.
    if name.trim().is_empty() && !draft.broken {
        sink.error(
            Code::BadValue,
            draft.name.span,
            "a server's name is empty",
            "give it a name, unique in the hub",
        );
    } else if name.chars().nth(MAX_NAME).is_some() {
        let message = format!(
            "the server's name {} has more than {MAX_NAME} characters",
            quote(name)
        );
        sink.error(
            Code::BadValue,
            draft.name.span,
            message,
            "give it a short name, and put the rest into `description`",
        );
    } else if name.contains(char::is_control) {
        let message = format!("the server's name {} holds a control character", quote(name));
        sink.error(
            Code::BadValue,
            draft.name.span,
            message,
            "give it a name that can be printed",
        );
    } else if context.profile == Profile::Strict && id.as_str() != name && !draft.broken {
        let message = format!(
            "{} is no id, and the strict profile takes no other name",
            quote(name)
        );
        sink.error(
            Code::BadValue,
            draft.name.span,
            message,
            "use 1 to 64 characters of a-z, 0-9 and `-`, a letter first",
        );
    }
    id
}

fn transport(draft: &Draft, context: &Context<'_>, sink: &mut Sink<'_>) -> Option<TransportSpec> {
    let span = draft.name.span;
    let of_other = |fields: &[(&'static str, Span)], kind: &str, sink: &mut Sink<'_>| {
        for (name, span) in fields {
            let message = format!("`{name}` has no effect: the server is {kind}");
            sink.warning(Code::IgnoredField, *span, message, "take it out");
        }
    };
    match (draft.has_command, draft.has_url) {
        (true, true) => {
            let help = "keep `command` for a program of this machine, or `url` for a server on the network";
            sink.error(
                Code::TwoTransports,
                span,
                "the server has both a `command` and a `url`",
                help,
            );
            None
        }
        (false, false) => {
            // With an entry that says `sse` or a type that is unknown the transport has been judged already.
            let help = "add `command` (a program to start) or `url` (a streamable HTTP endpoint)";
            sink.error(
                Code::NoTransport,
                span,
                "the server has neither a `command` nor a `url`",
                help,
            );
            None
        }
        (true, false) => {
            if draft.declared == Some(Declared::Http) {
                let help = "give its `url`, or leave the type out";
                sink.error(
                    Code::NoTransport,
                    span,
                    "the server's type is `http`, and it has no `url`",
                    help,
                );
            }
            of_other(&draft.http_fields, "a program", sink);
            stdio::build(draft, context, sink).map(TransportSpec::Stdio)
        }
        (false, true) => {
            if draft.declared == Some(Declared::Stdio) {
                let help = "give its `command`, or leave the type out";
                sink.error(
                    Code::NoTransport,
                    span,
                    "the server's type is `stdio`, and it has no `command`",
                    help,
                );
            }
            of_other(&draft.stdio_fields, "reached over HTTP", sink);
            http::build(draft, context, sink).map(TransportSpec::Http)
        }
    }
}

/// A text with references. Unless the server is disabled anyway, each must have a value now, and the whole none of
/// the characters that are `forbidden` where it goes.
fn template(
    draft: &Draft,
    forbidden: fn(char) -> bool,
    text: &Spanned<String>,
    field: &str,
    context: &Context<'_>,
    sink: &mut Sink<'_>,
) -> Template {
    let template = Template::parse(&text.value);
    if draft.enabled {
        unresolved(Severity::Error, &template, text.span, field, context, sink);
        let value = template.resolve(context.environment as &dyn Sources);
        if value.is_ok_and(|value| value.expose_secret().contains(forbidden)) {
            let message = format!("`{field}` holds a line break or another control character");
            let help = "take it out of the text, or of what the text refers to";
            sink.error(Code::BadValue, text.span, message, help);
        }
    }
    template
}

/// A text that is resolved here and now, since the spec holds it in the open: a program, a folder, a url.
///
/// What is resolved here is printed, so it may refer neither to a variable that carries a capability nor to a file.
fn open_text(
    draft: &Draft,
    text: &Spanned<String>,
    field: &str,
    context: &Context<'_>,
    sink: &mut Sink<'_>,
) -> Option<String> {
    let template = Template::parse(&text.value);
    if !template.has_references() {
        return Some(text.value.clone());
    }
    let secret = template
        .variables()
        .find(|name| secrets::variable(name, context.options))
        .map(str::to_owned);
    let secret = secret
        .or_else(|| template.files().next().map(|path| format!("file:{path}")))
        .or_else(|| {
            template
                .keyring_entries()
                .next()
                .map(|entry| format!("keyring:{entry}"))
        });
    if let Some(secret) = secret {
        let message = format!(
            "`{field}` refers to {}, and would show what it holds",
            quote(&secret)
        );
        let help = "put secrets into `headers` or `env`, which are never printed";
        sink.error(Code::ExposedSecret, text.span, message, help);
        return None;
    }
    unresolved(if_enabled(draft), &template, text.span, field, context, sink);
    template
        .resolve(context.environment as &dyn Sources)
        .ok()
        .map(|text| text.expose_secret().to_owned())
}

/// A finding for each reference that has no value.
fn unresolved(
    severity: Severity,
    template: &Template,
    span: Span,
    field: &str,
    context: &Context<'_>,
    sink: &mut Sink<'_>,
) {
    for error in template.unresolved(context.environment as &dyn Sources) {
        let (message, help) = match &error {
            ResolveError::Variable(name) => (
                format!("`{field}` needs the variable {}, which is not set", quote(name)),
                variable_help(name),
            ),
            ResolveError::File(path) => (
                format!("`{field}` needs the file {}, which cannot be read", quote(path)),
                "give the absolute path of a text file that this user may read".to_owned(),
            ),
            ResolveError::Keyring(entry) if context.environment.has_keyring() => (
                format!(
                    "`{field}` needs the keyring's entry {}, which is not there, or cannot be read",
                    quote(entry)
                ),
                "add the entry to the keyring and unlock it, or use `${env:NAME}` or `${file:/path}`"
                    .to_owned(),
            ),
            ResolveError::Keyring(entry) => (
                format!(
                    "`{field}` needs the keyring's entry {}, and this program was built without a keyring",
                    quote(entry)
                ),
                "build it with the feature `keyring`, or use `${env:NAME}` or `${file:/path}`".to_owned(),
            ),
            ResolveError::TooLong => (
                format!("`{field}` comes to more than {} bytes", Template::MAX_BYTES),
                "have the server read a long text from a file of its own".to_owned(),
            ),
            ResolveError::EnvFile { path, name } => (
                format!("`{field}` is not set by {}", quote(path)),
                format!("add a line `{name}=…` to the file"),
            ),
            ResolveError::Kind(reference) => (
                format!(
                    "`{field}` holds {}, a reference that is not resolved here",
                    quote(reference)
                ),
                "use `${env:NAME}`, `${file:/path}` or `${keyring:service/account}`".to_owned(),
            ),
        };
        sink.report(severity, Code::UnsetReference, span, message, help);
    }
}

fn variable_help(name: &str) -> String {
    match name {
        "workspaceFolder" | "workspaceRoot" | "workspaceFolderBasename" => {
            "write the folder out; `portcullis check` and `portcullis import` take it as `--workspace`"
                .to_owned()
        }
        _ => format!("set `{name}` before the hub starts, or give a default: `${{{name}:-…}}`"),
    }
}

/// An error, or a warning where the server is disabled and so is not touched by the state of this machine.
fn if_enabled(draft: &Draft) -> Severity {
    if draft.enabled {
        Severity::Error
    } else {
        Severity::Warning
    }
}

/// Warns of a literal value under a name that carries a capability.
fn literal_secret(span: Span, field: &str, variable: &str, sink: &mut Sink<'_>) {
    let message = format!("`{field}` holds a secret in the document itself");
    let help = format!("write `${{env:{variable}}}` and set that variable, or `${{file:/path}}`");
    sink.warning(Code::LiteralSecret, span, message, help);
}
