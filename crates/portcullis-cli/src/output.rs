//! Printing: results on standard output, everything else on standard error.

use std::io::{IsTerminal, Write};

use portcullis::is_hidden;
use serde::Serialize;

/// Prints a line of a result.
pub(crate) fn line(text: &str) {
    // A reader that has seen enough, as in `… | head`, closes the pipe: that is no failure of ours.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// Prints data as one line of JSON.
pub(crate) fn json(data: &impl Serialize) {
    match serde_json::to_string(data) {
        Ok(text) => line(&safe_json(&text)),
        Err(failure) => error(&format!("the result cannot be printed as JSON: {failure}")),
    }
}

/// The same JSON, safe for a terminal as [`safe`] text is: what it escapes stands in strings alone, where an escape says
/// the same.
fn safe_json(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        if is_unsafe(c) && !matches!(c, '\n' | '\r' | '\t') {
            for unit in c.encode_utf16(&mut [0; 2]) {
                safe.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            safe.push(c);
        }
    }
    safe
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
            c if is_unsafe(c) => safe.extend(c.escape_unicode()),
            c => safe.push(c),
        }
    }
    safe
}

/// Joiners are what some emoji need; in a name or a path they are only in the way.
fn is_unsafe(c: char) -> bool {
    c.is_control() || is_hidden(c) || matches!(c, '\u{200c}' | '\u{200d}')
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
        // Fillers and separators, and what hides letters behind a character.
        for hidden in [
            '\u{34f}',
            '\u{3164}',
            '\u{ffa0}',
            '\u{115f}',
            '\u{2028}',
            '\u{200d}',
            '\u{e0101}',
            '\u{85}',
            '\u{7f}',
        ] {
            assert_eq!(safe(&hidden.to_string()), hidden.escape_unicode().to_string());
        }
    }

    #[test]
    fn json_says_the_same_and_cannot_steer_the_terminal_either() {
        let json = "{\"k\u{202e}\":[\"\u{9b}2J\u{7f}\u{e0041}é🏰\\n\"]\t}";
        let safe = safe_json(json);
        assert_eq!(
            safe,
            "{\"k\\u202e\":[\"\\u009b2J\\u007f\\udb40\\udc41é🏰\\n\"]\t}"
        );
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(read(&safe), read(json));
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
