//! What a keeper is to start. It goes over the keeper's own socket, so that the warden never sees it.

use std::{
    ffi::OsString,
    fmt,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
    time::Duration,
};

use crate::{Error, Limits};

/// Sent after an order, it begins the stop sequence, as closing the socket does.
pub const STOP: &[u8] = b"s";

/// How many bytes an order may have. The operating system takes far fewer for arguments and environment.
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// A server to be started, and how it is to be stopped one day. Its values are secrets: `Debug` shows the program
/// alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Order {
    /// An absolute path.
    pub program: PathBuf,
    /// The arguments, the program's own name not counted.
    pub args: Vec<OsString>,
    /// The whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The working directory; with none, the file system's root.
    pub cwd: Option<PathBuf>,
    /// What it may use.
    pub limits: Limits,
    /// How long it may take to exit once its standard input was closed; then comes SIGTERM.
    pub after_eof: Duration,
    /// How long it may take to exit after SIGTERM; then comes SIGKILL.
    pub after_term: Duration,
}

impl Order {
    /// The bytes to write to [`Launch::control`](crate::Launch::control): their number first.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for more than 16 MiB.
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        // Sized at once: growing would leave copies of secrets behind on the heap.
        let mut writer = Writer(Vec::with_capacity(self.size_bytes()));
        writer.bytes(self.program.as_os_str().as_bytes());
        writer.number(self.args.len() as u64);
        for arg in &self.args {
            writer.bytes(arg.as_bytes());
        }
        writer.number(self.environment.len() as u64);
        for (name, value) in &self.environment {
            writer.bytes(name.as_bytes());
            writer.bytes(value.as_bytes());
        }
        writer.optional(self.cwd.as_ref().map(|_| 1));
        writer.bytes(
            self.cwd
                .as_ref()
                .map(|cwd| cwd.as_os_str().as_bytes())
                .unwrap_or_default(),
        );
        for limit in self.limits.fields() {
            writer.optional(limit);
        }
        for wait in [self.after_eof, self.after_term] {
            writer.number(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        }
        let length = writer.0.len() - Self::LENGTH_BYTES;
        if length > MOST_BYTES {
            return Err(Error::TooLarge {
                bytes: length,
                limit: MOST_BYTES,
            });
        }
        if let Some(head) = writer.0.first_chunk_mut() {
            *head = (length as u64).to_le_bytes();
        }
        Ok(writer.0)
    }

    /// How many bytes stand before an order, to say how many it has.
    pub(crate) const LENGTH_BYTES: usize = 8;

    /// How many bytes follow, from the bytes that stand before an order; none where it is longer than it may be.
    pub(crate) fn length(head: [u8; Self::LENGTH_BYTES]) -> Option<usize> {
        usize::try_from(u64::from_le_bytes(head))
            .ok()
            .filter(|length| *length <= MOST_BYTES)
    }

    /// Reads an order, without the number that stands before it. None where the bytes are not one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let program = reader.path()?;
        let args = (0..reader.number()?)
            .map(|_| reader.text())
            .collect::<Option<_>>()?;
        let environment = (0..reader.number()?)
            .map(|_| Some((reader.text()?, reader.text()?)))
            .collect::<Option<_>>()?;
        let has_cwd = reader.optional()?;
        let cwd = reader.path()?;
        let mut limits = [None; 6];
        for limit in &mut limits {
            *limit = reader.optional()?;
        }
        let (after_eof, after_term) = (reader.number()?, reader.number()?);
        reader.0.is_empty().then_some(Self {
            program,
            args,
            environment,
            cwd: has_cwd.map(|_| cwd),
            limits: Limits::from_fields(limits),
            after_eof: Duration::from_millis(after_eof),
            after_term: Duration::from_millis(after_term),
        })
    }

    /// At least what `encode` writes.
    fn size_bytes(&self) -> usize {
        let args: usize = self.args.iter().map(|arg| arg.len() + 8).sum();
        let environment: usize = self
            .environment
            .iter()
            .map(|(name, value)| name.len() + value.len() + 16)
            .sum();
        let cwd = self.cwd.as_ref().map_or(0, |cwd| cwd.as_os_str().len());
        self.program.as_os_str().len() + args + environment + cwd + 256
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Order")
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u64) {
        // The place of the whole order's length, filled in at the end.
        if self.0.is_empty() {
            self.0.extend_from_slice(&[0; Order::LENGTH_BYTES]);
        }
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn optional(&mut self, number: Option<u64>) {
        self.number(u64::from(number.is_some()));
        self.number(number.unwrap_or_default());
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn text(&mut self) -> Option<OsString> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(OsString::from_vec(text.to_vec()))
    }

    fn path(&mut self) -> Option<PathBuf> {
        self.text().map(PathBuf::from)
    }

    fn optional(&mut self) -> Option<Option<u64>> {
        let (present, number) = (self.number()?, self.number()?);
        Some((present == 1).then_some(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> Order {
        Order {
            program: "/usr/bin/server".into(),
            args: vec![
                "--token=canary".into(),
                OsString::from_vec(vec![0xff, b' ']),
                OsString::new(),
            ],
            environment: vec![("PATH".into(), "/bin".into()), ("EMPTY".into(), OsString::new())],
            cwd: Some("/srv".into()),
            limits: Limits {
                open_files: Some(64),
                core_bytes: Some(0),
                ..Limits::default()
            },
            after_eof: Duration::from_millis(1_500),
            after_term: Duration::from_secs(2),
        }
    }

    #[track_caller]
    fn check(order: &Order) {
        let bytes = order.encode().unwrap();
        let (head, body) = bytes.split_first_chunk().unwrap();
        assert_eq!(Order::length(*head), Some(body.len()));
        assert_eq!(Order::decode(body).as_ref(), Some(order));
        for cut in 0..body.len() {
            assert_eq!(Order::decode(&body[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn an_order_survives_its_way_and_a_cut_one_is_none() {
        check(&order());
        check(&Order {
            args: vec![],
            environment: vec![],
            cwd: None,
            limits: Limits::default(),
            ..order()
        });
    }

    #[test]
    fn an_order_is_bounded_and_says_no_secret() {
        let large = Order {
            args: vec!["x".repeat(MOST_BYTES).into()],
            ..order()
        };
        let error = large.encode().unwrap_err().to_string();
        assert!(error.ends_with("over the limit of 16777216"), "{error}");
        assert_eq!(Order::length(u64::MAX.to_le_bytes()), None);
        assert!(!format!("{:?}", order()).contains("canary"));
    }
}
