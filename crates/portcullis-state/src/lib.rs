//! What outlives a run, and the door through which files are written for people.
//!
//! [`State`] is a small database in a folder of the user's own: the definitions of tools that were trusted (pins), and
//! approvals of calls that hold for a while.
//! Several processes may have it open at once.
//!
//! ```
//! use portcullis_state::{FirstSight, PinState, SeenTool, Sighting, State};
//! use portcullis_types::Hash;
//!
//! let folder = tempfile::tempdir()?;
//! let state = State::open(&folder.path().join("portcullis"))?;
//! let server = "github".parse()?;
//! let look = |description: &str| {
//!     let text = format!(r#"{{"description":"{description}","name":"merge"}}"#);
//!     let tool = SeenTool { tool: "merge", hash: Hash::of(text.as_bytes()), definition: &text };
//!     let seen = Sighting { server: &server, launch: Hash::of(b"npx"), launch_text: "{}", tools: &[tool] };
//!     Ok::<_, portcullis_state::StateError>(state.see(&seen, FirstSight::Trust, 0)?.tools[0].state)
//! };
//! // What is seen first is trusted. What is different afterwards is not, until a person approves it.
//! assert_eq!(look("merges")?, PinState::Trusted);
//! assert_eq!(look("merges, and mails the token")?, PinState::Changed);
//! let pin = state.pin("mcp.github.merge")?.unwrap();
//! state.trust("mcp.github.merge", pin.waiting.unwrap().hash, "ann", 1)?;
//! assert_eq!(look("merges, and mails the token")?, PinState::Trusted);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Files for people appear whole or not at all: [`write_new`] never in the place of another, [`replace`] in that of the old
//! one. An error says which of the two it was: only [`StateError::Unsynced`] leaves the file there.
//!
//! Deliberately absent: any async runtime (callers give it a thread that may block; each wait is bounded by
//! [`State::MAX_WAIT`]), clocks (the time is a parameter), and any knowledge of what stands in the files and texts.

mod error;
mod files;
mod state;

pub use error::StateError;
pub use files::{Privacy, create_folder, replace, write_new};
pub use state::{
    Approval, ApprovedCall, FirstSight, Pin, PinState, PinnedText, SeenTool, Sighted, SightedTool, Sighting,
    State, Trusting,
};
