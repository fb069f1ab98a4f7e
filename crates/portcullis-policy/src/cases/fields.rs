//! The keys of a YAML mapping, each read once, none overlooked.

use saphyr::MarkedYaml;

/// A line, counted from 1, and what is wrong there.
pub(super) type Wrong = (usize, String);

/// The keys of a mapping that were not read yet.
pub(super) struct Fields<'y> {
    line: usize,
    entries: Vec<(&'y str, &'y MarkedYaml<'y>)>,
}

impl<'y> Fields<'y> {
    pub(super) fn of(node: &'y MarkedYaml<'y>) -> Result<Self, Wrong> {
        let line = line_of(node);
        let mapping = node
            .data
            .as_mapping()
            .ok_or_else(|| (line, "a mapping is expected".to_owned()))?;
        let mut entries = Vec::new();
        for (key, value) in mapping {
            let name = key
                .data
                .as_str()
                .ok_or_else(|| (line_of(key), "a key must be text".to_owned()))?;
            entries.push((name, value));
        }
        Ok(Self { line, entries })
    }

    pub(super) fn line(&self) -> usize {
        self.line
    }

    pub(super) fn take(&mut self, key: &str) -> Option<&'y MarkedYaml<'y>> {
        let position = self.entries.iter().position(|(name, _)| *name == key)?;
        Some(self.entries.remove(position).1)
    }

    /// The text under `key`, and its line.
    pub(super) fn text(&mut self, key: &str) -> Result<Option<(usize, &'y str)>, Wrong> {
        self.take(key).map(|node| text(key, node)).transpose()
    }

    pub(super) fn flag(&mut self, key: &str, default: bool) -> Result<bool, Wrong> {
        let Some(node) = self.take(key) else {
            return Ok(default);
        };
        node.data
            .as_bool()
            .ok_or_else(|| (line_of(node), format!("`{key}` must be true or false")))
    }

    pub(super) fn number(&mut self, key: &str, default: i64) -> Result<i64, Wrong> {
        let Some(node) = self.take(key) else {
            return Ok(default);
        };
        node.data
            .as_integer()
            .ok_or_else(|| (line_of(node), format!("`{key}` must be a whole number")))
    }

    /// The items of the list under `key`, and its line.
    pub(super) fn list(&mut self, key: &str) -> Result<Option<(usize, &'y [MarkedYaml<'y>])>, Wrong> {
        let Some(node) = self.take(key) else {
            return Ok(None);
        };
        let items = node
            .data
            .as_sequence()
            .ok_or_else(|| (line_of(node), format!("`{key}` must be a list")))?;
        Ok(Some((line_of(node), items)))
    }

    /// Ends the reading: whatever was not read is a mistake.
    pub(super) fn end(self) -> Result<(), Wrong> {
        match self.entries.first() {
            None => Ok(()),
            Some((name, node)) => Err((line_of(node), format!("unknown key `{name}`"))),
        }
    }
}

pub(super) fn text<'y>(key: &str, node: &'y MarkedYaml<'y>) -> Result<(usize, &'y str), Wrong> {
    let line = line_of(node);
    node.data
        .as_str()
        .map(|text| (line, text))
        .ok_or_else(|| (line, format!("`{key}` must be text")))
}

pub(super) fn line_of(node: &MarkedYaml<'_>) -> usize {
    node.span.start.line()
}
