//! Printing: results on standard output, everything else on standard error.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is where the program prints"
)]

use std::io::IsTerminal;

use serde::Serialize;

/// Prints a line of a result.
pub(crate) fn line(text: &str) {
    println!("{text}");
}

/// Prints data as one line of JSON.
pub(crate) fn json(data: &impl Serialize) {
    match serde_json::to_string(data) {
        Ok(text) => println!("{text}"),
        Err(failure) => error(&format!("the result cannot be printed as JSON: {failure}")),
    }
}

/// Says something beside the result.
pub(crate) fn note(text: &str) {
    eprintln!("{text}");
}

/// Says what went wrong.
pub(crate) fn error(text: &str) {
    eprintln!("error: {text}");
}

/// Sends the log to standard error: warnings, or what `PORTCULLIS_LOG` asks for.
pub(crate) fn init_log() {
    // The SDK logs whole messages, arguments and results included: never below its warnings.
    const ALWAYS: &str = "rmcp=error";
    #[expect(clippy::disallowed_methods, reason = "the program's edge: read once")]
    let wanted = std::env::var("PORTCULLIS_LOG").unwrap_or_else(|_| "warn".to_owned());
    let filter = tracing_subscriber::EnvFilter::try_new(format!("{wanted},{ALWAYS}"))
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(format!("warn,{ALWAYS}")));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .try_init();
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
}
