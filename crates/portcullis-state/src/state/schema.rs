//! The versions of the schema, and how one becomes the next.

use std::path::Path;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::told;
use crate::StateError;

/// Says in the file's head whose database it is: `PCLS`.
const APPLICATION_ID: i64 = 0x5043_4c53;

/// What makes each version out of the one before; the first begins with nothing. A version that was published is
/// never edited: the next one goes to the end.
///
/// An older program may have the file open meanwhile. It does not look at the version again, and goes on with the
/// statements that it knows. So a version that lets a row mean less than it did has it in a table of another name, and
/// drops the old one: those statements then fail, and whatever fails is not permitted.
const VERSIONS: &[&str] = &[
    // 1: pins.
    "CREATE TABLE pins (
        subject TEXT PRIMARY KEY NOT NULL,
        server TEXT NOT NULL,
        first_seen_ms INTEGER NOT NULL,
        trusted_hash BLOB, trusted_text TEXT, trusted_at_ms INTEGER, trusted_by TEXT,
        waiting_hash BLOB, waiting_text TEXT, waiting_since_ms INTEGER
    ) STRICT;
    CREATE INDEX pins_by_server ON pins (server);",
    // 2: approvals.
    "CREATE TABLE approvals (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        capability TEXT NOT NULL, agent TEXT NOT NULL, tier TEXT NOT NULL,
        arguments_hash BLOB NOT NULL, policy_digest BLOB NOT NULL, definition_hash BLOB NOT NULL,
        given_by TEXT NOT NULL, at_ms INTEGER NOT NULL, until_ms INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX approvals_by_call ON approvals (capability, arguments_hash);",
    // 3: approvals are bound to the agent's profile. For which one they were given before is not known.
    "DELETE FROM approvals;
    ALTER TABLE approvals ADD COLUMN profile TEXT NOT NULL DEFAULT '';",
    // 4: approvals are where a program that knows no profiles does not find them.
    "DROP TABLE approvals;
    CREATE TABLE profile_approvals (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        capability TEXT NOT NULL, agent TEXT NOT NULL, profile TEXT NOT NULL, tier TEXT NOT NULL,
        arguments_hash BLOB NOT NULL, policy_digest BLOB NOT NULL, definition_hash BLOB NOT NULL,
        given_by TEXT NOT NULL, at_ms INTEGER NOT NULL, until_ms INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX profile_approvals_by_call ON profile_approvals (capability, arguments_hash);",
];

/// Looks at the database, and upgrades it where it is older.
pub(super) fn bring_up_to_date(connection: &mut Connection, path: &Path) -> Result<(), StateError> {
    upgrade(connection, path, VERSIONS)
}

fn upgrade(connection: &mut Connection, path: &Path, versions: &[&str]) -> Result<(), StateError> {
    let failed = |error| told(path, error);
    check_whole(connection, path)?;
    let known = i64::try_from(versions.len()).unwrap_or(i64::MAX);
    if version(connection, path, known)? == known {
        return Ok(());
    }
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(failed)?;
    // Another process may have been quicker.
    let found = usize::try_from(version(&transaction, path, known)?).unwrap_or(usize::MAX);
    for text in versions.iter().skip(found) {
        transaction.execute_batch(text).map_err(failed)?;
    }
    finish(&transaction, known).map_err(failed)?;
    transaction.commit().map_err(failed)
}

fn finish(transaction: &Transaction<'_>, version: i64) -> rusqlite::Result<()> {
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", version)
}

