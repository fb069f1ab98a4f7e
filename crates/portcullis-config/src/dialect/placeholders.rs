//! References as the dialects write them, turned into ours: `${env:X}` and `${file:/path}`.

use std::collections::BTreeMap;

use super::Dialect;
use crate::{
    Options,
    draft::{Draft, DraftDocument},
    fields::member_path,
    secrets,
    source::{Change, Sink},
};

/// The longest default of an input that is taken over.
const MAX_DEFAULT_BYTES: usize = 512;

/// Rewrites the references of all servers.
pub(super) fn translate(dialect: Dialect, read: &mut DraftDocument, options: &Options, sink: &mut Sink<'_>) {
    let workspace = options
        .workspace_folder
        .as_ref()
        .and_then(|folder| folder.to_str())
        .filter(|folder| !folder.contains("${"));
    for draft in &mut read.servers {
        match dialect {
            Dialect::McpServers | Dialect::VsCode | Dialect::Assets => {
                each_text(draft, sink, &|text| editor(text, workspace));
            }
            Dialect::Gemini | Dialect::Goose => each_text(draft, sink, &dollar),
            Dialect::Opencode => each_text(draft, sink, &braces),
            Dialect::Portcullis | Dialect::Code | Dialect::Zed | Dialect::Codex => {}
        }
    }
}

/// Rewrites `${input:id}` of the inputs that the document declares.
pub(super) fn inputs(draft: &mut Draft, inputs: &BTreeMap<String, Option<String>>, sink: &mut Sink<'_>) {
    each_text(draft, sink, &|text| {
        replace(text, |inside| {
            let id = inside.strip_prefix("input:")?;
            let default = inputs.get(id)?;
            let variable = input_variable(id);
            Some(match default {
                // A default that holds a brace would end the reference too early, and a long one is written out
                // wherever it is referred to.
                Some(default) if default.len() <= MAX_DEFAULT_BYTES && !default.contains('}') => {
                    format!("${{env:{variable}:-{default}}}")
                }
                _ => format!("${{env:{variable}}}"),
            })
        })
    });
}

/// `INPUT_API_KEY` for `api-key`.
fn input_variable(id: &str) -> String {
    format!("INPUT_{}", secrets::capitals(id))
}

/// What Cursor and Visual Studio Code know besides variables.
fn editor(text: &str, workspace: Option<&str>) -> Option<String> {
    replace(text, |inside| match inside {
        "userHome" => Some("${env:HOME}".to_owned()),
        "workspaceFolder" | "workspaceRoot" => workspace.map(str::to_owned),
        "workspaceFolderBasename" => {
            workspace.map(|folder| folder.rsplit(['/', '\\']).next().unwrap_or_default().to_owned())
        }
        "pathSeparator" | "/" => Some(std::path::MAIN_SEPARATOR.to_string()),
        _ => None,
    })
}

/// Replaces what stands in `${…}` by what `with` has for it.
fn replace(text: &str, with: impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut new = String::new();
    let mut rest = text;
    let mut changed = false;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((inside, next)) = after.split_once('}') else {
            break;
        };
        new.push_str(before);
        match with(inside) {
            Some(other) => {
                changed = true;
                new.push_str(&other);
            }
            None => {
                new.push_str("${");
                new.push_str(inside);
                new.push('}');
            }
        }
        rest = next;
    }
    new.push_str(rest);
    changed.then_some(new)
}

/// `$NAME`, which some clients expand as a shell does.
fn dollar(text: &str) -> Option<String> {
    let mut new = String::new();
    let mut rest = text;
    let mut changed = false;
    while let Some((before, after)) = rest.split_once('$') {
        new.push_str(before);
        let length = after
            .bytes()
            .take_while(|b| b.is_ascii_alphanumeric() || *b == b'_')
            .count();
        let (name, next) = after.split_at_checked(length).unwrap_or((after, ""));
        if name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            changed = true;
            new.push_str(&format!("${{env:{name}}}"));
            rest = next;
        } else {
            new.push('$');
            rest = after;
        }
    }
    new.push_str(rest);
    changed.then_some(new)
}

/// opencode's `{env:NAME}` and `{file:path}`.
fn braces(text: &str) -> Option<String> {
    let mut new = String::new();
    let mut rest = text;
    let mut changed = false;
    // How much of the text stands after the last brace: to look for it each time anew would be quadratic.
    let last = text.rsplit_once('}').map_or(usize::MAX, |(_, after)| after.len());
    while let Some((before, after)) = rest.split_once('{') {
        new.push_str(before);
        let known = after.starts_with("env:") || after.starts_with("file:");
        if known && after.len() > last && !before.ends_with('$') {
            changed = true;
            new.push('$');
        }
        new.push('{');
        rest = after;
    }
    new.push_str(rest);
    changed.then_some(new)
}

fn each_text(draft: &mut Draft, sink: &mut Sink<'_>, with: &dyn Fn(&str) -> Option<String>) {
    let entry = draft.name.span.start;
    let mut change = |text: &mut String, field: &dyn Fn() -> String| {
        if let Some(new) = with(text) {
            *text = new;
            sink.change(Change {
                entry,
                to: field(),
                how: "references are written as `${env:NAME}`, or their value is",
            });
        }
    };
    let single = [
        (&mut draft.command, "command"),
        (&mut draft.cwd, "cwd"),
        (&mut draft.url, "url"),
        (&mut draft.env_file, "envFile"),
    ];
    for (text, field) in single {
        if let Some(text) = text {
            change(&mut text.value, &|| field.to_owned());
        }
    }
    for arg in &mut draft.args {
        change(&mut arg.value, &|| "args".to_owned());
    }
    for (pairs, field) in [(&mut draft.env, "env"), (&mut draft.headers, "headers")] {
        for pair in pairs {
            let name = &pair.name.value;
            change(&mut pair.value.value, &|| member_path(field, name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dialects_references_become_ours() {
        for (text, expected) in [
            ("$X/a", Some("${env:X}/a")),
            ("${X}", None),
            ("cost: $5", None),
            ("a$", None),
            ("$A$B", Some("${env:A}${env:B}")),
            ("ä$Xö", Some("ä${env:X}ö")),
        ] {
            assert_eq!(dollar(text).as_deref(), expected, "{text}");
        }
        for (text, expected) in [
            ("Bearer {env:X}", Some("Bearer ${env:X}")),
            ("${env:X}", None),
            ("{\"a\": {env:X}}", Some("{\"a\": ${env:X}}")),
            ("{env:X", None),
            ("{other}", None),
        ] {
            assert_eq!(braces(text).as_deref(), expected, "{text}");
        }
        for (text, expected) in [
            ("${userHome}/x", Some("${env:HOME}/x")),
            (
                "${workspaceFolder}/${workspaceFolderBasename}",
                Some("/w/app/app"),
            ),
            ("${env:X}${X}", None),
            ("${unclosed", None),
        ] {
            assert_eq!(editor(text, Some("/w/app")).as_deref(), expected, "{text}");
        }
        assert_eq!(editor("${workspaceFolder}", None), None);
        assert_eq!(input_variable("api-key"), "INPUT_API_KEY");
    }
}
