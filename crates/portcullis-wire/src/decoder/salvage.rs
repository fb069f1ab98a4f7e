use super::envelope::Member;
use crate::{Id, id::IdValue};

/// The longest name or id that is read out of a broken line, in bytes.
const MAX_TOKEN_BYTES: usize = 512;

/// What a message that cannot be parsed still tells of itself.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    id: Option<IdValue>,
    jsonrpc: bool,
    reply: bool,
    method: bool,
    others: bool,
    /// Whether a name stood in no double quotes: this is some language's notation of what a program has in hand.
    foreign: bool,
}

impl Found {
    /// The usable id, where one was read.
    pub(super) fn id(&self) -> Option<Id> {
        self.id.as_ref().and_then(IdValue::usable).cloned()
    }

    /// Whether no id was seen at all, not even one that is unusable.
    pub(super) fn lacks_id(&self) -> bool {
        self.id.is_none()
    }

    /// Whether this was meant as a reply: the same marks that a whole one must have. A line that ended early may
    /// still turn out to be a request.
    pub(super) fn is_reply(&self, broken_off: bool) -> bool {
        let marked = self.jsonrpc || (self.id().is_some() && !self.others);
        let complete = self.reply || (!broken_off && self.jsonrpc && self.id.is_some());
        marked && complete && !self.method
    }

    /// Whether this was meant as a request that somebody waits for: with the mark, since log lines have methods too, and
    /// in JSON's notation. A server that prints what it reads in its own language's would have its log answered, print
    /// the answer, and so fail the call of that id.
    pub(super) fn is_request(&self) -> bool {
        self.jsonrpc && self.method && !self.reply && !self.foreign && self.id().is_some()
    }
}

/// Reads text that is nearly JSON, byte by byte, for the members of its outermost object (or of each object in its
/// outermost array). Takes any bytes, and may go on with a later line.
#[derive(Debug)]
pub(super) struct Scanner {
    /// The depth at which the members stand: 1, or 2 in an array.
    base: usize,
    depth: usize,
    /// The quote that ends the string at hand. A single one too: some servers print their language's notation.
    quote: Option<u8>,
    escaped: bool,
    place: Place,
    /// The name or the id at hand.
    // INVARIANT: at most `MAX_TOKEN_BYTES` + 1 long; longer tokens are cut there and mean nothing.
    token: Vec<u8>,
    found: Found,
    finished: Vec<Found>,
}

/// Where among the members the scanner is; it matters at the base depth only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Name,
    IdValue,
    OtherValue,
}

impl Scanner {
    /// A scanner for text that starts with `first`, `{` or `[`.
    pub(super) fn new(first: u8) -> Self {
        Self {
            base: if first == b'[' { 2 } else { 1 },
            depth: 0,
            quote: None,
            escaped: false,
            place: Place::OtherValue,
            token: Vec::new(),
            found: Found::default(),
            finished: Vec::new(),
        }
    }

