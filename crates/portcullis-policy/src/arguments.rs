//! The arguments of a call as the tags of an entity.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashSet},
    fmt::Write as _,
};

use portcullis_types::ReasonCode;
use serde::de::IgnoredAny;

/// How much of a path is shown, in characters.
const SHOWN_PATH: usize = 200;
/// The longest arguments, in bytes.
const MAX_BYTES: usize = 1024 * 1024;
/// The deepest nesting; the arguments object itself is the first level.
const MAX_DEPTH: usize = 64;
/// The most that the tags may hold together, in bytes. A path repeats the keys above it, so a long key over a long
/// array would grow with the square of the arguments.
const MAX_TAG_BYTES: usize = 16 * MAX_BYTES;

/// Why arguments cannot be decided on: a code, and a sentence for the caller.
pub(crate) type Refusal = (ReasonCode, String);

/// Tags: the path of each and its text.
pub(crate) type Tags = Vec<(String, String)>;

/// Which tags are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TagKeys {
    /// Those of these keys.
    These(BTreeSet<String>),
    /// All.
    All,
}

impl TagKeys {
    pub(crate) const NONE: Self = Self::These(BTreeSet::new());

    /// Those wanted by either.
    pub(crate) fn extend(&mut self, other: &Self) {
        match (self, other) {
            (Self::All, _) => {}
            (Self::These(keys), Self::These(more)) => keys.extend(more.iter().cloned()),
            (this, Self::All) => *this = Self::All,
        }
    }

    fn has(&self, key: &str) -> bool {
        match self {
            Self::These(keys) => keys.contains(key),
            Self::All => true,
        }
    }
}

/// The tags of `text`, the JSON text of an object: each leaf under its path, and each leaf and container's type
/// under its path and `#type`. No two places in the arguments have the same path.
///
/// What is refused does not depend on which tags are `wanted`.
pub(crate) fn tags(text: &str, wanted: &TagKeys) -> Result<Tags, Refusal> {
    if text.len() > MAX_BYTES {
        let told = format!(
            "the arguments have {} bytes, over the limit of {MAX_BYTES}",
            text.len()
        );
        return Err((ReasonCode::DenyArgumentsTooLarge, told));
    }
    // The grammar is checked by the library; the walk below only has to find its way in valid JSON.
    serde_json::from_str::<IgnoredAny>(text).map_err(|error| invalid(&error.to_string()))?;
    let mut walk = Walk {
        text,
        wanted,
        at: 0,
        path: String::new(),
        tags: Vec::new(),
        tag_bytes: 0,
    };
    walk.skip_blanks();
    if walk.peek() != Some(b'{') {
        return Err(invalid("a JSON object is expected"));
    }
    walk.value(1)?;
    Ok(walk.tags)
}

fn invalid(why: &str) -> Refusal {
    (
        ReasonCode::DenyArgumentsInvalid,
        format!("the arguments are not a JSON object: {why}"),
    )
}

/// Writes a key at the end of a path: quoted where it would read as something else, because it is empty or holds a
/// character of the paths' own.
pub(crate) fn push_key(path: &mut String, key: &str) {
    if key.is_empty() || key.contains(['.', '[', ']', '#']) {
        path.push_str(&format!("[{}]", serde_json::Value::from(key)));
    } else {
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(key);
    }
}

struct Walk<'a> {
    text: &'a str,
    wanted: &'a TagKeys,
    at: usize,
    path: String,
    tags: Tags,
    tag_bytes: usize,
}

