//! Files of `NAME=value` lines, as `envFile` names them.

use std::collections::BTreeSet;

use crate::template::is_variable;

/// The most variables that one file sets.
pub(crate) const MAX_VARIABLES: usize = 512;

/// What a file of variables sets, without the values: these are read again when the server starts, and never held.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct EnvFile {
    pub(crate) names: BTreeSet<String>,
    /// The number, from 1, of the first line that sets nothing and says so neither by being blank nor by being a
    /// comment.
    pub(crate) strange_line: Option<usize>,
    /// Whether a value holds a NUL character.
    pub(crate) has_nul: bool,
}

impl EnvFile {
    /// Reads a file's text.
    ///
    /// `export` before a name, comments, blank lines and quotes around a value are understood; nothing in a value
    /// is expanded. What is no such line is passed over.
    pub(crate) fn read(text: &str) -> Self {
        let mut file = Self::default();
        for (text, number) in text.lines().zip(1..) {
            match line(text) {
                Some((name, value)) => {
                    // One too many is enough to be refused.
                    if file.names.len() <= MAX_VARIABLES {
                        file.names.insert(name.to_owned());
                    }
                    file.has_nul |= value.contains('\0');
                }
                None if text.trim().is_empty() || text.trim().starts_with('#') => {}
                None => file.strange_line = file.strange_line.or(Some(number)),
            }
        }
        file
    }
}

/// The value that a file's text sets a variable to. Of a variable that stands twice the last counts, as in a shell.
pub(crate) fn value<'t>(text: &'t str, wanted: &str) -> Option<&'t str> {
    let set = |text| line(text).filter(|(name, _)| *name == wanted);
    text.lines().rev().find_map(set).map(|(_, value)| value)
}

fn line(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    if text.starts_with('#') {
        return None;
    }
    let text = text.strip_prefix("export ").unwrap_or(text);
    let (name, value) = text.split_once('=')?;
    let name = name.trim();
    if !is_variable(name) {
        return None;
    }
    let value = value.trim();
    let value = ['"', '\'']
        .into_iter()
        .find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote))
        .unwrap_or_else(|| value.split(" #").next().unwrap_or_default().trim_end());
    Some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_set_variables_and_strange_ones_are_named() {
        let text =
            "# comment\n\nA=1\nexport B=\"two words\"\nC='x # y'\nD=z # said\r\n1E=no\njust text\nA=2\nF=\n";
        let file = EnvFile::read(text);
        assert_eq!(file.names.iter().collect::<Vec<_>>(), ["A", "B", "C", "D", "F"]);
        assert_eq!((file.strange_line, file.has_nul), (Some(7), false));
        for (name, set) in [
            ("A", Some("2")),
            ("B", Some("two words")),
            ("C", Some("x # y")),
            ("D", Some("z")),
            ("F", Some("")),
            ("G", None),
        ] {
            assert_eq!(value(text, name), set, "{name}");
        }
        assert!(EnvFile::read("A=\0").has_nul);
        assert_eq!(EnvFile::read("# only\n\n"), EnvFile::default());
        let many: String = (0..MAX_VARIABLES * 2).map(|n| format!("V{n}=1\n")).collect();
        assert_eq!(EnvFile::read(&many).names.len(), MAX_VARIABLES + 1);
    }
}
