//! Printing: results on standard output, everything else on standard error.

use std::io::{IsTerminal, Write};

use serde::Serialize;

/// Prints a line of a result.
pub(crate) fn line(text: &str) {
    // A reader that has seen enough, as in `… | head`, closes the pipe: that is no failure of ours.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// Prints data as one line of JSON.
pub(crate) fn json(data: &impl Serialize) {
    match serde_json::to_string(data) {
        Ok(text) => line(&text),
        Err(failure) => error(&format!("the result cannot be printed as JSON: {failure}")),
    }
}

/// Says something beside the result.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Says what went wrong. Names of files and texts of others stand in it, so it is made safe.
pub(crate) fn error(text: &str) {
    note(&format!("error: {}", safe(text)));
}

/// Shows how far some work is, in the place of what was shown before.
pub(crate) fn status(text: &str) {
    eprint!("\r\u{1b}[K{text}");
}

/// An error with what caused it.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

/// Sends the log to standard error: warnings, or what `PORTCULLIS_LOG` asks for.
pub(crate) fn init_log() {
    // The SDK logs whole messages, arguments and results included: nothing asked for makes it say more than errors.
    const ALWAYS: &str = "rmcp=error";
    #[expect(clippy::disallowed_methods, reason = "the program's edge: read once")]
    let wanted = std::env::var("PORTCULLIS_LOG").unwrap_or_else(|_| "warn".to_owned());
    let wanted = without_sdk(&wanted);
    let filter = tracing_subscriber::EnvFilter::try_new(format!("{wanted},{ALWAYS}"))
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(format!("warn,{ALWAYS}")));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .try_init();
}

fn without_sdk(directives: &str) -> String {
    let kept: Vec<_> = directives
        .split(',')
        .filter(|directive| !directive.trim().starts_with("rmcp"))
        .collect();
    kept.join(",")
}

/// As [`safe`], but on one line and of at most `most` characters: what stands in a question to a person must not
/// push the question out of sight. A cut shows, with the whole length.
pub(crate) fn inline(text: &str, most: usize) -> String {
    let length = text.chars().count();
    let short: String = text.chars().take(most).collect();
    let line = safe(&short).replace('\n', "\\n").replace('\t', "\\t");
    if length > most {
        format!("{line}… ({length} characters in all)")
    } else {
        line
    }
}

/// Text from a server, safe for a terminal: no control, bidirectional or invisible character comes through.
pub(crate) fn safe(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => safe.push(c),
            c if c.is_control() || is_invisible(c) => safe.extend(c.escape_unicode()),
            c => safe.push(c),
        }
    }
    safe
}

/// Bidirectional controls, zero-width characters and tag characters.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_writes_cannot_steer_the_terminal() {
        assert_eq!(
            safe("a\u{1b}[2J\u{202e}b\u{e0041}\nc"),
            "a\\u{1b}[2J\\u{202e}b\\u{e0041}\nc"
        );
        assert_eq!(safe("größe 日本 🏰"), "größe 日本 🏰");
    }

    #[test]
    fn what_is_asked_stays_on_its_line() {
        assert_eq!(
            inline("x\r\u{1b}[2K\nnotes\t{}", 80),
            "x\\u{d}\\u{1b}[2K\\nnotes\\t{}"
        );
        assert_eq!(inline("abcdef", 3), "abc… (6 characters in all)");
    }

    #[test]
    fn the_sdk_is_never_made_to_log_messages() {
        assert_eq!(
            without_sdk("debug,rmcp::service=trace, rmcp=debug,portcullis=info"),
            "debug,portcullis=info"
        );
    }
}