    /// Reads on.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.step(byte);
        }
    }

    /// Whether the outermost object is still open.
    pub(super) fn is_open(&self) -> bool {
        self.depth > 0
    }

    /// What was found of the object at hand, and of those that ended.
    pub(super) fn found(&self) -> impl Iterator<Item = &Found> {
        let open = (self.depth >= self.base).then_some(&self.found);
        self.finished.iter().chain(open)
    }

    fn step(&mut self, byte: u8) {
        let at_base = self.depth == self.base;
        if let Some(quote) = self.quote {
            if self.escaped {
                self.escaped = false;
            } else if byte == b'\\' {
                self.escaped = true;
            } else if byte == quote {
                self.quote = None;
            }
            return self.keep(byte);
        }
        match byte {
            b'"' | b'\'' => {
                self.quote = Some(byte);
                self.keep(byte);
            }
            b'{' | b'[' => {
                self.keep(byte);
                self.depth += 1;
                if byte == b'{' && self.depth == self.base {
                    self.found = Found::default();
                    self.start(Place::Name);
                }
            }
            b'}' | b']' => {
                if at_base {
                    self.end_member();
                    if self.finished.len() < super::MAX_MESSAGES_PER_LINE {
                        self.finished.push(std::mem::take(&mut self.found));
                    }
                }
                self.depth = self.depth.saturating_sub(1);
                self.keep(byte);
            }
            b',' if at_base => {
                self.end_member();
                self.start(Place::Name);
            }
            b':' if at_base && self.place == Place::Name => self.end_name(),
            _ => self.keep(byte),
        }
    }

    fn start(&mut self, place: Place) {
        self.place = place;
        self.token.clear();
    }

    /// Keeps a byte of a name or an id; of an id that is a container, its brackets, so that it is seen to be none.
    fn keep(&mut self, byte: u8) {
        let at_base = self.depth == self.base;
        if at_base && self.place != Place::OtherValue && self.token.len() <= MAX_TOKEN_BYTES {
            self.token.push(byte);
        }
    }

    fn end_name(&mut self) {
        let written = self.token.trim_ascii();
        let in_json = unquoted(written, b'"');
        self.found.foreign |= in_json.is_none();
        let name = in_json.or_else(|| unquoted(written, b'\'')).unwrap_or(written);
        let member = Member::named(name);
        match member {
            Member::Jsonrpc => self.found.jsonrpc = true,
            Member::Result | Member::Error => self.found.reply = true,
            Member::Method => self.found.method = true,
            Member::Id => {}
            Member::Params | Member::Other => self.found.others = true,
        }
        self.start(if matches!(member, Member::Id) {
            Place::IdValue
        } else {
            Place::OtherValue
        });
    }

    fn end_member(&mut self) {
        if self.place == Place::IdValue {
            let token = self.token.trim_ascii();
            let id = match unquoted(token, b'\'') {
                Some(text) => std::str::from_utf8(text)
                    .map_or(IdValue::Bad, |text| IdValue::Usable(Id::String(text.into()))),
                None => std::str::from_utf8(token).map_or(IdValue::Bad, IdValue::read),
            };
            // Two ids that differ: either may be the wrong one to blame.
            let clash = self.found.id.as_ref().is_some_and(|first| *first != id);
            self.found.id = Some(if clash || token.len() > MAX_TOKEN_BYTES {
                IdValue::Bad
            } else {
                id
            });
        }
        self.start(Place::OtherValue);
    }
}

/// The id at the very end of a line, `…,"id":7}`, where some servers write it. For lines whose quotes or brackets do
/// not match up, so that the scanner lost its way; never for a line that may have been cut.
pub(super) fn trailing_id(line: &[u8]) -> Option<Id> {
    let body = line.trim_ascii().strip_suffix(b"}")?;
    let at = memchr::memmem::rfind(body, b"\"id\"")?;
    let value = body
        .get(at + 4..)?
        .trim_ascii_start()
        .strip_prefix(b":")?
        .trim_ascii();
    let value = std::str::from_utf8(value.get(..=MAX_TOKEN_BYTES).map_or(value, |_| &[])).ok()?;
    IdValue::read(value).usable().cloned()
}

fn unquoted(token: &[u8], quote: u8) -> Option<&[u8]> {
    token.strip_prefix(&[quote])?.strip_suffix(&[quote])
}

#[cfg(test)]
mod tests {
    use super::{super::MAX_MESSAGES_PER_LINE, *};

    /// A line has room for millions.
    #[test]
    fn of_no_more_objects_is_kept_what_was_found_than_messages_are_told() {
        let mut scanner = Scanner::new(b'[');
        scanner.read(b"[");
        scanner.read(&b"{},".repeat(2 * MAX_MESSAGES_PER_LINE));
        assert_eq!(scanner.found().count(), MAX_MESSAGES_PER_LINE);
    }
}
