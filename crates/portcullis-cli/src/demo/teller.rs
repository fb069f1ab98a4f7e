use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use portcullis::EventRecord;
use serde::Serialize;

use crate::{arguments::Format, output};

/// Tells the story, for people or for programs, and remembers whether every step went as told.
#[derive(Debug, Clone)]
pub(super) struct Teller {
    format: Format,
    colour: bool,
    failed: Arc<AtomicBool>,
}

/// A step of the story, as programs see it.
#[derive(Serialize)]
struct Step<'a> {
    event: &'static str,
    step: &'a str,
    ok: bool,
    told: &'a str,
}

impl Teller {
    pub(super) fn new(format: Format) -> Self {
        Self {
            format,
            colour: output::is_coloured(&std::io::stdout()),
            failed: Arc::default(),
        }
    }

    /// A heading.
    pub(super) fn chapter(&self, title: &str) {
        if self.format == Format::Text {
            output::line("");
            output::line(&self.paint("1", title));
        }
    }

    /// A line in passing.
    pub(super) fn aside(&self, text: &str) {
        if self.format == Format::Text {
            output::line(&format!("    {}", output::safe(text)));
        }
    }

    /// A step that was checked.
    pub(super) fn step(&self, name: &str, ok: bool, told: &str) {
        if !ok {
            self.failed.store(true, Ordering::Relaxed);
        }
        match self.format {
            Format::Json => output::json(&Step {
                event: "demo.step",
                step: name,
                ok,
                told,
            }),
            Format::Text => {
                let mark = if ok {
                    self.paint("32", "✓")
                } else {
                    self.paint("31", "✗")
                };
                output::line(&format!("  {mark} {}", output::safe(told)));
            }
        }
    }

    /// An event of the hub's.
    pub(super) fn event(&self, record: &EventRecord) {
        if self.format == Format::Json {
            output::json(record);
        }
    }

    /// Whether every step so far went as it was told.
    pub(super) fn all_went_well(&self) -> bool {
        !self.failed.load(Ordering::Relaxed)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}
