//! What a server says, for a message to a person: short, and safe to print.

/// The start of a name or of a piece of JSON, safe to print.
pub(crate) fn excerpt(text: &str) -> String {
    let short: String = text.chars().take(80).flat_map(char::escape_debug).collect();
    if text.chars().nth(80).is_some() {
        format!("{short}…")
    } else {
        short
    }
}
