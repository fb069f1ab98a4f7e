//! Reads the members of an object one by one, and reports those that nobody asked for.

mod typed;

use std::collections::HashSet;

use crate::{
    Code, Fate,
    dialect::portcullis::OF_ALL_DOCUMENTS,
    source::{Sink, quote, short},
    value::{Member, Node, Object, Span, Value},
};
pub(crate) use typed::Pair;

pub(crate) struct Fields<'t> {
    object: &'t Object,
    /// What the object is, for messages: "a server", "`mcp`".
    of: &'static str,
    asked: Vec<&'static str>,
    /// What stands before the names in reports: `timeouts.`.
    prefix: &'static str,
    /// Whether the prefix is left out of what the fields are carried to.
    lifted: bool,
    /// What became of fields, where it is more than that they were read.
    fates: Vec<(&'static str, Fate)>,
    /// What became of the members of a field.
    inner: Vec<(String, Span, Fate)>,
    unknown: Unknown,
}

/// What a member that nobody asked for is.
#[derive(Debug, Clone, Copy)]
enum Unknown {
    /// A warning.
    Told,
    /// An error, where it may have been meant for one of these: without them more is allowed.
    Guarded(&'static [&'static [&'static str]]),
    /// An error, whatever it is.
    Refused,
}

impl<'t> Fields<'t> {
    pub(crate) fn new(object: &'t Object, of: &'static str) -> Self {
        Self {
            object,
            of,
            asked: Vec::new(),
            prefix: "",
            lifted: false,
            fates: Vec::new(),
            inner: Vec::new(),
            unknown: Unknown::Told,
        }
    }

    /// The same, of an object of limits: a member that nobody asked for is an error, since what it was to restrict
    /// would be lost.
    pub(crate) fn of_limits(mut self) -> Self {
        self.unknown = Unknown::Refused;
        self
    }

    /// The same for members that may have been meant for one of `names`, whether or not those belong here.
    pub(crate) fn guarding(mut self, names: &'static [&'static [&'static str]]) -> Self {
        self.unknown = Unknown::Guarded(names);
        self
    }

    /// The same, of an object that stands in a field of a server.
    pub(crate) fn under(mut self, prefix: &'static str) -> Self {
        self.prefix = prefix;
        self
    }

    /// The same, of fields that the own format has one higher.
    pub(crate) fn lifted(mut self) -> Self {
        self.lifted = true;
        self
    }

    /// Says that a field is carried over under another name.
    pub(crate) fn carried(&mut self, name: &'static str, to: &str) {
        self.fate(name, Fate::Carried { to: to.to_owned() });
    }

    /// Says that a field is carried over in another form.
    pub(crate) fn converted(&mut self, name: &'static str, to: &str, how: impl Into<String>) {
        let (to, how) = (to.to_owned(), how.into());
        self.fate(name, Fate::Converted { to, how });
    }

    /// Says that a field is not carried over.
    pub(crate) fn dropped(&mut self, name: &'static str, why: impl Into<String>) {
        self.fate(name, Fate::Dropped { why: why.into() });
    }

    /// Says that all members of a field are carried over in another form.
    pub(crate) fn inner_converted(&mut self, name: &str, how: &str) {
        for (path, _, fate) in &mut self.inner {
            let of_field = path.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
            if let Fate::Carried { to } = fate
                && of_field
            {
                *fate = Fate::Converted {
                    to: std::mem::take(to),
                    how: how.to_owned(),
                };
            }
        }
    }

    fn fate(&mut self, name: &'static str, fate: Fate) {
        self.fates.retain(|(known, _)| *known != name);
        self.fates.push((name, fate));
    }

    /// The object itself.
    pub(crate) fn object(&self) -> &'t Object {
        self.object
    }

    /// The same, of a value that must be an object; an error and `None` where it is not.
    pub(crate) fn of(value: &'t Value, of: &'static str, sink: &mut Sink<'_>) -> Option<Self> {
        match &value.node {
            Node::Object(object) => Some(Self::new(object, of)),
            _ => {
                let message = format!("{of} is an object, and this is {}", value.kind());
                sink.error(
                    Code::WrongType,
                    value.span,
                    message,
                    "write its fields as `name: value` pairs",
                );
                None
            }
        }
    }

    pub(crate) fn take(&mut self, name: &'static str) -> Option<&'t Member> {
        self.asked.push(name);
        self.object.get(name)
    }

    /// A field whose meaning is known and which is not read.
    pub(crate) fn unsupported(&mut self, name: &'static str, why: &str, sink: &mut Sink<'_>) {
        if let Some(member) = self.take(name) {
            self.dropped(name, why);
            let message = format!("`{name}` is not carried over: {why}");
            sink.warning(
                Code::UnsupportedField,
                member.key.span,
                message,
                "take it out, or do without what it says",
            );
        }
    }

    /// Reports each member that nobody asked for, with a near one that somebody did.
    pub(crate) fn finish(self, sink: &mut Sink<'_>) {
        self.close(true, sink);
    }

    /// The same for the top of a file that a client keeps all its settings in: what is not about servers is no
    /// mistake, so it is only told in the report of an import.
    pub(crate) fn finish_settings(self, sink: &mut Sink<'_>) {
        self.close(false, sink);
    }

    fn close(self, all_ours: bool, sink: &mut Sink<'_>) {
        let mut of_client = Vec::new();
        for member in &self.object.members {
            if self.asked.iter().any(|name| *name == member.key.value) {
                continue;
            }
            let key = &member.key.value;
            let asked = match sink.may_suggest() {
                true => near(key, &self.asked),
                false => None,
            };
            let (near, restricts) = match self.unknown {
                Unknown::Told => (asked, false),
                Unknown::Refused => (asked, true),
                Unknown::Guarded(names) => {
                    let may_look = sink.may_look_for_limits();
                    let guarded = names
                        .iter()
                        .find_map(|names| near(key, names))
                        .filter(|_| may_look);
                    // Where nobody looked it up, it may be one.
                    let is_one = asked.map_or(guarded.is_some(), |name| names.concat().contains(&name));
                    (asked.or(guarded), is_one || !may_look)
                }
            };
            if !all_ours && near.is_none() {
                of_client.push(member);
                continue;
            }
            let what = format!("{} is no field of {}", quote(&member.key.value), self.of);
            let help = match near {
                Some(name) => format!("did you mean `{name}`?"),
                None => "take it out, or check its name in the documentation".to_owned(),
            };
            let (span, code) = (member.key.span, Code::UnknownField);
            if restricts {
                let message = format!("{what}, and it may be meant to restrict something");
                sink.error(code, span, message, help);
            } else {
                sink.warning(code, span, format!("{what}: it is dropped"), help);
            }
        }
        self.tell_twice(&of_client, sink);
        if sink.is_tracing() {
            self.tell(all_ours, sink);
        }
    }

    /// Says which keys stand twice in settings of the client's own. What holds for the servers of all documents is none
    /// of those, whoever wrote it.
    fn tell_twice(&self, of_client: &[&Member], sink: &mut Sink<'_>) {
        let mut twice = Vec::new();
        let mut first = HashSet::new();
        let is_of_all = |key: &str| key == "mcp" || OF_ALL_DOCUMENTS.contains(&key);
        for member in of_client.iter().filter(|member| !is_of_all(&member.key.value)) {
            member.value.duplicates(&mut twice);
            first.insert(member.key.span.start);
        }
        let beside = self.object.duplicates.iter();
        twice.extend(beside.filter(|twice| first.contains(&twice.first.start)));
        for duplicate in twice {
            sink.is_of_client(duplicate.key.span);
        }
    }

    fn tell(self, all_ours: bool, sink: &mut Sink<'_>) {
        for member in &self.object.members {
            let key = &member.key;
            let asked = self.asked.iter().any(|name| *name == key.value);
            let path = format!("{}{}", self.prefix, short(&key.value));
            let said = self.fates.iter().find(|(name, _)| *name == key.value);
            let fate = match said {
                Some((_, fate)) => fate.clone(),
                None if asked && self.lifted => Fate::Carried {
                    to: short(&key.value),
                },
                None if asked => Fate::Carried { to: path.clone() },
                None if all_ours => Fate::dropped(format!("it is no field of {}", self.of)),
                None => Fate::dropped("it is a setting of the client, and says nothing of its servers"),
            };
            let is_dropped = matches!(fate, Fate::Dropped { .. });
            sink.field(&path, key.span, fate.clone());
            if is_dropped {
                tell_all(&path, &member.value, &fate, sink);
            }
        }
        for (path, span, fate) in self.inner {
            sink.field(&format!("{}{path}", self.prefix), span, fate);
        }
    }
}

/// What a member of a field is called in reports.
pub(crate) fn member_path(field: &str, member: &str) -> String {
    format!("{field}.{}", short(member))
}

/// What became of a value became of all that is in it.
pub(crate) fn tell_all(path: &str, value: &Value, fate: &Fate, sink: &mut Sink<'_>) {
    match &value.node {
        Node::Object(object) => {
            for member in &object.members {
                let path = member_path(path, &member.key.value);
                sink.field(&path, member.key.span, fate.clone());
                tell_all(&path, &member.value, fate, sink);
            }
        }
        Node::List(items) => {
            for (item, place) in items.iter().zip(1..) {
                if matches!(item.node, Node::Object(_) | Node::List(_)) {
                    tell_all(&format!("{path}.{place}"), item, fate, sink);
                }
            }
        }
        _ => {}
    }
}

/// The name that was most likely meant: another spelling of the same words, one of them for several, or at most a third
/// of it off.
fn near(key: &str, names: &[&'static str]) -> Option<&'static str> {
    const LONGEST: usize = 40;
    if key.len() > LONGEST {
        return None;
    }
    let plain = |text: &str| text.to_lowercase().replace(['_', '-'], "");
    let of_several = |plain: &str| plain.strip_suffix("ies").map(|stem| format!("{stem}y"));
    let key = plain(key);
    let one = of_several(&key);
    let off = |name: &str| {
        let is_of_several = one.is_some() || name.ends_with("ies");
        if !is_of_several && !are_lengths_near(&key, name) {
            return None;
        }
        let name = plain(name);
        let as_written = distance(&key, &name);
        if !is_of_several {
            return as_written;
        }
        let name_of_one = of_several(&name);
        let of_one = distance(
            one.as_deref().unwrap_or(&key),
            name_of_one.as_deref().unwrap_or(&name),
        );
        as_written.into_iter().chain(of_one).min()
    };
    names
        .iter()
        .filter_map(|name| Some((off(name)?, *name)))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Where not even the lengths are near, there is no need to compare letter by letter.
fn are_lengths_near(key: &str, name: &str) -> bool {
    name.len().abs_diff(key.len()) * 3 <= name.len()
}

/// How far off the key is, if by at most a third of the name.
fn distance(key: &str, name: &str) -> Option<usize> {
    if !are_lengths_near(key, name) {
        return None;
    }
    Some(strsim::osa_distance(key, name)).filter(|off| off * 3 <= name.len())
}

/// The place of a field, should it be there.
pub(crate) fn place(object: &Object, name: &str) -> Option<Span> {
    object.get(name).map(|member| member.key.span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let names = [
            "command",
            "args",
            "url",
            "env",
            "inheritEnv",
            "disabledTools",
            "timeoutMs",
            "policies",
        ];
        for (key, meant) in [
            ("comand", Some("command")),
            ("inherit_env", Some("inheritEnv")),
            ("disabled-tools", Some("disabledTools")),
            ("timeout", Some("timeoutMs")),
            ("arg", Some("args")),
            ("uri", Some("url")),
            ("policy", Some("policies")),
            ("polices", Some("policies")),
            ("police", Some("policies")),
            ("polcies", Some("policies")),
            ("plicies", Some("policies")),
            ("poicies", Some("policies")),
            ("policeis", Some("policies")),
            ("policues", Some("policies")),
            ("policiez", Some("policies")),
            ("policise", Some("policies")),
            ("Polisies", Some("policies")),
            ("polcy", Some("policies")),
            ("pities", None),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(near(key, &names), meant, "{key}");
        }
    }
}
