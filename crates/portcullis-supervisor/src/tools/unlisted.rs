//! Tools that a definition restricts and its server does not list: a name that is misspelt restricts nothing.

use std::collections::{BTreeSet, HashMap, HashSet};

use portcullis_config::ServerSpec;

use super::ToolList;
use crate::said::excerpt;

/// Longer names, in bytes, are not looked at for what may have been meant.
const LONGEST_MEANT: usize = 256;

impl ToolList {
    /// The same, with the names first that `spec` restricts and this does not have. They are the user's own, so that no
    /// limit of a listing leaves them out.
    #[must_use]
    pub(crate) fn checked_against(mut self, spec: &ServerSpec) -> Self {
        let fields = [
            ("disabledTools", &spec.disabled_tools),
            ("disabledAutoApproveTools", &spec.disabled_auto_approve_tools),
        ];
        let reports: Vec<_> = fields
            .into_iter()
            .flat_map(|(field, names)| self.unlisted(field, names))
            .collect();
        self.reports.splice(0..0, reports);
        self
    }

    /// A sentence for each of `names` that is none of a tool here.
    fn unlisted(&self, field: &str, names: &BTreeSet<String>) -> Vec<String> {
        let listed: HashSet<&str> = self.tools.iter().map(|tool| tool.name.as_str()).collect();
        let unlisted: Vec<_> = names
            .iter()
            .filter(|name| !listed.contains(name.as_str()))
            .collect();
        if unlisted.is_empty() {
            return Vec::new();
        }
        // Of several that may be meant, the first one in the server's order.
        let meant: HashMap<_, _> = self
            .tools
            .iter()
            .rev()
            .filter_map(|tool| Some((letters(&tool.name)?, &tool.name)))
            .collect();
        let told = |name: &String| {
            let meant = letters(name)
                .and_then(|letters| meant.get(&letters))
                .map(|meant| format!("; is `{}` meant?", excerpt(meant)))
                .unwrap_or_default();
            format!(
                "`{field}` names `{}`, which the server does not offer: nothing is restricted by it{meant}",
                excerpt(name)
            )
        };
        unlisted.into_iter().map(told).collect()
    }
}

/// The letters and digits of `name`, all of them small: what most names differ in that mean the same tool is the rest.
fn letters(name: &str) -> Option<String> {
    let letters = || name.chars().filter(|c| c.is_alphanumeric());
    (name.len() <= LONGEST_MEANT && letters().next().is_some())
        .then(|| letters().flat_map(char::to_lowercase).collect())
}

#[cfg(test)]
mod tests {
    use portcullis_config::StdioSpec;

    use super::*;
    use crate::tools::ToolDefinition;

    fn spec(disabled: &[&str], asks: &[&str]) -> ServerSpec {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        ServerSpec {
            disabled_tools: names(disabled),
            disabled_auto_approve_tools: names(asks),
            ..ServerSpec::new("s".parse().unwrap(), StdioSpec::new("/bin/true", [""; 0]))
        }
    }

    fn list(names: &[&str]) -> ToolList {
        let tool = |name: &&str| ToolDefinition {
            name: (*name).to_owned(),
            description: None,
            definition: "{}".into(),
        };
        ToolList {
            tools: names.iter().map(tool).collect(),
            reports: vec!["what the listing says".to_owned()],
            ..ToolList::default()
        }
    }

    #[test]
    fn what_is_listed_is_not_told() {
        let list = list(&["delete", "read"]);
        assert_eq!(
            list.clone()
                .checked_against(&spec(&["delete"], &["read", "delete"])),
            list
        );
        assert_eq!(list.clone().checked_against(&spec(&[], &[])), list);
    }

    #[test]
    fn what_is_not_listed_is_told_first_with_what_may_be_meant() {
        let told = list(&["delete_file", "DELETE_FILE", "read"]).checked_against(&spec(
            &["Delete-File", "delete_file", "deleteFile ", "wipe"],
            &["r\u{200b}ead", "--"],
        ));
        let line = |field: &str, name: &str, meant: &str| {
            format!(
                "`{field}` names `{name}`, which the server does not offer: nothing is restricted by it{meant}"
            )
        };
        let (off, asks) = ("disabledTools", "disabledAutoApproveTools");
        assert_eq!(
            told.reports,
            [
                line(off, "Delete-File", "; is `delete_file` meant?"),
                line(off, "deleteFile ", "; is `delete_file` meant?"),
                line(off, "wipe", ""),
                line(asks, "--", ""),
                line(asks, "r\\u{200b}ead", "; is `read` meant?"),
                "what the listing says".to_owned(),
            ]
        );
        assert_eq!(told.tools.len(), 3);
    }
}
