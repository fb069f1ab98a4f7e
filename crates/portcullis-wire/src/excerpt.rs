use portcullis_types::is_hidden;

/// The longest excerpt of noise, in characters.
pub(crate) const NOISE_CHARS: usize = 256;

/// The longest excerpt inside a reason, in characters.
pub(crate) const REASON_CHARS: usize = 48;

/// The start of `bytes` as at most `max_chars` characters that are safe to print: bytes that are not UTF-8 become
/// U+FFFD, control and invisible characters are escaped, and `…` marks a cut. Reads only as many bytes as it shows.
pub(crate) fn excerpt(bytes: &[u8], max_chars: usize) -> String {
    let head = bytes.get(..max_chars.saturating_mul(4)).unwrap_or(bytes);
    let mut cut = head.len() < bytes.len();
    let mut out = String::new();
    let mut chars = 0;
    for c in String::from_utf8_lossy(head).chars() {
        let shown = if is_unsafe(c) {
            c.escape_unicode().count()
        } else {
            1
        };
        if chars + shown > max_chars.saturating_sub(1) {
            cut = true;
            break;
        }
        chars += shown;
        if is_unsafe(c) {
            out.extend(c.escape_unicode())
        } else {
            out.push(c)
        }
    }
    if cut {
        out.push('…');
    }
    out
}

/// Whether a terminal obeys it, or does not show it.
fn is_unsafe(c: char) -> bool {
    c.is_control() || is_hidden(c)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hidden_characters_are_shown_and_cuts_are_marked() {
        for (bytes, max, shown) in [
            (&b"plain"[..], 10, "plain"),
            (b"\x1b[31mred", 20, "\\u{1b}[31mred"),
            ("a\u{202e}b".as_bytes(), 20, "a\\u{202e}b"),
            ("a\u{34f}\u{3164}b".as_bytes(), 20, "a\\u{34f}\\u{3164}b"),
            (b"bad \xff byte", 20, "bad \u{fffd} byte"),
            (b"0123456789", 6, "01234…"),
            (b"\x1b\x1b\x1b", 8, "\\u{1b}…"),
            (b"", 8, ""),
        ] {
            assert_eq!(excerpt(bytes, max), shown);
        }
    }

    proptest! {
        #[test]
        fn an_excerpt_is_bounded_and_printable(bytes: Vec<u8>, max in 1usize..300) {
            let shown = excerpt(&bytes, max);
            prop_assert!(shown.chars().count() <= max);
            prop_assert!(!shown.chars().any(is_unsafe));
        }
    }
}
