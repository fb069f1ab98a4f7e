//! Approvals that hold for a while: the same call need not be asked about again.

use std::time::Duration;

use portcullis_types::Hash;
use rusqlite::{OptionalExtension, Row, params};

use super::{State, pins::hash_of};
use crate::StateError;

/// What an approval is bound to: the very same call, decided by the very same policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovedCall {
    /// What is called.
    pub capability: String,
    /// Who calls.
    pub agent: String,
    /// What the agent belongs to.
    pub profile: String,
    /// In which tier.
    pub tier: String,
    /// The hash of the arguments' text.
    pub arguments_hash: Hash,
    /// The policies that asked.
    pub policy_digest: Hash,
    /// The definition that was shown.
    pub definition_hash: Hash,
}

/// An approval that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// Its number.
    pub id: i64,
    /// What it is bound to.
    pub call: ApprovedCall,
    /// Who gave it.
    pub by: String,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// Until when it holds, in milliseconds since the Unix epoch.
    pub until_ms: i64,
}

impl Approval {
    /// Whether it holds at a time. One that was given in the future does not: the clock was put back, and nobody knows
    /// for how long it would hold.
    #[must_use]
    pub fn holds_at(&self, now_ms: i64) -> bool {
        self.at_ms <= now_ms && now_ms < self.until_ms
    }
}

/// How many approvals are kept. Each is a person's doing, so this many are none.
const KEPT_APPROVALS: i64 = 10_000;

impl State {
    /// Keeps an approval for `hold` from now. Those that hold no longer are forgotten.
    ///
    /// # Errors
    /// [`StateError`]: it is not kept.
    pub fn approve(
        &self,
        call: &ApprovedCall,
        by: &str,
        now_ms: i64,
        hold: Duration,
    ) -> Result<Approval, StateError> {
        let hold_ms = i64::try_from(hold.as_millis()).unwrap_or(i64::MAX);
        let until_ms = now_ms.saturating_add(hold_ms);
        self.write(|transaction| {
            transaction.execute(
                "DELETE FROM profile_approvals WHERE until_ms <= ?1 OR at_ms > ?1",
                [now_ms],
            )?;
            transaction.execute(
                "DELETE FROM profile_approvals
                    WHERE id NOT IN (SELECT id FROM profile_approvals ORDER BY id DESC LIMIT ?1)",
                [KEPT_APPROVALS - 1],
            )?;
            transaction.execute(
                "INSERT INTO profile_approvals (capability, agent, profile, tier, arguments_hash, policy_digest,
                    definition_hash, given_by, at_ms, until_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                params![
                    call.capability,
                    call.agent,
                    call.profile,
                    call.tier,
                    call.arguments_hash.as_bytes(),
                    call.policy_digest.as_bytes(),
                    call.definition_hash.as_bytes(),
                    by,
                    now_ms,
                    until_ms
                ],
            )?;
            Ok(Approval {
                id: transaction.last_insert_rowid(),
                call: call.clone(),
                by: by.to_owned(),
                at_ms: now_ms,
                until_ms,
            })
        })
    }

    /// The approval of this very call that holds at that time, of several the one that does so longest. By the time that
    /// it has been found it may have ended: [`Approval::holds_at`].
    ///
    /// # Errors
    /// [`StateError`]: nothing is approved.
    pub fn approval_of(&self, call: &ApprovedCall, now_ms: i64) -> Result<Option<Approval>, StateError> {
        self.read(|connection| {
            connection
                .query_row(
                    &format!(
                        "{SELECT} WHERE capability = ?1 AND agent = ?2 AND profile = ?3 AND tier = ?4
                            AND arguments_hash = ?5 AND policy_digest = ?6 AND definition_hash = ?7
                            AND at_ms <= ?8 AND until_ms > ?8
                         ORDER BY until_ms DESC LIMIT 1"
                    ),
                    params![
                        call.capability,
                        call.agent,
                        call.profile,
                        call.tier,
                        call.arguments_hash.as_bytes(),
                        call.policy_digest.as_bytes(),
                        call.definition_hash.as_bytes(),
                        now_ms
                    ],
                    approval_of,
                )
                .optional()
        })
    }

    /// All approvals that hold now, the newest first.
    ///
    /// # Errors
    /// [`StateError`] where they cannot be read.
    pub fn approvals(&self, now_ms: i64) -> Result<Vec<Approval>, StateError> {
        self.read(|connection| {
            let mut statement = connection.prepare(&format!(
                "{SELECT} WHERE at_ms <= ?1 AND until_ms > ?1 ORDER BY id DESC"
            ))?;
            let rows = statement.query_map([now_ms], approval_of)?;
            rows.collect()
        })
    }

    /// Takes an approval back. Whether there was one of this number.
    ///
    /// # Errors
    /// [`StateError`]: it may still hold.
    pub fn revoke(&self, id: i64) -> Result<bool, StateError> {
        self.write(|transaction| {
            Ok(transaction.execute("DELETE FROM profile_approvals WHERE id = ?1", [id])? > 0)
        })
    }
}

