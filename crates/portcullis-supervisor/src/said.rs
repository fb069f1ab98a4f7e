//! What a server says, for a message to a person: short, and safe to print.

use portcullis_types::is_hidden;

/// How many characters of it are shown.
const MOST_CHARS: usize = 200;

/// How much of it is looked at for secrets, in bytes: a server may send far more, and a person reads its start.
const MOST_BYTES: usize = 64 << 10;

/// `text` on one line, without characters that a terminal obeys, with those escaped that nobody sees, and no more of it than a
/// person reads. What must not be shown has to be out of it already: cut, it would not be known again.
pub(crate) fn shown(text: &str) -> String {
    // A word may be as long as all that a server sends.
    let mut all = text.chars().flat_map(readable);
    let short: String = all.by_ref().take(MOST_CHARS).collect();
    let mut short = short.split_whitespace().collect::<Vec<_>>().join(" ");
    if all.any(|c| !c.is_whitespace()) {
        short.push('…');
    }
    short
}

/// What stands for `c`, of which all can be seen.
fn readable(c: char) -> impl Iterator<Item = char> {
    let blank = c.is_control() || c.is_whitespace();
    let escaped = (!blank && is_hidden(c)).then(|| c.escape_unicode());
    let plain = escaped.is_none().then_some(if blank { ' ' } else { c });
    plain.into_iter().chain(escaped.into_iter().flatten())
}

/// The same of what may hold secrets, which `hide` takes out of it: as it was said, and as it reads once it is on one line.
pub(crate) fn shown_without(text: &str, hide: impl Fn(&str) -> String) -> String {
    let (start, is_cut) = beginning(text);
    let mut on_one_line = String::new();
    for word in hide(start).split(|c: char| c.is_whitespace() || c.is_control()) {
        if !word.is_empty() && !on_one_line.is_empty() {
            on_one_line.push(' ');
        }
        on_one_line.push_str(word);
    }
    let mut hidden = hide(&on_one_line);
    if is_cut && hidden.chars().count() <= MOST_CHARS {
        // All of it is shown, and its last word may be what is left of a secret.
        hidden.truncate(hidden.rfind(' ').unwrap_or_default());
        hidden.push('…');
    }
    shown(&hidden)
}

/// As much of `text` as is looked at, and whether there is more.
fn beginning(text: &str) -> (&str, bool) {
    let start = (0..4).find_map(|back| text.get(..MOST_BYTES - back));
    start.map_or((text, false), |start| (start, start.len() < text.len()))
}

/// `text` without `secret`, however its letters are written: a URL has its host in lower case, and other characters as
/// `%20`.
pub(crate) fn without(text: &str, secret: &str) -> String {
    let (bytes, mut hidden) = (text.as_bytes(), String::new());
    let (mut from, mut at) = (0, 0);
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        match length_of(secret.as_bytes(), rest) {
            Some(length) => {
                hidden.push_str(text.get(from..at).unwrap_or_default());
                hidden.push_str("[redacted]");
                at += length;
                from = at;
            }
            None => at += 1,
        }
    }
    hidden.push_str(text.get(from..).unwrap_or_default());
    hidden
}

/// How long `secret` is at the start of `text`, where it stands there.
fn length_of(secret: &[u8], text: &[u8]) -> Option<usize> {
    let plain = text.get(..secret.len())?;
    if plain.eq_ignore_ascii_case(secret) {
        return Some(secret.len());
    }
    let mut length = 0;
    for wanted in secret {
        let (found, width) = character(text.get(length..)?)?;
        if !found.eq_ignore_ascii_case(wanted) {
            return None;
        }
        length += width;
    }
    Some(length)
}

/// The first byte that `text` stands for in a URL, and how many it is written in.
fn character(text: &[u8]) -> Option<(u8, usize)> {
    if let [b'%', high, low, ..] = text {
        let digit = |byte: u8| {
            char::from(byte)
                .to_digit(16)
                .and_then(|digit| u8::try_from(digit).ok())
        };
        if let (Some(high), Some(low)) = (digit(*high), digit(*low)) {
            return Some((high << 4 | low, 3));
        }
    }
    text.first().map(|byte| (*byte, 1))
}

/// The start of a name or of a piece of JSON, safe to print.
pub(crate) fn excerpt(text: &str) -> String {
    let short: String = text.chars().take(80).flat_map(char::escape_debug).collect();
    if text.chars().nth(80).is_some() {
        format!("{short}…")
    } else {
        short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, secret: &str, expected: &str) {
        assert_eq!(
            shown_without(text, |text| without(text, secret)),
            expected,
            "{text:.80}"
        );
    }

    #[test]
    fn what_a_reader_would_not_see_is_escaped_and_what_a_terminal_obeys_is_a_blank() {
        assert_eq!(shown("a\u{202e}txt.exe"), "a\\u{202e}txt.exe");
        assert_eq!(shown("z\u{200b}\u{e0041}w"), "z\\u{200b}\\u{e0041}w");
        assert_eq!(shown("\u{1b}[2Jone\u{2028}\u{7f} line\r\n"), "[2Jone line");
        assert_eq!(shown("größe 🦀"), "größe 🦀");
        // What stands for them counts.
        let long = shown(&"\u{202e}".repeat(MOST_CHARS));
        assert_eq!(long.chars().count(), MOST_CHARS + 1);
    }

    #[test]
    fn a_secret_is_known_however_its_letters_are_written() {
        check("no AbCd1234, no", "AbCd1234", "no [redacted], no");
        check("http://abcd1234/", "AbCd1234", "http://[redacted]/");
        check("/a%62c%2D%2d%zz", "abc--", "/[redacted]%zz");
        check("/100%25/", "100%", "/[redacted]25/");
        check("100% of 100%2", "100%2", "100% of [redacted]");
        check("häb€ab", "äb€", "h[redacted]ab");
        check("h%C3%A4b%E2%82%ac", "äb€", "h[redacted]");
        check("ab", "abc", "ab");
    }

    /// Its blanks may be others than those of the secret.
    #[test]
    fn what_reads_as_a_secret_once_it_is_on_one_line_is_hidden_too() {
        check("key\n\u{1}of mine!", "key of mine", "[redacted]!");
        check("key\nof\nmine!", "key\nof\nmine", "[redacted]!");
    }

    #[test]
    fn what_is_looked_at_no_further_leaves_no_part_of_a_secret() {
        let blanks = " ".repeat(MOST_BYTES - 10);
        check(
            &format!("bad key{blanks}s3cret-canary"),
            "s3cret-canary",
            "bad key…",
        );
        check(
            &"ä".repeat(MOST_BYTES),
            "s3cret",
            &format!("{}…", "ä".repeat(MOST_CHARS)),
        );
    }
}
