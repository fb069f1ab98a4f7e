//! The README's examples, run as they stand there.
//!
//! A fenced block after a line that is nothing but a file's name in backticks and a colon is written to that file.
//! In a `console` block, a line that starts with `$ ` is a command (a backslash at its end continues it) and the
//! lines after it are what it prints, in both of its outputs: a line `…` stands for any lines, and `…` in a line for any
//! text; where nothing is shown, anything may be printed. A command must end with 0, unless what is shown has a line
//! `error: …`, or `$ echo $?` follows with the code that it ended with.
//!
//! `portcullis …` and `cargo run --release -- …` run the program; `cargo xtask …` must name a chore that exists, and
//! `cargo run -p CRATE --example NAME …` an example. Programs are found on a `PATH` that begins with `portcullis`
//! itself and the real servers.

use std::{fs, os::unix::fs::symlink, path::Path};

use portcullis_e2e::{Folder, Program, real};

use crate::PORTCULLIS;

/// A block of the README: what comes before it, its language, and its lines with the number of the first.
#[derive(Debug)]
struct Block<'a> {
    title: &'a str,
    language: &'a str,
    first_line: usize,
    lines: Vec<&'a str>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let (mut title, mut open) = ("", None::<Block<'_>>);
    for (line, number) in text.lines().zip(1..) {
        match (&mut open, line.strip_prefix("```")) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.lines.push(line),
            (None, Some(language)) => {
                let (language, lines) = (language.trim(), Vec::new());
                open = Some(Block {
                    title,
                    language,
                    first_line: number + 1,
                    lines,
                });
                title = "";
            }
            (None, None) if line.trim().is_empty() => {}
            (None, None) => title = line.trim(),
        }
    }
    assert!(open.is_none(), "a block is never closed");
    blocks
}

impl<'a> Block<'a> {
    /// The file that the block is the content of.
    fn file(&self) -> Option<&'a str> {
        let name = self.title.strip_prefix('`')?.strip_suffix("`:")?;
        (!name.contains(['`', ' '])).then_some(name)
    }

    /// Commands with what they are to print, and their line.
    fn commands(&self) -> Vec<(usize, String, Vec<&'a str>)> {
        let mut commands: Vec<(usize, String, Vec<&str>)> = Vec::new();
        let mut continued = false;
        for (line, number) in self.lines.iter().zip(self.first_line..) {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => commands.push((number, command.to_owned(), Vec::new())),
                (None, Some((_, command, _))) if continued => {
                    command.truncate(command.len() - 1);
                    command.push_str(line.trim_start());
                }
                (None, Some((_, _, output))) => output.push(*line),
                (None, None) => panic!("README.md:{number}: a console block starts with a command, `$ …`"),
            }
            continued = commands
                .last()
                .is_some_and(|(_, command, output)| output.is_empty() && command.ends_with('\\'));
        }
        commands
    }
}

/// A command's words, with the quotes of a shell and nothing else of it.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('"') | None, '\\') => word.get_or_insert_default().extend(chars.next()),
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    assert!(quote.is_none(), "a quote is never closed: {command}");
    words.extend(word);
    words
}

/// Whether a line is as expected, where `…` stands for any text.
fn line_matches(expected: &str, line: &str) -> bool {
    match expected.split_once('…') {
        None => expected.trim_end() == line.trim_end(),
        Some((before, after)) => line.strip_prefix(before).is_some_and(|rest| {
            rest.char_indices()
                .map(|(at, _)| at)
                .chain([rest.len()])
                .any(|at| line_matches(after, &rest[at..]))
        }),
    }
}

/// Whether all lines are as expected, where a line `…` stands for any lines.
fn output_matches(expected: &[&str], lines: &[&str]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first.trim() == "…" => {
            (0..=lines.len()).any(|skipped| output_matches(rest, &lines[skipped..]))
        }
        Some((first, rest)) => lines
            .split_first()
            .is_some_and(|(line, lines)| line_matches(first, line) && output_matches(rest, lines)),
    }
}

/// Runs the examples of a page, one after the other, in one folder.
struct Reader {
    folder: Folder,
    /// Where `portcullis` is found by that name.
    programs: Folder,
    /// The exit code of the last command.
    code: i32,
    runs: usize,
}

impl Reader {
    fn new() -> Self {
        let programs = Folder::new();
        symlink(PORTCULLIS, programs.path("portcullis")).unwrap();
        Self {
            folder: Folder::new(),
            programs,
            code: 0,
            runs: 0,
        }
    }

    fn read(&mut self, text: &str) {
        for block in blocks(text) {
            if let Some(file) = block.file() {
                self.folder.write(file, block.lines.join("\n") + "\n");
            } else if block.language == "console" {
                let commands = block.commands();
                let mut ahead = commands.iter().skip(1);
                for (line, command, output) in &commands {
                    let asks_for_code = ahead.next().is_some_and(|(_, next, _)| next == "echo $?");
                    self.command(*line, command, output);
                    let shown = output.iter().any(|line| line.starts_with("error: "));
                    assert!(
                        self.code == 0 || shown || asks_for_code || command == "echo $?",
                        "README.md:{line}: `{command}` ended with {}: show its error, or `$ echo $?` after it",
                        self.code
                    );
                }
            } else {
                let shells = ["sh", "bash", "shell", "zsh"];
                assert!(
                    !shells.contains(&block.language),
                    "README.md:{}: commands stand in `console` blocks, so that they are run",
                    block.first_line
                );
            }
        }
    }

