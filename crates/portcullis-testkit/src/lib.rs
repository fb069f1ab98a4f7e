//! A scripted MCP server that can misbehave in every known way: for Portcullis' own tests, for the tests of those
//! who embed it, and for the built-in servers of `portcullis demo`.
//!
//! A [`Script`] says what the server is and does: how it goes through the handshake, what it lists, and what each
//! tool does when it is called. It is data, JSON in and out, so that a test can hand it to the program
//! `portcullis-scripted-server --script JSON`; [`serve`] plays one in the same process over any pair of pipes, and
//! [`serve_stdio`] over the process's own; [`HttpServer`] plays it over streamable HTTP, on a port of loopback.
//!
//! [`cases`] gives a server for each way in which servers are known to go wrong, with what a client should make of
//! it: a client's test goes through them all.
//!
//! For tests of one's own on stdio: [`OwnServer`] starts the test program itself again, in a test that does nothing but
//! [`play_given`]. A binary of one line around [`run`] does as well.
//!
//! Deliberately absent: an async runtime and an MCP SDK. The server speaks newline-delimited JSON-RPC as plain
//! text (MCP's stdio transport), since much of its work is to send what an SDK would refuse to: broken frames, and
//! the server-to-client requests that the specification has deprecated.
//!
//! ```
//! use portcullis_testkit::{AtEof, Behaviour, ExitReason, Script, Tool, serve};
//!
//! let script = Script::new("greeter")
//!     .at_eof(AtEof::Finish)
//!     .tool(Tool::new("greet", Behaviour::Template("Hello, {name}!".into())).describe("Greets a person."));
//! assert_eq!(Script::from_json(&script.to_json())?, script, "a script survives its way through JSON");
//!
//! let requests = concat!(
//!     r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#, "\n",
//!     r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"greet","arguments":{"name":"Ada"}}}"#, "\n",
//! );
//! let (replies, output) = std::io::pipe()?;
//! assert_eq!(serve(&script, requests.as_bytes(), output)?, ExitReason::EndOfInput);
//!
//! let replies = std::io::read_to_string(replies)?;
//! assert!(replies.lines().nth(1).is_some_and(|reply| reply.contains("Hello, Ada!")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cases;
pub mod demo;
mod engine;
mod error;
mod files;
mod http;
mod itself;
mod payload;
mod process;
mod program;
mod script;

pub use cases::{Case, Ends, cases};
pub use engine::{ExitReason, serve};
pub use error::Error;
pub use http::{HttpReplies, HttpServer};
pub use itself::{OwnServer, play_given};
pub use payload::{base64, pseudo_random};
pub use process::serve_stdio;
pub use program::run;
pub use script::{
    AtEof, BadReply, Behaviour, CrashPoint, Descendant, Detach, Discover, Era, Handshake, ListReply, Listing,
    Noise, Noises, Page, Paging, Process, Script, Shown, Tool, UnlessFile,
};
