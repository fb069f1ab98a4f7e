//! Files of `NAME=value` lines, as `envFile` names them.

use std::collections::BTreeMap;

/// The variables that a file sets. Of a variable that stands twice the last counts, as in a shell.
///
/// `export` before a name, comments, blank lines and quotes around a value are understood; nothing in a value is
/// expanded. What is no such line is passed over: [`strange_lines`] says which those are.
pub(crate) fn values(text: &str) -> BTreeMap<String, String> {
    text.lines().filter_map(line).collect()
}

/// The numbers, from 1, of the lines that set nothing and say so neither by being blank nor by being a comment.
pub(crate) fn strange_lines(text: &str) -> Vec<usize> {
    let strange = |text: &str| {
        let text = text.trim();
        !text.is_empty() && !text.starts_with('#') && line(text).is_none()
    };
    text.lines()
        .zip(1..)
        .filter(|(text, _)| strange(text))
        .map(|(_, number)| number)
        .collect()
}

fn line(text: &str) -> Option<(String, String)> {
    let text = text.trim();
    if text.starts_with('#') {
        return None;
    }
    let text = text.strip_prefix("export ").unwrap_or(text);
    let (name, value) = text.split_once('=')?;
    let name = name.trim();
    let legal = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !legal {
        return None;
    }
    let value = value.trim();
    let value = ['"', '\'']
        .into_iter()
        .find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote))
        .unwrap_or_else(|| value.split(" #").next().unwrap_or_default().trim_end());
    Some((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_set_variables_and_strange_ones_are_named() {
        let text =
            "# comment\n\nA=1\nexport B=\"two words\"\nC='x # y'\nD=z # said\r\n1E=no\njust text\nA=2\nF=\n";
        let values = values(text);
        let expected = [
            ("A", "2"),
            ("B", "two words"),
            ("C", "x # y"),
            ("D", "z"),
            ("F", ""),
        ];
        assert_eq!(
            values
                .iter()
                .map(|(n, v)| (n.as_str(), v.as_str()))
                .collect::<Vec<_>>(),
            expected
        );
        assert_eq!(strange_lines(text), [7, 8]);
    }
}
