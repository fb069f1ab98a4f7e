//! Puts references where a document has literal secrets.

use std::collections::{HashMap, HashSet};

use portcullis_types::ServerId;
use url::Url;

use super::ToSet;
use crate::{
    Template,
    build::Context,
    draft::{Draft, DraftDocument},
    fields::member_path,
    network::{NetworkDraft, ProxyDraft},
    secrets,
    source::{Change, Source, short},
    value::{Span, Spanned},
};

/// The variables that references name: one for each secret, none for two.
pub(super) struct Variables {
    by_value: HashMap<String, String>,
    taken: HashSet<String>,
    /// The number that was last put behind a name that was taken, by that name.
    numbers: HashMap<String, usize>,
}

impl Variables {
    /// Those that the document refers to already are taken.
    pub(super) fn of(read: &DraftDocument) -> Self {
        let mut taken: HashSet<_> = read
            .hub
            .network
            .texts()
            .flat_map(|text| {
                Template::parse(&text.value)
                    .variables()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            })
            .collect();
        for draft in &read.servers {
            let texts = draft
                .args
                .iter()
                .chain(draft.env.iter().map(|pair| &pair.value))
                .chain(draft.headers.iter().map(|pair| &pair.value))
                .chain(
                    [&draft.command, &draft.cwd, &draft.url, &draft.env_file]
                        .into_iter()
                        .flatten(),
                );
            for text in texts.chain(draft.network.texts()) {
                taken.extend(Template::parse(&text.value).variables().map(str::to_owned));
            }
        }
        Self {
            by_value: HashMap::new(),
            taken,
            numbers: HashMap::new(),
        }
    }

    fn name(&mut self, value: &str, wanted: &str, id: &ServerId) -> String {
        if let Some(known) = self.by_value.get(value) {
            return known.clone();
        }
        let wanted = variable(wanted);
        let mut name = wanted.clone();
        if self.taken.contains(&name) {
            name = variable(&format!("{id}_{wanted}"));
        }
        if self.taken.contains(&name) {
            let base = name;
            let number = self.numbers.entry(base.clone()).or_insert(1);
            name = loop {
                *number += 1;
                let numbered = format!("{base}_{number}");
                if !self.taken.contains(&numbered) {
                    break numbered;
                }
            };
        }
        self.taken.insert(name.clone());
        self.by_value.insert(value.to_owned(), name.clone());
        name
    }
}

/// What was done to one server.
#[derive(Default)]
pub(super) struct Replaced {
    pub(super) changes: Vec<Change>,
    pub(super) to_set: Vec<ToSet>,
}

/// Replaces the literal secrets of a server by references.
pub(super) fn replace(
    draft: &mut Draft,
    id: &ServerId,
    context: &Context<'_>,
    variables: &mut Variables,
    source: &Source,
) -> Replaced {
    let mut work = Work {
        server: short(&draft.name.value),
        entry: draft.name.span.start,
        id,
        variables,
        source,
        done: Replaced::default(),
    };
    for pair in &mut draft.env {
        let name = pair.name.value.clone();
        if secrets::holds(&pair.value.value, secrets::variable(&name, context.options)) {
            work.put(&mut pair.value, 0, &name, &member_path("env", &name));
        }
    }
    for pair in &mut draft.headers {
        let name = pair.name.value.clone();
        if secrets::holds(&pair.value.value, secrets::name(&name, context.options)) {
            let value = &pair.value.value;
            let from = value.len() - secrets::after_scheme(value).len();
            work.put(&mut pair.value, from, &name, &member_path("headers", &name));
        }
    }
    work.args(&mut draft.args, context);
    work.proxy(&mut draft.network);
    if let Some(url) = &mut draft.url
        && is_secret_url(&url.value, context)
    {
        let wanted = format!("{id}_URL");
        // What a url refers to is printed, so its name may not be one of a capability.
        let wanted = match secrets::variable(&variable(&wanted), context.options) {
            true => "MCP_URL".to_owned(),
            false => wanted,
        };
        work.put(url, 0, &wanted, "url");
    }
    work.done
}

