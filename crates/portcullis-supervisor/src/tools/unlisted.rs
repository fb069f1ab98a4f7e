//! Tools that a definition restricts and its server does not list: a name that is misspelt restricts nothing.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
};

use portcullis_config::ServerSpec;
use serde::Serialize;

use super::ToolList;
use crate::said::excerpt;

/// Longer names, in bytes, are not looked at for what may have been meant.
const LONGEST_MEANT: usize = 256;
/// How many names that may have been meant are told; the rest are counted.
const MOST_MEANT: usize = 8;

/// A tool that a definition restricts, and that is not among those which were taken from its server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnlistedTool {
    /// The field that names it, as Portcullis' own documents call it.
    pub field: &'static str,
    /// The name that restricts nothing.
    pub name: String,
    /// The server's tools whose names have the same letters and digits, whatever their case, in the server's order; at
    /// most 8 of them. The server chose them: more than one can be there to be taken for another.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub meant: Vec<String>,
    /// How many more there are.
    #[serde(skip_serializing_if = "is_zero")]
    pub meant_more: usize,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl fmt::Display for UnlistedTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, name, .. } = self;
        let name = excerpt(name);
        write!(
            f,
            "`{field}` names `{name}`, which is not among the tools that were taken from the server: nothing is restricted \
             by it"
        )?;
        let meant: Vec<_> = self
            .meant
            .iter()
            .map(|name| format!("`{}`", excerpt(name)))
            .collect();
        match (meant.is_empty(), self.meant_more) {
            (true, _) => Ok(()),
            (false, 0) => write!(f, "; is {} meant?", meant.join(" or ")),
            (false, more) => write!(f, "; is {} or one of {more} more meant?", meant.join(" or ")),
        }
    }
}

impl ToolList {
    /// The same, with what `spec` restricts that it does not have.
    #[must_use]
    pub(crate) fn checked_against(mut self, spec: &ServerSpec) -> Self {
        let fields = [
            ("disabledTools", &spec.disabled_tools),
            ("disabledAutoApproveTools", &spec.disabled_auto_approve_tools),
        ];
        self.unlisted = fields
            .into_iter()
            .flat_map(|(field, names)| self.unlisted_of(field, names))
            .collect();
        self
    }

    fn unlisted_of(&self, field: &'static str, names: &BTreeSet<String>) -> Vec<UnlistedTool> {
        let listed: HashSet<&str> = self.tools.iter().map(|tool| tool.name.as_str()).collect();
        let unlisted: Vec<_> = names
            .iter()
            .filter(|name| !listed.contains(name.as_str()))
            .collect();
        let mut alike: HashMap<_, Vec<&str>> = unlisted
            .iter()
            .filter_map(|name| Some((letters(name)?, Vec::new())))
            .collect();
        if !alike.is_empty() {
            for tool in &self.tools {
                if let Some(alike) = letters(&tool.name).and_then(|letters| alike.get_mut(&letters)) {
                    alike.push(&tool.name);
                }
            }
        }
        let told = |name: &String| {
            let alike = letters(name).and_then(|letters| alike.get(&letters));
            let alike = alike.map_or(&[][..], Vec::as_slice);
            UnlistedTool {
                field,
                name: name.clone(),
                meant: alike
                    .iter()
                    .take(MOST_MEANT)
                    .map(|name| (*name).to_owned())
                    .collect(),
                meant_more: alike.len().saturating_sub(MOST_MEANT),
            }
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

    fn list<S: AsRef<str>>(names: &[S]) -> ToolList {
        let tool = |name: &S| ToolDefinition {
            name: name.as_ref().to_owned(),
            description: None,
            definition: "{}".into(),
        };
        ToolList {
            tools: names.iter().map(tool).collect(),
            ..ToolList::default()
        }
    }

    #[test]
    fn what_is_listed_is_not_told() {
        let list = list(&["delete", "read"]);
        let checked = |spec| list.clone().checked_against(&spec);
        assert_eq!(checked(spec(&["delete"], &["read", "delete"])), list);
        assert_eq!(checked(spec(&[], &[])), list);
    }

    #[test]
    fn what_is_not_listed_is_told_with_all_that_may_be_meant() {
        let list = list(&["delete_file", "DELETE.FILE", "read"]);
        let told = list.checked_against(&spec(
            &["Delete-File", "delete_file", "wipe"],
            &["r\u{200b}ead", "--"],
        ));
        let told: Vec<_> = told.unlisted.iter().map(ToString::to_string).collect();
        let line = |field: &str, name: &str, meant: &str| {
            format!(
                "`{field}` names `{name}`, which is not among the tools that were taken from the server: nothing is \
                 restricted by it{meant}"
            )
        };
        let (off, asks) = ("disabledTools", "disabledAutoApproveTools");
        assert_eq!(
            told,
            [
                line(off, "Delete-File", "; is `delete_file` or `DELETE.FILE` meant?"),
                line(off, "wipe", ""),
                line(asks, "--", ""),
                line(asks, "r\\u{200b}ead", "; is `read` meant?"),
            ]
        );
    }

    /// A server may have a name for each that it wants to be taken for another.
    #[test]
    fn of_many_that_may_be_meant_the_rest_are_counted() {
        let names: Vec<_> = (1..=20).map(|dots| format!("d{}f", ".".repeat(dots))).collect();
        let told = list(&names).checked_against(&spec(&["df"], &[]));
        let [told] = told.unlisted.as_slice() else {
            panic!("{told:?}")
        };
        assert_eq!(
            (told.meant.as_slice(), told.meant_more),
            (&names[..MOST_MEANT], 12)
        );
        assert!(
            told.to_string()
                .ends_with("or `d........f` or one of 12 more meant?"),
            "{told}"
        );
    }
}
