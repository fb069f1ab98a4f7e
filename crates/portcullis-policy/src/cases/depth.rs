//! How deep a table's lists and objects stand in each other. What makes a tree of them calls itself for each level, and
//! ends the process where there are too many: some it refuses, but not all.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser};

use super::fields::Wrong;

/// The most levels, as in configurations.
const MAX_DEPTH: usize = 64;

/// Refuses what stands too deep. What is no YAML is left to be told by whoever reads it.
pub(super) fn check(text: &str) -> Result<(), Wrong> {
    let mut open: Vec<Level> = Vec::new();
    let mut anchors: HashMap<usize, usize> = HashMap::new();
    let mut parser = Parser::new_from_str(text);
    while let Some(Ok((event, span))) = parser.next_event() {
        // How much deeper than what is open this event reaches.
        let height = match event {
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                open.push(Level { anchor, height: 0 });
                0
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(level) = open.pop() else { continue };
                let height = level.height + 1;
                anchors.insert(level.anchor, height);
                height
            }
            // An alias is as deep as what it stands for.
            Event::Alias(anchor) => anchors.get(&anchor).copied().unwrap_or(0),
            _ => 0,
        };
        if let Some(level) = open.last_mut() {
            level.height = level.height.max(height);
        }
        if open.len() + height > MAX_DEPTH {
            let told = format!("lists and objects stand more than {MAX_DEPTH} deep in each other");
            return Err((span.start.line(), told));
        }
    }
    Ok(())
}

/// A list or an object that is not at its end.
struct Level {
    /// The number that an alias names it by; 0 where none does.
    anchor: usize,
    /// How many levels stand in it, so far.
    height: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str, line: usize) {
        let (at, told) = check(text).unwrap_err();
        assert!(at == line && told.contains("more than 64 deep"), "{at}: {told}");
    }

    #[test]
    fn what_stands_too_deep_is_refused_in_every_notation() {
        let levels = |count: usize| format!("{}x", "- ".repeat(count));
        assert_eq!(check(&levels(64)), Ok(()));
        refused(&levels(65), 1);
        refused(&levels(1_000_000), 1);
        refused(&format!("cases:\n  {}", levels(100_000)), 2);
        // Of these the parser itself goes no further than some hundred.
        refused(&"[".repeat(100), 1);
        refused(&"{a: ".repeat(100), 1);
        refused(&"? ".repeat(100_000), 1);
        let indented: String = (0..100)
            .map(|level| format!("{}a:\n", " ".repeat(level)))
            .collect();
        refused(&indented, 65);
        // A row is not deep, and neither is what is no YAML.
        assert_eq!(check(&"- [[x]]\n".repeat(10_000)), Ok(()));
        assert_eq!(check("cases: [}"), Ok(()));
    }

    #[test]
    fn an_alias_is_as_deep_as_what_it_stands_for() {
        let chain = |count: usize| -> String {
            let link = |n: usize| format!("- &a{n} [*a{}]\n", n - 1);
            std::iter::once("- &a0 x\n".to_owned())
                .chain((1..count).map(link))
                .collect()
        };
        assert_eq!(check(&chain(60)), Ok(()));
        refused(&chain(1_000), 65);
    }
}