const SELECT: &str =
    "SELECT id, capability, agent, profile, tier, arguments_hash, policy_digest, definition_hash, given_by,
    at_ms, until_ms FROM profile_approvals";

fn approval_of(row: &Row<'_>) -> rusqlite::Result<Approval> {
    let hash = |column| hash_of(row, column).map(|hash| hash.unwrap_or_else(|| Hash::from_bytes([0; 32])));
    Ok(Approval {
        id: row.get(0)?,
        call: ApprovedCall {
            capability: row.get(1)?,
            agent: row.get(2)?,
            profile: row.get(3)?,
            tier: row.get(4)?,
            arguments_hash: hash(5)?,
            policy_digest: hash(6)?,
            definition_hash: hash(7)?,
        },
        by: row.get(8)?,
        at_ms: row.get(9)?,
        until_ms: row.get(10)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> ApprovedCall {
        ApprovedCall {
            capability: "mcp.a.x".to_owned(),
            agent: "default".to_owned(),
            profile: "night".to_owned(),
            tier: "plan".to_owned(),
            arguments_hash: Hash::of(b"a"),
            policy_digest: Hash::of(b"p"),
            definition_hash: Hash::of(b"d"),
        }
    }

    const HOUR: Duration = Duration::from_secs(3_600);

    #[test]
    fn an_approval_holds_for_the_same_call_until_it_ends() {
        let state = State::in_memory().unwrap();
        let given = state.approve(&call(), "ann", 1_000, HOUR).unwrap();
        let end = 1_000 + 3_600_000;
        assert_eq!(given.until_ms, end);
        let holds = |call: &ApprovedCall, at| {
            let found = state.approval_of(call, at).unwrap();
            assert_eq!(found.is_some(), call == &given.call && given.holds_at(at), "{at}");
            found.is_some()
        };
        assert!(holds(&call(), 1_000) && holds(&call(), end - 1));
        assert!(!holds(&call(), end), "it ended");
        assert!(!holds(&call(), 999), "the clock was put back");
        let other = Hash::of(b"other");
        let changes: [fn(&mut ApprovedCall, Hash); 7] = [
            |call, _| call.capability.push('y'),
            |call, _| call.agent.push('y'),
            |call, _| call.profile.push('y'),
            |call, _| call.tier.push('y'),
            |call, other| call.arguments_hash = other,
            |call, other| call.policy_digest = other,
            |call, other| call.definition_hash = other,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut changed = call();
            change(&mut changed, other);
            assert!(!holds(&changed, 2_000), "{number}");
        }
    }

    #[test]
    fn what_ended_is_forgotten_and_what_was_given_can_be_taken_back() {
        let state = State::in_memory().unwrap();
        let first = state
            .approve(&call(), "ann", 1_000, Duration::from_millis(10))
            .unwrap();
        let second = state.approve(&call(), "bob", 5_000, HOUR).unwrap();
        assert_eq!(state.approvals(5_000).unwrap(), std::slice::from_ref(&second));
        assert!(!state.revoke(first.id).unwrap(), "it was forgotten");
        assert!(state.revoke(second.id).unwrap());
        assert_eq!(state.approval_of(&call(), 5_000).unwrap(), None);
    }

    #[test]
    fn of_too_many_the_oldest_are_forgotten() {
        let state = State::in_memory().unwrap();
        let first = state.approve(&call(), "ann", 1_000, HOUR).unwrap();
        let more = format!(
            "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n <= {KEPT_APPROVALS})
             INSERT INTO profile_approvals (capability, agent, profile, tier, arguments_hash, policy_digest,
                definition_hash, given_by, at_ms, until_ms)
             SELECT capability, agent, profile, tier, arguments_hash, policy_digest, definition_hash, given_by, at_ms,
                until_ms FROM profile_approvals, n"
        );
        state.read(|connection| connection.execute_batch(&more)).unwrap();
        let last = state.approve(&call(), "bob", 2_000, HOUR).unwrap();
        let kept = state.approvals(2_000).unwrap();
        assert!(
            kept.is_sorted_by(|one, next| one.id > next.id),
            "the newest first"
        );
        assert_eq!(kept.len(), usize::try_from(KEPT_APPROVALS).unwrap());
        assert!(kept.contains(&last) && !kept.contains(&first));
    }

    /// A clock that was put back leaves approvals of a time that is yet to come.
    #[test]
    fn what_was_given_in_the_future_is_forgotten_with_the_next_approval() {
        let state = State::in_memory().unwrap();
        let future = state.approve(&call(), "ann", 9_000_000, HOUR).unwrap();
        assert_eq!(state.approvals(1_000).unwrap(), [], "it does not hold");
        let now = state.approve(&call(), "bob", 1_000, HOUR).unwrap();
        assert_eq!(state.approval_of(&call(), 1_000).unwrap(), Some(now));
        assert!(!state.revoke(future.id).unwrap(), "it was forgotten");
    }
}