/// The version of the schema; 0 where the database is empty.
fn version(connection: &Connection, path: &Path, known: i64) -> Result<i64, StateError> {
    // In one statement, which sees one moment: another process may be making the database just now.
    let head = "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
        FROM pragma_application_id, pragma_user_version";
    let (owner, found, tables): (i64, i64, i64) = connection
        .query_row(head, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .map_err(|error| told(path, error))?;
    let foreign = owner != APPLICATION_ID && (owner != 0 || found != 0 || tables != 0);
    if foreign || found < 0 {
        return Err(StateError::Foreign {
            path: path.to_owned(),
        });
    }
    if found > known {
        return Err(StateError::Newer {
            path: path.to_owned(),
            found,
            known,
        });
    }
    Ok(found)
}

/// Reads all of it once. What is damaged is told and never made anew: it holds what a person decided.
fn check_whole(connection: &Connection, path: &Path) -> Result<(), StateError> {
    let failed = |error| told(path, error);
    let said: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(failed)?;
    if said == "ok" {
        Ok(())
    } else {
        Err(StateError::Damaged {
            path: path.to_owned(),
            why: said,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(connection: &mut Connection, versions: &[&str]) -> Result<(), StateError> {
        upgrade(connection, Path::new("t"), versions)
    }

    fn count(connection: &Connection, table: &str) -> rusqlite::Result<i64> {
        connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0))
    }

    #[test]
    fn each_version_becomes_the_next_and_keeps_what_it_holds() {
        let mut connection = Connection::open_in_memory().unwrap();
        let versions = [
            "CREATE TABLE a (x)",
            "CREATE TABLE b (x)",
            "INSERT INTO b SELECT x FROM a",
        ];
        check(&mut connection, &versions[..1]).unwrap();
        connection.execute("INSERT INTO a VALUES (1)", []).unwrap();
        check(&mut connection, &versions).unwrap();
        check(&mut connection, &versions).unwrap();
        assert_eq!(count(&connection, "b").unwrap(), 1, "each step runs once");
        let error = check(&mut connection, &versions[..2]).unwrap_err();
        assert!(
            matches!(
                error,
                StateError::Newer {
                    found: 3,
                    known: 2,
                    ..
                }
            ),
            "{error}"
        );
        assert!(error.to_string().contains("newer version"), "{error}");
    }

    #[test]
    fn a_step_that_fails_leaves_the_version_before() {
        let mut connection = Connection::open_in_memory().unwrap();
        check(&mut connection, &["CREATE TABLE a (x)"]).unwrap();
        let broken = ["CREATE TABLE a (x)", "CREATE TABLE b (x); CREATE TABLE a (x)"];
        check(&mut connection, &broken).unwrap_err();
        assert!(count(&connection, "b").is_err());
        check(&mut connection, &["CREATE TABLE a (x)"]).unwrap();
    }

    /// What a program of version 2 says, which knows no profiles. It may have said so before, and kept that.
    const APPROVE_BY_2: &str = "INSERT INTO approvals (capability, agent, tier, arguments_hash, policy_digest,
        definition_hash, given_by, at_ms, until_ms) VALUES ('mcp.a.x', 'bot', 'plan', x'00', x'00', x'00', 'ann', 1, 2)";
    const RECALL_BY_2: &str = "SELECT id FROM approvals WHERE capability = 'mcp.a.x' AND agent = 'bot'
        AND tier = 'plan' AND arguments_hash = x'00' AND at_ms <= 1 AND until_ms > 1";

    #[test]
    fn an_approval_that_was_given_for_who_knows_which_profile_is_none() {
        for before in 1..VERSIONS.len() {
            let mut connection = Connection::open_in_memory().unwrap();
            check(&mut connection, &VERSIONS[..before]).unwrap();
            let pin = "INSERT INTO pins (subject, server, first_seen_ms) VALUES ('mcp.a', 'a', 1)";
            connection.execute(pin, []).unwrap();
            if before > 1 {
                connection.execute(APPROVE_BY_2, []).unwrap();
            }
            check(&mut connection, VERSIONS).unwrap();
            let left = ["pins", "profile_approvals"].map(|table| count(&connection, table).unwrap());
            assert_eq!(left, [1, 0], "from {before}");
        }
    }

    /// It has to ask somebody then.
    #[test]
    fn a_program_that_knows_no_profiles_and_has_the_file_open_finds_no_approval() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let mut older = Connection::open(&path).unwrap();
        check(&mut older, &VERSIONS[..2]).unwrap();
        older.execute(APPROVE_BY_2, []).unwrap();
        let mut recall = older.prepare(RECALL_BY_2).unwrap();
        assert!(recall.exists([]).unwrap());
        check(&mut Connection::open(&path).unwrap(), VERSIONS).unwrap();
        for error in [
            recall.exists([]).unwrap_err(),
            older.query_row(RECALL_BY_2, [], |_| Ok(())).unwrap_err(),
            older.execute(APPROVE_BY_2, []).unwrap_err(),
        ] {
            assert!(error.to_string().contains("no such table"), "{error}");
        }
    }

    #[test]
    fn of_several_programs_that_upgrade_at_once_each_finds_it_done() {
        for before in 0..VERSIONS.len() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("state");
            check(&mut Connection::open(&path).unwrap(), &VERSIONS[..before]).unwrap();
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        let mut connection = Connection::open(&path).unwrap();
                        check(&mut connection, VERSIONS).unwrap();
                        assert_eq!(count(&connection, "profile_approvals").unwrap(), 0);
                    });
                }
            });
        }
    }

    #[test]
    fn the_database_of_something_else_is_left_alone() {
        for text in [
            "CREATE TABLE theirs (x)",
            "PRAGMA user_version = 7",
            "PRAGMA application_id = 7",
        ] {
            let mut connection = Connection::open_in_memory().unwrap();
            connection.execute_batch(text).unwrap();
            let error = check(&mut connection, VERSIONS).unwrap_err();
            assert!(matches!(error, StateError::Foreign { .. }), "{text}: {error}");
            assert!(count(&connection, "pins").is_err());
        }
    }
}
