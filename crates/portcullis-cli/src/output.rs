//! Printing: results on standard output, everything else on standard error.

use std::{
    io::{self, IsTerminal, Write},
    sync::OnceLock,
};

use portcullis::is_hidden;
use serde::Serialize;
use tracing_subscriber::{EnvFilter, filter::ParseError};

use crate::{ExitStatus, stderr};

/// Why a part of the result is not where it was to go.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Prints a line of a result. What cannot be printed is told at the [`end`].
pub(crate) fn line(text: &str) {
    if let Err(error) = writeln!(io::stdout().lock(), "{text}") {
        lost(error);
    }
}

fn lost(error: io::Error) {
    // A reader that has seen enough, as in `… | head`, closes the pipe: that is no failure of ours.
    if error.kind() != io::ErrorKind::BrokenPipe {
        let _ = LOST.set(error);
    }
}

/// How the program ends that has come to `status`: what nobody gets to read is not done.
pub(crate) fn end(status: ExitStatus) -> ExitStatus {
    if let Err(error) = io::stdout().lock().flush() {
        lost(error);
    }
    let mut status = status;
    if let Some(why) = LOST.get() {
        error(&format!(
            "standard output cannot be written, so the result is not whole: {why}"
        ));
        if status == ExitStatus::Done {
            status = ExitStatus::Failed;
        }
    }
    stderr::finish();
    status
}

/// Prints data as one line of JSON.
pub(crate) fn json(data: &impl Serialize) {
    match serde_json::to_string(data) {
        Ok(text) => line(&escaped(&text)),
        Err(failure) => error(&format!("the result cannot be printed as JSON: {failure}")),
    }
}

/// The same JSON on one line, without a character that could steer a terminal. In strings each can be written by its
/// number; outside of them there is none but white space, and in them that does not stand as it is.
pub(crate) fn escaped(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if matches!(c, '\t' | '\n' | '\r') {
            escaped.push(' ');
        } else if is_unsafe(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Says something beside the result.
pub(crate) fn note(text: &str) {
    stderr::write(&format!("{text}\n"));
}

/// Says what went wrong. Names of files and texts of others stand in it, so it is made safe.
pub(crate) fn error(text: &str) {
    note(&format!("error: {}", safe(text)));
}

/// Prints what the reader of the command line has to say. What was given there may come from elsewhere.
pub(crate) fn refusal(error: &clap::Error) -> io::Result<()> {
    let plain = error.to_string();
    let shown = safe(&plain);
    if shown == plain {
        return error.print();
    }
    note(shown.trim_end());
    Ok(())
}

/// Shows how far some work is, in the place of what was shown before.
pub(crate) fn status(text: &str) {
    stderr::write(&format!("\r\u{1b}[K{text}"));
}

/// Whether somebody looks on at `stream` who wants colours (no-color.org).
pub(crate) fn is_coloured(stream: &impl IsTerminal) -> bool {
    #[expect(clippy::disallowed_methods, reason = "the program's edge: read once")]
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !plain && stream.is_terminal()
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
    #[expect(clippy::disallowed_methods, reason = "the program's edge: read once")]
    let wanted = std::env::var("PORTCULLIS_LOG").unwrap_or_else(|_| "warn".to_owned());
    let (wanted, dropped) = without_sdk(&wanted);
    if !dropped.is_empty() {
        let told = format!(
            "note: of PORTCULLIS_LOG this is left out, since it names the SDK or a span, within which the SDK would log \
             messages: {}",
            dropped.join(",")
        );
        note(&inline(&told, 400));
    }
    let filter = filter(&wanted).unwrap_or_else(|error| {
        let told = format!("note: PORTCULLIS_LOG is no filter, so warnings alone are logged: {error}");
        note(&inline(&told, 400));
        EnvFilter::new(format!("warn,{SDK}"))
    });
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| stderr::Log)
        .with_ansi(is_coloured(&io::stderr()))
        .without_time()
        .try_init();
}

/// The SDK logs whole messages, arguments and results included, and its errors as its own code has them. What they mean to
/// a person is said by events and by the hub's own log, so nothing asked for makes it say anything.
const SDK: &str = "rmcp=off";

fn filter(wanted: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::try_new(format!("{wanted},{SDK}"))
}

/// Without what names the SDK, or a span: within a span that is asked for, all of its events are heard. Warnings, where
/// nothing is left; and what was left out.
fn without_sdk(directives: &str) -> (String, Vec<&str>) {
    let mut depth = 0_usize;
    let between = |c: char| {
        match c {
            '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    let given = directives.split(between).map(str::trim);
    let (dropped, kept): (Vec<_>, Vec<_>) = given
        .filter(|directive| !directive.is_empty())
        .partition(|directive| directive.starts_with("rmcp") || directive.contains(['[', ']', '{', '}']));
    match kept.is_empty() {
        true => ("warn".to_owned(), dropped),
        false => (kept.join(","), dropped),
    }
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
    fn json_that_steers_no_terminal_is_the_same_json() {
        let hostile = "a\u{7f}\u{9b}31m\u{202e}\u{e0041}\n größe 🏰";
        let text = escaped(&serde_json::to_string(&[hostile]).unwrap());
        assert!(!text.contains(is_unsafe), "{text:?}");
        assert!(
            text.contains("größe 🏰") && text.contains(r"\udb40\udc41"),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<[String; 1]>(&text).unwrap(), [hostile]);
        assert_eq!(escaped("{\n\t\"a\":\r\n\"\\n\"}"), r#"{  "a":  "\n"}"#);
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
    fn nothing_asked_for_makes_the_sdk_log_more_than_errors() {
        for (wanted, ours) in [
            ("warn", false),
            ("portcullis=debug", true),
            ("trace", true),
            ("rmcp=trace", false),
            ("portcullis=debug,rmcp::service=debug", true),
            ("[serve_inner]=trace", false),
            ("portcullis[call]=debug", false),
            (" ,", false),
            ("portcullis=debug, [{peer}]=trace,[a{peer=b,c=d}]=trace", true),
        ] {
            let subscriber = tracing_subscriber::fmt()
                .with_env_filter(filter(&without_sdk(wanted).0).unwrap())
                .finish();
            tracing::subscriber::with_default(subscriber, || {
                let span = tracing::error_span!(target: "rmcp::service", "serve_inner", peer = "a");
                let _inside = span.enter();
                let sdk = tracing::enabled!(target: "rmcp::service", tracing::Level::WARN);
                assert!(!sdk, "{wanted}");
                let is_on = tracing::enabled!(target: "portcullis::hub", tracing::Level::DEBUG);
                assert_eq!(is_on, ours, "{wanted}");
                let warns = tracing::enabled!(target: "portcullis::hub", tracing::Level::WARN);
                assert!(warns, "{wanted}");
            });
        }
    }

    #[test]
    fn the_sdk_is_never_made_to_log_messages() {
        for (wanted, kept, dropped) in [
            (
                "debug,rmcp::service=trace, rmcp=debug,portcullis=info",
                "debug,portcullis=info",
                vec!["rmcp::service=trace", "rmcp=debug"],
            ),
            (
                "[call{a=1,b=x,c=2}]=debug,portcullis=info",
                "portcullis=info",
                vec!["[call{a=1,b=x,c=2}]=debug"],
            ),
            ("portcullis[call]=debug", "warn", vec!["portcullis[call]=debug"]),
            ("a]=info,debug", "debug", vec!["a]=info"]),
            ("warn", "warn", vec![]),
        ] {
            assert_eq!(without_sdk(wanted), (kept.to_owned(), dropped), "{wanted}");
        }
    }
}