    fn command(&mut self, line: usize, command: &str, expected: &[&str]) {
        let words = words(command);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let printed = match words.as_slice() {
            ["echo", "$?"] => format!("{}\n", self.code),
            ["portcullis", arguments @ ..] | ["cargo", "run", "--release", "--", arguments @ ..] => {
                self.run(arguments)
            }
            ["cargo", "xtask", chore, ..] => {
                let chores = fs::read_to_string(root().join("xtask/src/main.rs")).unwrap();
                assert!(
                    chores.contains(&format!("\"{chore}\"")),
                    "README.md:{line}: there is no chore `{chore}`"
                );
                return;
            }
            ["cargo", "run", "-p", package, "--example", name, ..] => {
                let example = format!("crates/{package}/examples/{name}.rs");
                assert!(
                    root().join(&example).is_file(),
                    "README.md:{line}: there is no `{example}`"
                );
                return;
            }
            _ => panic!("README.md:{line}: nobody knows how to run `{command}`"),
        };
        if expected.is_empty() {
            return;
        }
        let lines: Vec<&str> = printed.trim_end().lines().collect();
        let blank = expected
            .iter()
            .rev()
            .take_while(|line| line.trim().is_empty())
            .count();
        let expected = &expected[..expected.len() - blank];
        assert!(
            output_matches(expected, &lines),
            "README.md:{line}: `{command}` prints\n{printed}\nand not, as it says there,\n{}\n",
            expected.join("\n")
        );
    }

    fn run(&mut self, arguments: &[&str]) -> String {
        let servers = real("mcp-server-filesystem");
        let mut path = std::env::join_paths([self.programs.root(), servers.parent().unwrap()]).unwrap();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let finished = Program::new(PORTCULLIS, &self.folder)
            .env("PATH", path.to_str().unwrap())
            .args(arguments)
            .run_merged();
        self.code = finished.code.expect("no signal ended it");
        self.runs += 1;
        finished.stdout
    }
}

#[test]
fn the_examples_of_the_readme_do_as_it_says() {
    let text = fs::read_to_string(root().join("README.md")).expect("the project has a README.md");
    let mut reader = Reader::new();
    reader.read(&text);
    assert!(reader.runs > 0, "the README shows no command of the program");
    if blocks(&text)
        .iter()
        .any(|block| block.language.starts_with("rust"))
    {
        let facade = fs::read_to_string(root().join("crates/portcullis/src/lib.rs")).unwrap();
        assert!(
            facade.contains("README.md"),
            "the README's Rust is to be run as the facade's documentation tests"
        );
    }
}

#[test]
fn a_page_is_read_as_it_is_meant() {
    let page = "Words.\n\n`a.rules`:\n\n```text\ndefault deny\n```\n\n```console\n$ portcullis call x \\\n    --config 'my file'\nerror: …\n…\n$ echo $?\n4\n```\n";
    let blocks = blocks(page);
    assert_eq!(blocks[0].file(), Some("a.rules"));
    assert_eq!(blocks[1].file(), None);
    let commands = blocks[1].commands();
    assert_eq!(commands[0].1, "portcullis call x --config 'my file'");
    assert_eq!(
        words(&commands[0].1),
        ["portcullis", "call", "x", "--config", "my file"]
    );
    assert_eq!(commands[0].2, ["error: …", "…"]);
    assert_eq!((commands[1].0, commands[1].2.as_slice()), (14, ["4"].as_slice()));
    assert_eq!(
        words(r#"a '{"b": 1}' "c \"d" '' e\ f"#),
        ["a", r#"{"b": 1}"#, r#"c "d"#, "", "e f"]
    );
}

#[test]
fn what_is_printed_must_be_what_is_shown() {
    let check = |expected: &[&str], lines: &[&str], right: bool| {
        assert_eq!(output_matches(expected, lines), right, "{expected:?} {lines:?}");
    };
    check(&["a", "…", "z"], &["a", "z"], true);
    check(&["a", "…", "z"], &["a", "b", "c", "z"], true);
    check(&["a", "…", "z"], &["a", "b"], false);
    check(&["pid … is up…"], &["pid 77 is up"], true);
    check(&["pid … is up"], &["pid 77 is down"], false);
    check(&[], &["unexpected"], false);
    check(&["missing"], &[], false);
}

#[test]
#[should_panic(expected = "README.md:2: `portcullis raise` ended with 2")]
fn an_example_that_fails_unsaid_is_found() {
    Reader::new().read("```console\n$ portcullis raise\n…\n```\n");
}

#[test]
#[should_panic(expected = "and not, as it says there")]
fn an_example_that_prints_something_else_is_found() {
    Reader::new().read("```console\n$ portcullis --version\nportcullis 77\n```\n");
}
