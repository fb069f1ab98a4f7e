//! The long strings of replies, which never lie in memory as a whole: what a host gives to take them, and what comes
//! of them.

mod in_memory;

use std::{any::Any, fmt, sync::Arc, time::Duration};

use portcullis_wire::marker;
use tokio::{
    sync::oneshot,
    task::spawn_blocking,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::task::AbortOnDropHandle;

pub(crate) use in_memory::InMemory;

/// The most text that is put back into one message, in bytes: what a line may have.
const MAX_PUT_BACK_BYTES: u64 = 64 << 20;

/// How long the rest of a string that has arrived may take to be written.
const LAST_PIECES: Duration = Duration::from_secs(60);

/// How long the strings of one message may take to be back in it: until the last one is written, and all are read.
pub(crate) const PUT_BACK: Duration = Duration::from_secs(30);

/// Takes strings of more than 64 KiB while they arrive. Its work is done on threads that may block, one for each
/// message with such strings; while that is slow, the server's pipe, body or stream is not read. It is given those
/// of a server of which somebody waits for a reply; once nobody does, what has come of an unfinished message is dropped.
pub trait StringSpool: Send + Sync + fmt::Debug {
    /// A string begins. What fails here or later is for [`StringWriter::finish`] to tell.
    fn begin(&self) -> Box<dyn StringWriter>;

    /// The same for one server, through all of its connections: whatever bounds how many strings there may be is to
    /// bound those of each server apart, so that no server takes the room that another's results need.
    fn share(&self) -> Arc<dyn StringSpool>;
}

/// One string on its way. Dropped, nothing of it is left: it was broken off.
pub trait StringWriter: Send {
    /// The next piece of its raw JSON text between the quotes, cut anywhere.
    fn write(&mut self, raw: &[u8]);

    /// It is whole: valid JSON text, as the wire has checked.
    fn finish(self: Box<Self>) -> Box<dyn SpooledString>;
}

/// A string that was taken out of its message. Dropped, nothing of it is left.
pub trait SpooledString: Send + fmt::Debug {
    /// Appends its raw JSON text, without quotes, to `text`. May block; where a message has not all of its strings within
    /// 30 s, it is given up.
    ///
    /// # Errors
    /// Why it cannot, in words for a person.
    fn put_back(&self, text: &mut Vec<u8>) -> Result<(), String>;

    /// Itself, for who gave the [`StringSpool`] and knows what it is.
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send>;
}

/// The result of a call as the server wrote it, but for its long strings.
#[derive(Debug)]
pub struct RawReply {
    /// JSON text. In the place of each of the strings stands its [marker](LongString::marker).
    pub json: String,
    /// The strings, in no order.
    pub strings: Vec<LongString>,
}

/// A string that left its message. Its last pieces may still be on their way to the spool.
#[derive(Debug)]
pub struct LongString {
    pub(crate) tag: u128,
    pub(crate) size_bytes: u64,
    pub(crate) spooled: oneshot::Receiver<Box<dyn SpooledString>>,
}

impl LongString {
    /// What stands in its place, a JSON string without its quotes. No server can have written it: it carries a random
    /// number that was chosen when the string began.
    #[must_use]
    pub fn marker(&self) -> String {
        marker(self.tag).to_string()
    }

    /// The size of its raw JSON text between the quotes, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Waits until all of it is written. `None` where its thread could not be started, came to grief or hangs.
    pub async fn spooled(self) -> Option<Box<dyn SpooledString>> {
        timeout(LAST_PIECES, self.spooled).await.ok()?.ok()
    }
}

impl RawReply {
    /// The result with its strings back in their places.
    pub(crate) async fn whole(self) -> Result<String, String> {
        if self.strings.is_empty() {
            return Ok(self.json);
        }
        // Boxed, since few replies have any and each would be as large.
        Box::pin(put_back(self.json, self.strings, Instant::now() + PUT_BACK)).await
    }
}

/// `json` with the strings back in the places of their markers, where that is done by `until`: whoever keeps them may
/// hang, and whoever waits has other things to do.
pub(crate) async fn put_back(
    json: String,
    strings: Vec<LongString>,
    until: Instant,
) -> Result<String, String> {
    if strings.is_empty() {
        return Ok(json);
    }
    let size: u64 = strings.iter().map(LongString::size_bytes).sum();
    if size > MAX_PUT_BACK_BYTES {
        return Err(format!(
            "it holds strings of {size} bytes, above the limit of {MAX_PUT_BACK_BYTES} where they are no content"
        ));
    }
    timeout_at(until, put_back_all(json, strings))
        .await
        .unwrap_or_else(|_| {
            let within = PUT_BACK.as_secs();
            Err(format!(
                "its long strings could not be put back within {within} s"
            ))
        })
}

async fn put_back_all(json: String, strings: Vec<LongString>) -> Result<String, String> {
    let mut spooled = Vec::with_capacity(strings.len());
    for string in strings {
        let marker = string.marker();
        let string = string.spooled().await.ok_or("one of its long strings was lost")?;
        spooled.push((marker, string));
    }
    // Where nobody waits any more before it has begun, it never does.
    AbortOnDropHandle::new(spawn_blocking(move || splice(&json, &spooled)))
        .await
        .unwrap_or_else(|_| Err("its long strings could not be put back".to_owned()))
}

fn splice(json: &str, strings: &[(String, Box<dyn SpooledString>)]) -> Result<String, String> {
    let mut places: Vec<_> = strings
        .iter()
        .filter_map(|(marker, string)| Some((json.find(marker.as_str())?, marker, string)))
        .collect();
    places.sort_unstable_by_key(|(at, ..)| *at);
    let mut text = Vec::new();
    let mut done = 0;
    for (at, marker, string) in places {
        text.extend_from_slice(json.get(done..at).unwrap_or_default().as_bytes());
        string.put_back(&mut text)?;
        done = at + marker.len();
    }
    text.extend_from_slice(json.get(done..).unwrap_or_default().as_bytes());
    String::from_utf8(text).map_err(|_| "a long string of it is not UTF-8".to_owned())
}

#[cfg(test)]
pub(crate) mod memory;

#[cfg(test)]
mod tests {
    use super::{memory::Shelf, *};

    const TOO_LATE: &str = "its long strings could not be put back within 30 s";

    /// A string of which `size_bytes` is said, and who brings it.
    fn string(size_bytes: u64) -> (LongString, oneshot::Sender<Box<dyn SpooledString>>) {
        let (done, spooled) = oneshot::channel();
        let string = LongString {
            tag: 7,
            size_bytes,
            spooled,
        };
        (string, done)
    }

    fn around(string: &LongString) -> String {
        format!(r#"["{}"]"#, string.marker())
    }

    /// Its message has come whole, and only who takes it is not done.
    #[tokio::test(start_paused = true)]
    async fn a_string_that_is_never_written_is_not_waited_for_for_ever() {
        let (one, _done) = string(100_000);
        let began = Instant::now();
        assert!(one.spooled().await.is_none());
        assert_eq!(began.elapsed(), LAST_PIECES);

        let (one, _done) = string(100_000);
        let (json, began) = (around(&one), Instant::now());
        let put_back = put_back(json, vec![one], began + PUT_BACK).await;
        assert_eq!(put_back, Err(TOO_LATE.to_owned()));
        assert_eq!(began.elapsed(), PUT_BACK);
    }

    /// Whoever waits for it reads nothing else of its server.
    #[tokio::test(start_paused = true)]
    async fn a_string_that_is_never_read_is_not_waited_for_for_ever() {
        let (string, done) = string(100_000);
        let shelf = Shelf::default();
        let hanging = shelf.hang();
        done.send(shelf.begin().finish()).unwrap();
        let (json, began) = (around(&string), Instant::now());
        let put_back = tokio::select! {
            put_back = put_back(json, vec![string], began + PUT_BACK) => put_back,
            () = hanging.lasts(PUT_BACK) => panic!("it is waited for still"),
        };
        assert_eq!(put_back, Err(TOO_LATE.to_owned()));
        assert_eq!(began.elapsed(), PUT_BACK);
    }

    #[tokio::test]
    async fn what_is_put_back_into_one_message_is_bounded() {
        for (more, told) in [
            (0, Ok(r#"["text"]"#)),
            (1, Err("strings of 67108865 bytes, above the limit of 67108864")),
        ] {
            let (string, done) = string(MAX_PUT_BACK_BYTES + more);
            let mut written = Shelf::default().begin();
            written.write(b"text");
            done.send(written.finish()).unwrap();
            let until = Instant::now() + PUT_BACK;
            match (put_back(around(&string), vec![string], until).await, told) {
                (Ok(whole), Ok(told)) => assert_eq!(whole, told),
                (Err(why), Err(told)) => assert!(why.contains(told), "{why}"),
                (other, _) => panic!("{more}: {other:?}"),
            }
        }
    }
}
