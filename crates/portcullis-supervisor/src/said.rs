//! What a server says, for a message to a person: short, and safe to print.

/// How many characters of it are shown.
const MOST_CHARS: usize = 200;

/// `text` on one line, without characters that a terminal obeys, and no more of it than a person reads. What must not be
/// shown has to be out of it already: cut, it would not be known again.
pub(crate) fn shown(text: &str) -> String {
    // A word may be as long as all that a server sends.
    let mut all = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let short: String = all.by_ref().take(MOST_CHARS).collect();
    let mut short = short.split_whitespace().collect::<Vec<_>>().join(" ");
    if all.any(|c| !c.is_whitespace()) {
        short.push('…');
    }
    short
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
