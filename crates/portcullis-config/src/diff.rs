use std::collections::BTreeMap;

use portcullis_types::ServerId;

use crate::ServerSpec;

/// What a reload has to do, by server. Each server of the two sides is in exactly one of the lists; each list is in
/// the order of the ids.
///
/// ```
/// use portcullis_config::{Document, HostEnvironment, Options, diff, normalize};
///
/// let read = |text: &str| {
///     normalize(&[Document::new("a.json", text)], &Options::default(), &HostEnvironment::from_variables([])).specs
/// };
/// let old = read(r#"{"mcpServers": {"a": {"url": "https://a.example/"}, "b": {"url": "https://b.example/"}}}"#);
/// let new = read(r#"{"mcpServers": {"b": {"url": "https://b.example/"}, "a": {"url": "https://a.example/v2"}}}"#);
/// let diff = diff(&old, &new);
/// assert_eq!(diff.changed, ["a".parse()?]);
/// assert_eq!(diff.unchanged, ["b".parse()?]);
/// # Ok::<(), portcullis_types::ParseError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diff {
    /// Only in the new ones: to be started.
    pub added: Vec<ServerId>,
    /// Only in the old ones: to be stopped.
    pub removed: Vec<ServerId>,
    /// In both, with another fingerprint: to be restarted.
    pub changed: Vec<ServerId>,
    /// In both, with the same fingerprint: not to be touched.
    pub unchanged: Vec<ServerId>,
}

/// Compares two sets of servers by id and [fingerprint](ServerSpec::fingerprint).
#[must_use]
pub fn diff(old: &[ServerSpec], new: &[ServerSpec]) -> Diff {
    let by_id = |specs: &[ServerSpec]| -> BTreeMap<_, _> {
        specs
            .iter()
            .map(|spec| (spec.id.clone(), spec.fingerprint()))
            .collect()
    };
    let (mut before, after) = (by_id(old), by_id(new));
    let mut diff = Diff::default();
    for (id, fingerprint) in after {
        match before.remove(&id) {
            None => diff.added.push(id),
            Some(known) if known == fingerprint => diff.unchanged.push(id),
            Some(_) => diff.changed.push(id),
        }
    }
    diff.removed = before.into_keys().collect();
    diff
}

#[cfg(test)]
mod tests {
    use crate::{Document, NoEnvironment, Options, normalize};

    use super::*;

    #[test]
    fn every_server_is_in_one_list() {
        let read = |servers: &str| {
            let text = format!("{{\"mcpServers\": {{{servers}}}}}");
            normalize(
                &[Document::new("a.json", text)],
                &Options::default(),
                &NoEnvironment,
            )
            .specs
        };
        let url = |name: &str, path: &str| format!(r#""{name}": {{"url": "https://{name}.example/{path}"}}"#);
        let old = read(&[url("keep", ""), url("go", ""), url("change", "1")].join(","));
        let new = read(&[url("change", "2"), url("come", ""), url("keep", "")].join(","));
        let found = diff(&old, &new);
        let names = |ids: &[ServerId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(&found.added), ["come"]);
        assert_eq!(names(&found.removed), ["go"]);
        assert_eq!(names(&found.changed), ["change"]);
        assert_eq!(names(&found.unchanged), ["keep"]);
        assert_eq!(diff(&new, &new).unchanged.len(), 3);
        assert_eq!(diff(&[], &[]), Diff::default());
    }
}
