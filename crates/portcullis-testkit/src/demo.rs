//! The built-in servers of `portcullis demo`: nothing to install, and each has one thing to show.

use serde_json::{Value, json};

use crate::{Behaviour, Handshake, Script, Tool};

/// The names of all demo servers.
pub const NAMES: [&str; 5] = ["hello", "notes", "pictures", "crashy", "stuck"];

/// How large the picture of the `pictures` server is: 5 MiB.
pub const PICTURE_BYTES: u64 = 5 * 1024 * 1024;

/// The seed of that picture, for [`pseudo_random`](crate::pseudo_random).
pub const PICTURE_SEED: u64 = 1066;

/// The script of a demo server; none for a name that is not in [`NAMES`].
///
/// ```
/// use portcullis_testkit::demo;
///
/// for name in demo::NAMES {
///     assert_eq!(demo::script(name).map(|script| script.name).as_deref(), Some(name));
/// }
/// assert_eq!(demo::script("goodbye"), None);
/// ```
#[must_use]
pub fn script(name: &str) -> Option<Script> {
    match name {
        "hello" => Some(hello()),
        "notes" => Some(notes()),
        "pictures" => Some(pictures()),
        "crashy" => Some(crashy()),
        "stuck" => Some(stuck()),
        _ => None,
    }
}

/// A well-kept server.
fn hello() -> Script {
    let greet = Tool::new(
        "greet",
        Behaviour::Template("Hello, {name}! The gate is up.".to_owned()),
    )
    .title("Greet")
    .describe("Greets a person by name.")
    .takes(&[("name", "string", "Who to greet.")]);
    let add = Tool::new("add", Behaviour::Sum)
        .title("Add")
        .describe("Adds two numbers.")
        .takes(&[
            ("a", "number", "The first number."),
            ("b", "number", "The second number."),
        ]);
    let pid = Tool::new("pid", Behaviour::Pid)
        .title("Process id")
        .describe("Tells the server's process id, which changes when the server is restarted.")
        .takes(&[]);
    [greet, add, pid]
        .into_iter()
        .fold(Script::new("hello"), |script, tool| {
            script.tool(tool.annotations(harmless()))
        })
}

/// Tools that a policy treats in different ways: reading, changing and deleting.
fn notes() -> Script {
    let title = ("title", "string", "The note's title.");
    Script::new("notes")
        .tool(
            Tool::new(
                "list_notes",
                Behaviour::Text("groceries\nsiege plans\nlove letters".to_owned()),
            )
            .title("List notes")
            .describe("Lists the titles of all notes.")
            .takes(&[])
            .annotations(harmless()),
        )
        .tool(
            Tool::new(
                "read_note",
                Behaviour::Template("{title}: bread, cheese, boiling oil".to_owned()),
            )
            .title("Read a note")
            .describe("Reads one note.")
            .takes(&[title])
            .annotations(harmless()),
        )
        .tool(
            Tool::new(
                "write_note",
                Behaviour::Template("wrote the note \u{201c}{title}\u{201d}".to_owned()),
            )
            .title("Write a note")
            .describe("Writes a note, or writes over the one of that title.")
            .takes(&[title, ("text", "string", "What the note says.")])
            .annotations(json!({"readOnlyHint": false, "destructiveHint": true, "openWorldHint": false})),
        )
        .tool(
            Tool::new(
                "delete_note",
                Behaviour::Template("the note \u{201c}{title}\u{201d} is gone".to_owned()),
            )
            .title("Delete a note")
            .describe("Deletes a note for good.")
            .takes(&[title])
            .annotations(json!({"readOnlyHint": false, "destructiveHint": true, "openWorldHint": false})),
        )
}

/// A result too large for any context.
fn pictures() -> Script {
    Script::new("pictures").tool(
        Tool::new("render", Behaviour::image(PICTURE_BYTES, PICTURE_SEED))
            .title("Render a picture")
            .describe("Renders a picture of five mebibytes.")
            .takes(&[])
            .annotations(harmless()),
    )
}

/// A server that dies in the middle of a call, and is well again once restarted.
fn crashy() -> Script {
    Script::new("crashy")
        .tool(
            Tool::new("die", Behaviour::delay(150, Behaviour::crash(70)))
                .title("Die")
                .describe("Ends the server in the middle of the call.")
                .takes(&[])
                .annotations(
                    json!({"readOnlyHint": false, "destructiveHint": true, "idempotentHint": false}),
                ),
        )
        .tool(
            Tool::new("alive", Behaviour::Text("alive and well".to_owned()))
                .title("Alive?")
                .describe("Tells that the server lives.")
                .takes(&[])
                .annotations(harmless()),
        )
        .tool(
            Tool::new("pid", Behaviour::Pid)
                .title("Process id")
                .describe("Tells the server's process id, which changes when the server is restarted.")
                .takes(&[])
                .annotations(harmless()),
        )
}

/// A server that never gets past the handshake.
fn stuck() -> Script {
    Script::new("stuck").handshake(Handshake::Hang)
}

fn harmless() -> Value {
    json!({"readOnlyHint": true, "openWorldHint": false})
}