/// The same for what stands for all servers: the login of the proxy.
pub(super) fn replace_of_all(
    network: &mut NetworkDraft,
    id: &ServerId,
    variables: &mut Variables,
    source: &Source,
) -> Replaced {
    let mut work = Work {
        server: String::new(),
        // It stands in no server's entry, and what changes outside of them is told by the variables to set alone.
        entry: 0,
        id,
        variables,
        source,
        done: Replaced::default(),
    };
    work.proxy(network);
    work.done
}

struct Work<'a> {
    server: String,
    entry: usize,
    id: &'a ServerId,
    variables: &'a mut Variables,
    source: &'a Source,
    done: Replaced,
}

impl Work<'_> {
    fn args(&mut self, args: &mut [Spanned<String>], context: &Context<'_>) {
        let mut option: Option<String> = None;
        for (arg, place) in args.iter_mut().zip(1..) {
            let text = arg.value.clone();
            let named = text.starts_with('-') && !text.contains('=') && secrets::name(&text, context.options);
            let starts = secrets::in_argument(&text, context.options);
            if let Some(option) = option
                .take()
                .filter(|_| !text.starts_with('-') && secrets::holds(&text, true))
            {
                self.put(arg, 0, option.trim_start_matches('-'), "args");
            } else if let Some((name, value)) = starts
                .and_then(|from| text.split_at_checked(from))
                .filter(|(_, value)| secrets::holds(value, true))
            {
                let from = text.len() - secrets::after_scheme(value).len();
                // A name that looks like a secret itself is not left standing.
                let from = match self.still_secret(&text, from, context) {
                    true => 0,
                    false => from,
                };
                let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric());
                let wanted = match name {
                    _ if from == 0 => format!("{}_ARG_{place}", self.id),
                    "" => format!("{}_ARG_{place}", self.id),
                    name => name.to_owned(),
                };
                self.put(arg, from, &wanted, "args");
            }
            option = named.then_some(text);
        }
    }

    fn proxy(&mut self, network: &mut NetworkDraft) {
        if let Some(ProxyDraft::Through(through)) = &mut network.proxy
            && let Some(password) = &mut through.password
            && secrets::holds(&password.value, true)
        {
            self.put(password, 0, "PROXY_PASSWORD", "proxy.password");
        }
    }

    /// Whether an argument would be taken for a secret again, were a reference put in the place of what stands after
    /// `from`.
    fn still_secret(&self, text: &str, from: usize, context: &Context<'_>) -> bool {
        let Some((before, _)) = text.split_at_checked(from) else {
            return false;
        };
        let replaced = format!("{before}${{env:X}}");
        secrets::in_argument(&replaced, context.options)
            .and_then(|from| replaced.split_at_checked(from))
            .is_some_and(|(_, value)| secrets::holds(value, true))
    }

    /// Puts a reference in the place of all that stands after `from`.
    fn put(&mut self, text: &mut Spanned<String>, from: usize, wanted: &str, field: &str) {
        let Some((before, value)) = text.value.split_at_checked(from) else {
            return;
        };
        let name = self.variables.name(value, wanted, self.id);
        let Span { start, .. } = text.span;
        self.done.to_set.push(ToSet {
            variable: name.clone(),
            server: self.server.clone(),
            field: field.to_owned(),
            line: self.source.position(start).0,
        });
        self.done.changes.push(Change {
            entry: self.entry,
            to: field.to_owned(),
            how: "the secret in it has become a reference",
        });
        text.value = format!("{before}${{env:{name}}}");
    }
}

fn is_secret_url(written: &str, context: &Context<'_>) -> bool {
    let Ok(url) = Url::parse(written) else {
        return secrets::looks_secret(written);
    };
    // A value that is a reference names a secret and holds none.
    let literal = |value: &str| !value.is_empty() && !value.starts_with("${");
    url.query_pairs().any(|(name, value)| {
        literal(&value) && (secrets::name(&name, context.options) || secrets::looks_secret(&value))
    }) || url
        .path_segments()
        .is_some_and(|mut parts| parts.any(secrets::looks_secret))
}

/// A legal name of a variable, in capitals.
fn variable(wanted: &str) -> String {
    let plain = secrets::capitals(wanted);
    let plain = plain.trim_matches('_');
    match plain.starts_with(|c: char| c.is_ascii_alphabetic()) {
        true => plain.to_owned(),
        false => format!("MCP_{plain}"),
    }
}
