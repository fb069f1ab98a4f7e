//! Codex' TOML: `[mcp_servers.name]` with `command`, `args`, `env`, `env_vars`, or `url`, `http_headers`,
//! `env_http_headers`, `bearer_token_env_var`.

use super::common;
use crate::{
    Code,
    draft::{Draft, MAX_MILLISECONDS, Names},
    fields::{Fields, Pair},
    source::Sink,
    template::is_variable,
    value::{Member, Node, Spanned},
};

pub(super) fn server(
    name: &Spanned<String>,
    fields: &mut Fields<'_>,
    member: &Member,
    sink: &mut Sink<'_>,
) -> Option<Draft> {
    let names = Names {
        inherit_env: None,
        headers: Some("http_headers"),
        timeout_ms: None,
        disabled_tools: Some("disabled_tools"),
        env_file: None,
        ..Names::COMMON
    };
    let mut draft = Draft::read(name.clone(), &names, fields, &member.value, sink);
    draft.inherit_env = env_vars(fields, sink);
    headers(&mut draft, fields, sink);
    timeouts(&mut draft, fields, sink);
    common::only_tools(&["enabled_tools"], &draft, fields, sink);
    common::approvals(
        &["default_tools_approval_mode", "tools", "trust"],
        &draft,
        fields,
        sink,
    );
    common::logins(
        &["scopes", "oauth_resource", "oauth", "bearer_token"],
        fields,
        sink,
    );
    fields.unsupported("required", "the hub opens without waiting for any server", sink);
    fields.unsupported(
        "experimental_environment",
        "servers are started where the hub runs",
        sink,
    );
    fields.unsupported(
        "supports_parallel_tool_calls",
        "calls to one server always run side by side",
        sink,
    );
    Some(draft)
}

/// Names, or objects `{name, source}`.
fn env_vars(fields: &mut Fields<'_>, sink: &mut Sink<'_>) -> Vec<Spanned<String>> {
    let Some(member) = fields.take("env_vars") else {
        return Vec::new();
    };
    fields.carried("env_vars", "inheritEnv");
    let objects = matches!(&member.value.node, Node::List(items)
        if items.iter().any(|item| matches!(item.node, Node::Object(_))));
    if !objects {
        return fields.texts("env_vars", sink);
    }
    let Node::List(items) = &member.value.node else {
        return Vec::new();
    };
    let mut names = Vec::new();
    for item in items {
        let name = match &item.node {
            Node::Object(object) => object.get("name").map(|name| &name.value),
            _ => Some(item),
        };
        match name.and_then(|name| Some((name.scalar()?, name.span))) {
            Some((value, span)) => names.push(Spanned {
                value: value.to_owned(),
                span,
            }),
            None => sink.error(
                Code::WrongType,
                item.span,
                "an item of `env_vars` names no variable",
                "write the variable's name, as a text",
            ),
        }
    }
    names
}

/// Headers whose values stand in variables become references to these.
fn headers(draft: &mut Draft, fields: &mut Fields<'_>, sink: &mut Sink<'_>) {
    if let Some(variable) = fields.text("bearer_token_env_var", sink) {
        fields.converted(
            "bearer_token_env_var",
            "headers.Authorization",
            "a reference to the variable",
        );
        let name = Spanned {
            value: "Authorization".to_owned(),
            span: variable.span,
        };
        let value = reference("Bearer ", "bearer_token_env_var", &variable, sink);
        draft.headers.extend(value.map(|value| Pair { name, value }));
    }
    for pair in fields.pairs_as("env_http_headers", "headers", sink) {
        let value = reference("", "env_http_headers", &pair.value, sink);
        draft.headers.extend(value.map(|value| Pair {
            name: pair.name,
            value,
        }));
    }
    fields.carried("env_http_headers", "headers");
    fields.inner_converted("env_http_headers", "a reference to the variable");
}

/// Whoever puts the value where its variable's name belongs does not see it printed.
fn reference(
    before: &str,
    field: &str,
    variable: &Spanned<String>,
    sink: &mut Sink<'_>,
) -> Option<Spanned<String>> {
    let name = &variable.value;
    if !is_variable(name) {
        let message = format!("`{field}` holds what is no name of a variable");
        let help = "name the variable that holds the value; the value itself has no place here";
        sink.error(Code::BadValue, variable.span, message, help);
        return None;
    }
    Some(Spanned {
        value: format!("{before}${{env:{name}}}"),
        span: variable.span,
    })
}

fn timeouts(draft: &mut Draft, fields: &mut Fields<'_>, sink: &mut Sink<'_>) {
    let seconds = fields.seconds("startup_timeout_sec", MAX_MILLISECONDS, sink);
    let milliseconds = fields.number("startup_timeout_ms", MAX_MILLISECONDS, sink);
    if let (Some(_), Some(ignored)) = (&seconds, &milliseconds) {
        let message = "`startup_timeout_ms` is not used: `startup_timeout_sec` counts";
        fields.dropped("startup_timeout_ms", "`startup_timeout_sec` counts");
        sink.warning(Code::IgnoredField, ignored.span, message, "keep one of the two");
    } else {
        fields.carried("startup_timeout_ms", "timeouts.connectMs");
    }
    fields.converted(
        "startup_timeout_sec",
        "timeouts.connectMs, timeouts.listMs",
        "seconds are written as milliseconds",
    );
    fields.converted(
        "tool_timeout_sec",
        "timeouts.callMs",
        "seconds are written as milliseconds",
    );
    draft.timeouts.connect = seconds.or(milliseconds);
    draft.timeouts.list = draft.timeouts.connect.clone();
    draft.timeouts.call = fields.seconds("tool_timeout_sec", MAX_MILLISECONDS, sink);
}
