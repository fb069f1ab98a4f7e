//! What was trusted of each tool, and what waits for a person.

use portcullis_types::Hash;
use rusqlite::{Connection, OptionalExtension, Row, params, types::Type};

use super::State;
use crate::StateError;

/// One pin: a tool (`mcp.<server>.<tool>`) or what a server is started with (`mcp.<server>`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// What is pinned.
    pub subject: String,
    /// When it was seen first, in milliseconds since the Unix epoch.
    pub first_seen_ms: i64,
    /// What is trusted, with who trusts it. None where nothing has been yet.
    pub trusted: Option<(PinnedText, String)>,
    /// What was seen since and waits for a person.
    pub waiting: Option<PinnedText>,
}

/// A definition in a pin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedText {
    /// Its hash.
    pub hash: Hash,
    /// Its text; none where it was too long to keep.
    pub text: Option<String>,
    /// Since when, in milliseconds since the Unix epoch.
    pub since_ms: i64,
}

/// What an approval of a definition came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trusting {
    /// It is trusted from now on, in the place of the one given here.
    Done {
        /// What was trusted before, if anything.
        before: Option<Hash>,
    },
    /// This very definition was trusted already.
    Already,
    /// Another definition waits than the one that was to be approved, or none does.
    Other {
        /// The one that waits.
        waiting: Option<Hash>,
    },
    /// There is no such pin.
    Unknown,
}

impl State {
    /// All pins, by server and tool.
    ///
    /// # Errors
    /// [`StateError`] where they cannot be read.
    pub fn pins(&self) -> Result<Vec<Pin>, StateError> {
        self.read(|connection| {
            let mut statement = connection.prepare(&format!("{SELECT} ORDER BY server, subject"))?;
            let rows = statement.query_map([], pin_of)?;
            rows.collect()
        })
    }

    /// One pin.
    ///
    /// # Errors
    /// [`StateError`] where it cannot be read.
    pub fn pin(&self, subject: &str) -> Result<Option<Pin>, StateError> {
        self.read(|connection| one(connection, subject))
    }

    /// Trusts the definition of `subject` that waits, if it is the one with this hash: a person approved that one,
    /// and not what took its place meanwhile.
    ///
    /// # Errors
    /// [`StateError`]: nothing is trusted that was not before.
    pub fn trust(&self, subject: &str, hash: Hash, by: &str, now_ms: i64) -> Result<Trusting, StateError> {
        self.write(|transaction| {
            let Some(pin) = one(transaction, subject)? else {
                return Ok(Trusting::Unknown);
            };
            let before = pin.trusted.map(|(text, _)| text.hash);
            let waiting = pin.waiting.map(|text| text.hash);
            if waiting != Some(hash) {
                return Ok(match before {
                    Some(before) if before == hash => Trusting::Already,
                    _ => Trusting::Other { waiting },
                });
            }
            transaction.execute(
                "UPDATE pins SET trusted_hash = waiting_hash, trusted_text = waiting_text, trusted_at_ms = ?2,
                    trusted_by = ?3, waiting_hash = NULL, waiting_text = NULL, waiting_since_ms = NULL
                 WHERE subject = ?1",
                params![subject, now_ms, by],
            )?;
            Ok(Trusting::Done { before })
        })
    }

    /// Forgets a tool (`mcp.<server>.<tool>`), or a server with all its tools (`mcp.<server>`): what is seen next is
    /// seen first. How many pins that were.
    ///
    /// # Errors
    /// [`StateError`]: nothing is forgotten.
    pub fn forget(&self, subject: &str) -> Result<usize, StateError> {
        self.write(|transaction| {
            transaction.execute("DELETE FROM pins WHERE subject = ?1 OR server = ?1", [subject])
        })
    }
}

const SELECT: &str = "SELECT subject, first_seen_ms, trusted_hash, trusted_text, trusted_at_ms, trusted_by,
    waiting_hash, waiting_text, waiting_since_ms FROM pins";

fn one(connection: &Connection, subject: &str) -> rusqlite::Result<Option<Pin>> {
    connection
        .query_row(&format!("{SELECT} WHERE subject = ?1"), [subject], pin_of)
        .optional()
}

fn pin_of(row: &Row<'_>) -> rusqlite::Result<Pin> {
    let text = |column: usize| {
        let Some(hash) = hash_of(row, column)? else {
            return Ok(None);
        };
        Ok::<_, rusqlite::Error>(Some(PinnedText {
            hash,
            text: row.get(column + 1)?,
            since_ms: row.get(column + 2)?,
        }))
    };
    let trusted = match text(2)? {
        Some(trusted) => Some((trusted, row.get(5)?)),
        None => None,
    };
    Ok(Pin {
        subject: row.get(0)?,
        first_seen_ms: row.get(1)?,
        trusted,
        waiting: text(6)?,
    })
}

pub(super) fn hash_of(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Hash>> {
    let bytes: Option<Vec<u8>> = row.get(column)?;
    bytes
        .map(|bytes| {
            <[u8; 32]>::try_from(bytes).map(Hash::from_bytes).map_err(|_| {
                rusqlite::Error::FromSqlConversionFailure(column, Type::Blob, "a hash has 32 bytes".into())
            })
        })
        .transpose()
}
