//! Whether what leaves a line is the inside of a JSON string: nobody else sees it all.

use super::{LineBuffer, to_quote};

/// Reads a string's raw text piece by piece.
#[derive(Debug, Default)]
pub(super) struct Check {
    escape: Escape,
    utf8: Utf8,
}

/// What was found in a piece.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// All of it belongs to the string.
    More,
    /// The closing quote stands there.
    Closed { at: usize },
    /// Something is wrong; what is left of the string begins at `resume`.
    Bad { fault: Fault, resume: usize },
}

/// What is wrong with a string, and where its reader is: a line is read as UTF-8 before anything else, so that is
/// looked for to the string's end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// Whether the next byte is escaped.
    escaped: bool,
    /// Bytes that must stand in the line for its reader to find the fault. `None` when they do.
    wrong: Option<Vec<u8>>,
    /// `None` when something that is no UTF-8 was found.
    utf8: Option<Utf8>,
}

#[derive(Debug, Default, Clone, Copy)]
enum Escape {
    #[default]
    None,
    /// After a backslash.
    Begun,
    /// So many digits of `\uXXXX` are missing.
    Digits(u8),
}

impl Check {
    pub(super) fn read(&mut self, bytes: &[u8]) -> Step {
        let (end, closed, bad_escape) = self.escapes(bytes);
        let inside = bytes.get(..end).unwrap_or_default();
        let not_utf8 = self.utf8.wrong(inside, closed);
        let control = || control(inside).map(|byte| vec![byte]);
        // A bad escape ends what was looked at, so a control character stands before it.
        let not_json = || control().or_else(|| bad_escape.map(<[u8]>::to_vec));
        let utf8 = not_utf8.is_none();
        match not_utf8.or_else(not_json) {
            Some(wrong) => Step::Bad {
                fault: Fault {
                    escaped: bad_escape.is_none() && matches!(self.escape, Escape::Begun),
                    wrong: Some(wrong),
                    utf8: utf8.then(|| std::mem::take(&mut self.utf8)),
                },
                resume: end,
            },
            None if closed => Step::Closed { at: end },
            None => Step::More,
        }
    }

    /// The line ends in the middle of the string: half a character must stand in it as well.
    pub(super) fn cut_off(&mut self, line: &mut LineBuffer) {
        if let Some(wrong) = self.utf8.wrong(&[], true) {
            line.extend(&wrong);
        }
    }

    /// Where the string ends in `bytes`, whether by its quote, or else where the first escape that is none ends, with
    /// one that is as wrong: what stands there may have gone already, in part.
    fn escapes(&mut self, bytes: &[u8]) -> (usize, bool, Option<&'static [u8]>) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match self.escape {
                Escape::None => {
                    let ahead = bytes.get(at..).unwrap_or_default();
                    match memchr::memchr2(b'"', b'\\', ahead) {
                        None => return (bytes.len(), false, None),
                        Some(found) => at += found,
                    }
                    if bytes.get(at) == Some(&b'"') {
                        return (at, true, None);
                    }
                    self.escape = Escape::Begun;
                }
                Escape::Begun => {
                    self.escape = match byte {
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Escape::None,
                        b'u' => Escape::Digits(4),
                        _ => return (at, false, Some(br"\?")),
                    };
                }
                Escape::Digits(left) if byte.is_ascii_hexdigit() => {
                    self.escape = if left == 1 {
                        Escape::None
                    } else {
                        Escape::Digits(left - 1)
                    };
                }
                Escape::Digits(_) => return (at, false, Some(br"\u????")),
            }
            at += 1;
        }
        (bytes.len(), false, None)
    }
}

impl Fault {
    /// Passes over what is left of the string in `bytes`: how much that is, and whether its quote stands there. What
    /// must stand in the line goes to `line`, once: the first byte that is no UTF-8, or else at the string's end what
    /// was wrong before.
    pub(super) fn pass(&mut self, bytes: &[u8], line: &mut LineBuffer) -> (usize, bool) {
        let (count, closed) = to_quote(bytes, &mut self.escaped);
        let passed = bytes.get(..count).unwrap_or_default();
        let not_utf8 = self.utf8.as_mut().and_then(|utf8| utf8.wrong(passed, closed));
        if let Some(wrong) = not_utf8 {
            self.utf8 = None;
            self.wrong = Some(wrong);
        }
        if closed || self.utf8.is_none() {
            self.tell(line);
        }
        (count, closed)
    }

    /// The line ends in the middle of the string.
    pub(super) fn cut_off(&mut self, line: &mut LineBuffer) {
        let half = self.utf8.take().and_then(|mut utf8| utf8.wrong(&[], true));
        self.wrong = half.or(self.wrong.take());
        self.tell(line);
    }

    fn tell(&mut self, line: &mut LineBuffer) {
        if let Some(wrong) = self.wrong.take() {
            line.extend(&wrong);
        }
    }
}

/// The first control character in `bytes`. Most have none, which the smallest byte of all tells many at a time.
fn control(bytes: &[u8]) -> Option<u8> {
    let least = bytes.iter().fold(u8::MAX, |least, byte| least.min(*byte));
    match least < 0x20 {
        true => bytes.iter().copied().find(|byte| *byte < 0x20),
        false => None,
    }
}

/// UTF-8, checked across the pieces.
#[derive(Debug, Default, PartialEq, Eq)]
struct Utf8 {
    /// The beginning of a character whose end the next piece has.
    // INVARIANT: at most 3 bytes between two calls.
    begun: Vec<u8>,
}

impl Utf8 {
    /// The first byte that is wrong, if one is. `ended`: nothing comes after `bytes`.
    fn wrong(&mut self, bytes: &[u8], ended: bool) -> Option<Vec<u8>> {
        let mut rest = bytes;
        while !self.begun.is_empty()
            && let Some((byte, after)) = rest.split_first()
        {
            self.begun.push(*byte);
            match std::str::from_utf8(&self.begun) {
                Ok(_) => {
                    self.begun.clear();
                    rest = after;
                }
                Err(error) if error.error_len().is_none() => rest = after,
                Err(_) => return Some(self.begun_in_vain()),
            }
        }
        if !self.begun.is_empty() {
            return ended.then(|| self.begun_in_vain());
        }
        let error = std::str::from_utf8(rest).err()?;
        let wrong = rest.get(error.valid_up_to()..).unwrap_or_default();
        if error.error_len().is_none() && !ended {
            self.begun = wrong.to_vec();
            return None;
        }
        Some(wrong.iter().take(1).copied().collect())
    }

    fn begun_in_vain(&mut self) -> Vec<u8> {
        self.begun.drain(..).take(1).collect()
    }
}
