//! What a server shows of itself, beside what was trusted of it.

use std::collections::HashMap;

use portcullis_types::{Hash, ServerId};
use rusqlite::{Connection, Transaction, params};

use super::{State, pins::hash_of};
use crate::StateError;

/// What becomes of a tool that was never seen before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FirstSight {
    /// It is trusted as it is.
    #[default]
    Trust,
    /// A person approves it first.
    Ask,
}

/// Where a definition stands beside what was trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinState {
    /// It was never trusted in any form.
    New,
    /// It is the one that was trusted.
    Trusted,
    /// Another one was trusted.
    Changed,
}

/// One tool as a server lists it now.
#[derive(Debug, Clone, Copy)]
pub struct SeenTool<'a> {
    /// The tool's name, as the server gave it.
    pub tool: &'a str,
    /// The hash of what is pinned of its definition.
    pub hash: Hash,
    /// The text that the hash is over, to be shown when it differs.
    pub definition: &'a str,
}

/// What a server shows of itself now.
#[derive(Debug, Clone, Copy)]
pub struct Sighting<'a> {
    /// Which server.
    pub server: &'a ServerId,
    /// The hash of what is started or reached.
    pub launch: Hash,
    /// What may be shown of that: JSON text without secrets.
    pub launch_text: &'a str,
    /// All its tools.
    pub tools: &'a [SeenTool<'a>],
}

/// What a sighting comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighted {
    /// What is started or reached. It is trusted when it is seen first: a person wrote it down.
    pub launch: SightedTool,
    /// The tools, in the order of the sighting.
    pub tools: Vec<SightedTool>,
}

/// What a sighting of one tool comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SightedTool {
    /// Where it stands.
    pub state: PinState,
    /// Whether this is the first time that this very definition is seen to stand so.
    pub is_news: bool,
    /// The hash that is trusted, if any is.
    pub trusted: Option<Hash>,
}

/// How much text of one definition is kept, in bytes.
const KEPT_TEXT_BYTES: usize = 128 * 1024;
/// How much text is kept of all definitions of one server, in bytes.
const KEPT_SERVER_BYTES: usize = 32 * 1024 * 1024;
/// How many tools of one server are kept. A listing has fewer; more come only from names that change.
const KEPT_TOOLS: usize = 8_192;
/// How long the names of all kept tools of one server may be together, in bytes. They are not left out as texts are: a
/// name is what tells a tool.
const KEPT_NAMES_BYTES: usize = 4 * 1024 * 1024;
/// As whose word a definition is trusted that was seen first.
const FIRST_SIGHT: &str = "first sight";

impl State {
    /// Compares what a server shows with what was trusted, and records what is new or different.
    ///
    /// # Errors
    /// [`StateError`]: nothing was recorded, and none of the tools may be trusted.
    pub fn see(&self, seen: &Sighting<'_>, first: FirstSight, now_ms: i64) -> Result<Sighted, StateError> {
        // All is as it was, nearly always: then nothing is written, and nobody else is held up.
        if let Some(sighted) = self.read(|connection| unchanged(connection, seen))? {
            return Ok(sighted);
        }
        let sighted = self.write(|transaction| record(transaction, seen, first, now_ms))?;
        sighted.ok_or_else(|| StateError::TooManyTools {
            server: seen.server.to_string(),
            most: KEPT_TOOLS,
            most_name_bytes: KEPT_NAMES_BYTES,
        })
    }
}

/// What is known of one subject: the hash that is trusted, and the one that waits.
type Known = (Option<Hash>, Option<Hash>);

fn known_of(connection: &Connection, server: &str) -> rusqlite::Result<HashMap<String, Known>> {
    let mut statement =
        connection.prepare("SELECT subject, trusted_hash, waiting_hash FROM pins WHERE server = ?1")?;
    let rows = statement.query_map([server], |row| {
        Ok((row.get(0)?, (hash_of(row, 1)?, hash_of(row, 2)?)))
    })?;
    rows.collect()
}

/// The outcome where all that is seen is trusted and nothing waits.
fn unchanged(connection: &Connection, seen: &Sighting<'_>) -> rusqlite::Result<Option<Sighted>> {
    let server = format!("mcp.{}", seen.server);
    let known = known_of(connection, &server)?;
    let is_trusted = |subject: &str, hash: Hash| known.get(subject) == Some(&(Some(hash), None));
    let all = is_trusted(&server, seen.launch)
        && seen
            .tools
            .iter()
            .all(|tool| is_trusted(&format!("{server}.{}", tool.tool), tool.hash));
    let trusted = |hash| SightedTool {
        state: PinState::Trusted,
        is_news: false,
        trusted: Some(hash),
    };
    Ok(all.then(|| Sighted {
        launch: trusted(seen.launch),
        tools: seen.tools.iter().map(|tool| trusted(tool.hash)).collect(),
    }))
}

