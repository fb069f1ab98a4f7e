//! Whether what leaves a line is the inside of a JSON string: nobody else sees it all.

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
    /// These bytes are wrong, as they must stand in the line for its reader to find them wrong. What is left of the
    /// string begins at `resume`.
    Bad { wrong: Vec<u8>, resume: usize },
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

/// Something wrong, and where. Of several the first counts, however the text is cut.
struct Wrong {
    /// Counted from 1; 0 is in the piece before.
    at: usize,
    bytes: Vec<u8>,
    resume: usize,
}

impl Check {
    pub(super) fn read(&mut self, bytes: &[u8]) -> Step {
        let (end, closed, bad_escape) = self.escapes(bytes);
        let inside = bytes.get(..end).unwrap_or_default();
        let control = inside.iter().position(|byte| *byte < 0x20).map(|at| Wrong {
            at: at + 1,
            bytes: inside.get(at..=at).unwrap_or_default().to_vec(),
            resume: at,
        });
        let bad_utf8 = self.utf8.check(inside, closed);
        // `min_by_key` gives the first of equals, and a bad escape is seen the earliest.
        let wrong = [bad_escape, control, bad_utf8]
            .into_iter()
            .flatten()
            .min_by_key(|wrong| wrong.at);
        match wrong {
            Some(wrong) => Step::Bad {
                wrong: wrong.bytes,
                resume: wrong.resume,
            },
            None if closed => Step::Closed { at: end },
            None => Step::More,
        }
    }

    /// Where the string ends in `bytes`, whether by its quote, and the first escape that is none.
    fn escapes(&mut self, bytes: &[u8]) -> (usize, bool, Option<Wrong>) {
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
                        _ => {
                            let wrong = Wrong {
                                at: at + 1,
                                bytes: vec![b'\\', byte],
                                resume: at + 1,
                            };
                            return (at + 1, false, Some(wrong));
                        }
                    };
                }
                Escape::Digits(left) if byte.is_ascii_hexdigit() => {
                    self.escape = if left == 1 {
                        Escape::None
                    } else {
                        Escape::Digits(left - 1)
                    };
                }
                Escape::Digits(_) => {
                    let wrong = Wrong {
                        at: at + 1,
                        // Its digits may have gone already. So many stand here that no reader misses more.
                        bytes: b"\\u????".to_vec(),
                        resume: at,
                    };
                    return (at + 1, false, Some(wrong));
                }
            }
            at += 1;
        }
        (bytes.len(), false, None)
    }
}

/// UTF-8, checked across the pieces.
#[derive(Debug, Default)]
struct Utf8 {
    /// The beginning of a character whose end the next piece has.
    // INVARIANT: at most 3 bytes between two calls.
    begun: Vec<u8>,
}

impl Utf8 {
    /// The first byte that is wrong. `ended`: nothing comes after `bytes`.
    fn check(&mut self, bytes: &[u8], ended: bool) -> Option<Wrong> {
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
        let at = error.valid_up_to();
        let wrong = rest.get(at..).unwrap_or_default();
        if error.error_len().is_none() && !ended {
            self.begun = wrong.to_vec();
            return None;
        }
        let at = bytes.len() - rest.len() + at;
        Some(Wrong {
            at: at + 1,
            bytes: wrong.iter().take(1).copied().collect(),
            resume: at,
        })
    }

    fn begun_in_vain(&mut self) -> Wrong {
        Wrong {
            at: 0,
            bytes: self.begun.drain(..).take(1).collect(),
            resume: 0,
        }
    }
}