impl<'a> Walk<'a> {
    fn value(&mut self, depth: usize) -> Result<(), Refusal> {
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => {
                let text = self.string()?;
                self.leaf(&text, "string")
            }
            _ => {
                let text = self.word()?;
                let kind = match text {
                    "true" | "false" => "boolean",
                    "null" => "null",
                    _ => "number",
                };
                self.leaf(text, kind)
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<(), Refusal> {
        self.enter("object", depth)?;
        let outer = self.path.len();
        let mut keys = HashSet::new();
        while self.is_not_at(b'}') {
            let key = self.string()?;
            self.skip_blanks();
            self.expect(b':')?;
            push_key(&mut self.path, &key);
            if !keys.insert(key) {
                // It goes into decisions and so into events: the model wrote it, and it may be long.
                let shown: String = self
                    .path
                    .chars()
                    .take(SHOWN_PATH)
                    .flat_map(char::escape_debug)
                    .collect();
                let told = format!("the key `{shown}` stands twice");
                return Err((ReasonCode::DenyArgumentsDuplicateKey, told));
            }
            self.value(depth + 1)?;
            self.path.truncate(outer);
        }
        self.expect(b'}')
    }

    fn array(&mut self, depth: usize) -> Result<(), Refusal> {
        self.enter("array", depth)?;
        let outer = self.path.len();
        let mut index = 0_usize;
        while self.is_not_at(b']') {
            // Writing to a text cannot fail.
            _ = write!(self.path, "[{index}]");
            self.value(depth + 1)?;
            self.path.truncate(outer);
            index += 1;
        }
        self.expect(b']')
    }

    fn enter(&mut self, kind: &str, depth: usize) -> Result<(), Refusal> {
        if depth > MAX_DEPTH {
            let told = format!("the arguments are nested deeper than {MAX_DEPTH}");
            return Err((ReasonCode::DenyArgumentsTooDeep, told));
        }
        self.at += 1;
        self.kind(kind)
    }

    fn leaf(&mut self, text: &str, kind: &str) -> Result<(), Refusal> {
        self.kind(kind)?;
        self.tag(text)
    }

    /// The tag of the type of what stands at the path.
    fn kind(&mut self, kind: &str) -> Result<(), Refusal> {
        let length = self.path.len();
        self.path.push_str("#type");
        let tagged = self.tag(kind);
        self.path.truncate(length);
        tagged
    }

    fn tag(&mut self, text: &str) -> Result<(), Refusal> {
        self.tag_bytes += self.path.len() + text.len();
        if self.tag_bytes > MAX_TAG_BYTES {
            let told = format!("the paths of the arguments take more than {MAX_TAG_BYTES} bytes together");
            return Err((ReasonCode::DenyArgumentsTooLarge, told));
        }
        if self.wanted.has(&self.path) {
            self.tags.push((self.path.clone(), text.to_owned()));
        }
        Ok(())
    }

    /// The string that starts here, unescaped. A lone surrogate has no text, so it refuses.
    fn string(&mut self) -> Result<Cow<'a, str>, Refusal> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let mut escaped = false;
        let end = rest.bytes().skip(1).position(|byte| {
            let closes = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            closes
        });
        let raw = end
            .and_then(|end| rest.get(..end + 2))
            .ok_or_else(|| invalid("a string does not end"))?;
        self.at += raw.len();
        if let Some(plain) = raw.get(1..raw.len() - 1).filter(|plain| !plain.contains('\\')) {
            return Ok(Cow::Borrowed(plain));
        }
        serde_json::from_str(raw).map_err(|error| invalid(&error.to_string()))
    }

    /// The number or literal that starts here, as it was received.
    fn word(&mut self) -> Result<&'a str, Refusal> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let end = rest
            .find([',', ']', '}', ' ', '\t', '\n', '\r'])
            .unwrap_or(rest.len());
        match rest.get(..end) {
            Some(word) if !word.is_empty() => {
                self.at += end;
                Ok(word)
            }
            _ => Err(invalid("a value is missing")),
        }
    }

    /// Skips to the next item of a container; false at its end.
    fn is_not_at(&mut self, end: u8) -> bool {
        self.skip_blanks();
        if self.peek() == Some(b',') {
            self.at += 1;
            self.skip_blanks();
        }
        self.peek().is_some_and(|byte| byte != end)
    }

    fn expect(&mut self, wanted: u8) -> Result<(), Refusal> {
        if self.peek() != Some(wanted) {
            return Err(invalid("it ends too soon"));
        }
        self.at += 1;
        self.skip_blanks();
        Ok(())
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }
}

#[cfg(test)]
mod tests;