/// `None` where the server has shown too many tools.
fn record(
    transaction: &Transaction<'_>,
    seen: &Sighting<'_>,
    first: FirstSight,
    now_ms: i64,
) -> rusqlite::Result<Option<Sighted>> {
    let server = format!("mcp.{}", seen.server);
    let known = known_of(transaction, &server)?;
    let subjects: Vec<_> = seen
        .tools
        .iter()
        .map(|tool| format!("{server}.{}", tool.tool))
        .collect();
    let new: Vec<_> = subjects
        .iter()
        .filter(|subject| !known.contains_key(*subject))
        .collect();
    let name_bytes: usize = known.keys().chain(new.iter().copied()).map(String::len).sum();
    // The launch has a row of its own, and is no tool.
    if !new.is_empty() && (known.len() + new.len() > KEPT_TOOLS + 1 || name_bytes > KEPT_NAMES_BYTES) {
        return Ok(None);
    }
    let mut recorder = Recorder {
        room: room(transaction, &server)?,
        transaction,
        server: &server,
        now_ms,
    };
    let launch = recorder.see(
        &server,
        known.get(&server),
        seen.launch,
        seen.launch_text,
        FirstSight::Trust,
    )?;
    let mut tools = Vec::with_capacity(seen.tools.len());
    for (tool, subject) in seen.tools.iter().zip(&subjects) {
        tools.push(recorder.see(subject, known.get(subject), tool.hash, tool.definition, first)?);
    }
    Ok(Some(Sighted { launch, tools }))
}

/// How much more text of a server is kept, in bytes.
fn room(transaction: &Transaction<'_>, server: &str) -> rusqlite::Result<usize> {
    let kept: i64 = transaction.query_row(
        "SELECT coalesce(sum(coalesce(octet_length(trusted_text), 0) + coalesce(octet_length(waiting_text), 0)), 0)
         FROM pins WHERE server = ?1",
        [server],
        |row| row.get(0),
    )?;
    Ok(KEPT_SERVER_BYTES.saturating_sub(usize::try_from(kept).unwrap_or(usize::MAX)))
}

struct Recorder<'a> {
    transaction: &'a Transaction<'a>,
    server: &'a str,
    room: usize,
    now_ms: i64,
}

impl Recorder<'_> {
    fn see(
        &mut self,
        subject: &str,
        known: Option<&Known>,
        hash: Hash,
        text: &str,
        first: FirstSight,
    ) -> rusqlite::Result<SightedTool> {
        let sighted = |state, is_news, trusted| SightedTool {
            state,
            is_news,
            trusted,
        };
        match known {
            None => {
                self.insert(subject, hash, text, first)?;
                Ok(match first {
                    FirstSight::Trust => sighted(PinState::Trusted, true, Some(hash)),
                    FirstSight::Ask => sighted(PinState::New, true, None),
                })
            }
            Some((Some(trusted), waiting)) if *trusted == hash => {
                if waiting.is_some() {
                    // It is as it was trusted again: nothing waits any more.
                    self.wait_for(subject, None)?;
                }
                Ok(sighted(PinState::Trusted, false, Some(hash)))
            }
            Some((trusted, waiting)) => {
                let is_news = *waiting != Some(hash);
                if is_news {
                    self.wait_for(subject, Some((hash, text)))?;
                }
                let state = if trusted.is_some() {
                    PinState::Changed
                } else {
                    PinState::New
                };
                Ok(sighted(state, is_news, *trusted))
            }
        }
    }

    fn insert(&mut self, subject: &str, hash: Hash, text: &str, first: FirstSight) -> rusqlite::Result<()> {
        let text = self.kept(text);
        let bytes = hash.as_bytes();
        match first {
            FirstSight::Trust => self.transaction.execute(
                "INSERT INTO pins (subject, server, first_seen_ms, trusted_hash, trusted_text, trusted_at_ms, trusted_by)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?3, ?6)",
                params![subject, self.server, self.now_ms, bytes, text, FIRST_SIGHT],
            ),
            FirstSight::Ask => self.transaction.execute(
                "INSERT INTO pins (subject, server, first_seen_ms, waiting_hash, waiting_text, waiting_since_ms)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?3)",
                params![subject, self.server, self.now_ms, bytes, text],
            ),
        }?;
        Ok(())
    }

    fn wait_for(&mut self, subject: &str, waiting: Option<(Hash, &str)>) -> rusqlite::Result<()> {
        let (hash, text) = waiting.unzip();
        let text = text.and_then(|text| self.kept(text));
        self.transaction.execute(
            "UPDATE pins SET waiting_hash = ?2, waiting_text = ?3, waiting_since_ms = ?4 WHERE subject = ?1",
            params![
                subject,
                hash.as_ref().map(Hash::as_bytes),
                text,
                hash.map(|_| self.now_ms)
            ],
        )?;
        Ok(())
    }

    /// The text, if there is room for it.
    fn kept<'t>(&mut self, text: &'t str) -> Option<&'t str> {
        let fits = text.len() <= KEPT_TEXT_BYTES && text.len() <= self.room;
        self.room = self.room.saturating_sub(if fits { text.len() } else { 0 });
        fits.then_some(text)
    }
}
