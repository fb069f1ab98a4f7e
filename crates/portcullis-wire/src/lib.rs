//! Chunks of bytes in, JSON-RPC frames out: the framing of MCP's stdio transport (one message a line), tolerant
//! of whatever else a server prints, and never at a loss for an answer.
//!
//! A [`Decoder`] is fed chunks that end anywhere and gives [`Frame`]s. A message passes as raw JSON text, so
//! big numbers and unknown members survive word for word. A reply that cannot be used comes out as
//! [`Frame::Unusable`], with the id where one could be read and the reason, so that its caller hears of it at
//! once; a request that cannot be read whole is a [`Frame::BadRequest`], so that its sender does; a banner, a log line
//! or a blank line is [`Frame::Noise`] or nothing.
//!
//! What it takes for what:
//!
//! - A reply without `jsonrpc`, with another version in it, with `"error": null` beside its result, or with an id
//!   of `7.0`, loses nothing and is used. One without `jsonrpc` must hold nothing but a usable id and `result` or
//!   `error`: log lines have ids and errors too.
//! - A batch (an array, which MCP dropped) and several messages on one line are taken apart, each member a frame
//!   of its own, [`MAX_MESSAGES_PER_LINE`] at most.
//! - A message that a raw newline cuts is not joined again: the protocol forbids it, and waiting for the rest
//!   could last for ever. It is reported at once, and where its id stands on a later line, again with that id.
//! - A notification that cannot be read is noise: nobody waits for an answer. So is a request whose
//!   id cannot be told, or that ends early.
//! - Strings over [`Limits::max_string_bytes`] leave their line as they arrive, where somebody takes them
//!   ([`Decoder::taking`]): what is then bounded is what stays. Whether they are JSON is checked on the way, and what is
//!   wrong with one stays in the line. A raw newline ends every string.
//! - Memory is bounded by [`Limits::max_line_bytes`], the chunk at hand and, where long strings are taken, one that is
//!   not long yet, as long as the frames are taken after each chunk; time is linear in the bytes fed, whatever the size
//!   of the chunks.
//!
//! Deliberately absent: IO, clocks, any async runtime, encoding, and what a result means. Which call an id belongs
//! to is for the transport above to say.
//!
//! ```
//! use portcullis_wire::{Decoder, Frame, Id, Limits};
//!
//! let mut decoder = Decoder::new(Limits::default());
//! decoder.feed(b"Server ready\n{\"jsonrpc\":\"2.0\",\"id\":7,\"res");
//! assert!(matches!(decoder.next_frame(), Some(Frame::Noise { .. })));
//! assert_eq!(decoder.next_frame(), None);
//!
//! decoder.feed(b"ult\":{\"n\":1.10}}\n{\"jsonrpc\":\"2.0\",\"id\":8,\"result\":NaN}\n");
//! let result = "{\"n\":1.10}".into();
//! assert_eq!(decoder.next_frame(), Some(Frame::Response { id: Id::Number(7), result }));
//! let Some(Frame::Unusable { id, reason }) = decoder.next_frame() else { panic!("a bad reply is reported") };
//! assert_eq!(id, Some(Id::Number(8)));
//! assert!(reason.to_string().contains("`NaN}`"));
//! ```

mod decoder;
mod excerpt;
mod frame;
mod id;
mod long;
mod unusable;

pub use decoder::{Decoder, Limits, MAX_MESSAGES_PER_LINE};
pub use frame::{Frame, WireError};
pub use id::Id;
pub use long::{LongStrings, MAX_LONG_STRINGS, MAX_TAKEN_BYTES, marker, marker_tag};
pub use unusable::Unusable;
