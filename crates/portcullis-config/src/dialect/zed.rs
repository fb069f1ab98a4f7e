//! Zed's settings: `{"context_servers": {name: {command, args, env} or {url, headers}}}`; in older ones `command` is
//! an object `{path, args, env}`.

use super::common;
use crate::{
    Code,
    draft::{Draft, Names},
    fields::Fields,
    source::{Sink, quote},
    value::{Member, Node, Spanned},
};

pub(super) fn server(
    name: &Spanned<String>,
    fields: &mut Fields<'_>,
    member: &Member,
    sink: &mut Sink<'_>,
) -> Option<Draft> {
    let older = matches!(
        fields.take("command").map(|command| &command.value.node),
        Some(Node::Object(_))
    );
    let names = Names {
        command: (!older).then_some("command"),
        args: (!older).then_some("args"),
        env: (!older).then_some("env"),
        ..Names::COMMON
    };
    let mut draft = Draft::read(name.clone(), &names, fields, &member.value, sink);
    if older {
        command_object(&mut draft, fields, sink);
    }
    draft.declared = common::declared(fields, sink);
    common::timeout_seconds(&mut draft, fields, sink);
    common::timeout_of_either_unit(&mut draft, fields, sink);
    source(name, fields, sink)?;
    fields.unsupported(
        "settings",
        "they are for the extension that starts the server",
        sink,
    );
    fields.unsupported("remote", "servers are started where the hub runs", sink);
    common::logins(&["oauth"], fields, sink);
    Some(draft)
}

/// A server that an extension of the editor brings has no command here: it cannot be started without the editor.
fn source(name: &Spanned<String>, fields: &mut Fields<'_>, sink: &mut Sink<'_>) -> Option<()> {
    let Some(source) = fields.text("source", sink) else {
        return Some(());
    };
    match source.value.as_str() {
        "custom" => {
            fields.converted(
                "source",
                "command",
                "a server with a command of its own is the only kind",
            );
            Some(())
        }
        "extension" => {
            let message = format!(
                "the server {} is brought by an extension of the editor, which alone can start it",
                quote(&name.value)
            );
            let help =
                "give the command that the extension runs, as `command` and `args`, with `source` left out";
            sink.error(Code::NoTransport, source.span, message, help);
            // The missing command would only be said again.
            None
        }
        other => {
            let message = format!("`source` is {}", quote(other));
            sink.error(
                Code::BadValue,
                source.span,
                message,
                "write `custom`, or leave it out",
            );
            Some(())
        }
    }
}

fn command_object(draft: &mut Draft, fields: &mut Fields<'_>, sink: &mut Sink<'_>) {
    let Some(member) = fields.take("command") else {
        return;
    };
    let Some(mut command) = Fields::of(&member.value, "`command`", sink) else {
        return;
    };
    command = command.under("command.").lifted();
    draft.has_command = true;
    draft.command = command.text("path", sink);
    if command.object().get("path").is_none() {
        let help = "add `path`, the program to start";
        sink.error(
            Code::MissingField,
            member.value.span,
            "`command` has no `path`",
            help,
        );
    }
    draft.args = command.texts("args", sink);
    draft.env = command.pairs("env", sink);
    for (name, to) in [("path", "command"), ("args", "args"), ("env", "env")] {
        command.carried(name, to);
    }
    command.finish(sink);
    fields.converted("command", "command, args, env", "its parts stand side by side");
}
