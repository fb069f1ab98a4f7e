//! A server's process: one at a time, started and watched.

use std::{io, sync::Arc, time::Duration};

use portcullis_config::TransportSpec;
use secrecy::SecretString;
use tokio::{
    sync::{OwnedSemaphorePermit, oneshot},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{ConnectError, Surroundings};
use crate::{
    environment::SpawnPlan,
    spawn::{ProcessHandle, SpawnedProcess, StopSequence},
    upstream::Upstream,
};

/// How long what a child wrote before its end may take to be read from a pipe that something else holds open.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// How long after its stop sequence a process may take to be gone.
const DEATH_WAIT: Duration = Duration::from_secs(6);

/// How long the [`turn`] to start a process may be waited for.
pub(crate) fn longest_turn(stop: StopSequence) -> Duration {
    stop.longest().saturating_add(DEATH_WAIT)
}

/// The turn to start this server's process: it comes when the one before is gone with all that the hub can see of it.
/// None for a server that is no process.
pub(super) async fn turn(
    upstream: &Upstream,
    around: &Surroundings,
) -> Result<Option<OwnedSemaphorePermit>, ConnectError> {
    if matches!(upstream.spec().transport, TransportSpec::Http(_)) {
        return Ok(None);
    }
    let most = longest_turn(around.stop);
    let turns = Arc::clone(&upstream.shared().turn);
    match timeout(most, turns.acquire_owned()).await {
        Ok(turn) => Ok(turn.ok()),
        Err(_) => Err(ConnectError::StillThere(most)),
    }
}

/// Starts the process; gives with it the values that must not be shown. `turn` is held until the process is gone,
/// also where nobody waits for it any more.
pub(super) async fn spawn(
    mut plan: SpawnPlan,
    around: &Surroundings,
    turn: Option<OwnedSemaphorePermit>,
) -> Result<(SpawnedProcess, Vec<SecretString>), ConnectError> {
    // A bare name would be looked up in whichever PATH the spawner has, and a relative path in whichever directory. The
    // configuration has looked it up; that of a server that was switched off may have found nothing.
    if !plan.program.is_absolute() {
        return Err(ConnectError::NotAbsolute(plan.program));
    }
    let secrets = std::mem::take(&mut plan.secrets);
    let (spawner, stop) = (Arc::clone(&around.spawner), around.stop);
    let (tell, told) = oneshot::channel();
    around.children.spawn(async move {
        match spawner.spawn(&plan, stop).await {
            Ok(spawned) => {
                let mut ended = spawned.process.watch();
                // Where nobody waits for it any more it is dropped right here, and so stopped.
                let _ = tell.send(Ok(spawned));
                // An error means that who waits for it is gone, and the process with it.
                let _ = ended.wait_for(Option::is_some).await;
            }
            Err(error) => {
                let _ = tell.send(Err(error));
            }
        }
        drop(turn);
    });
    let spawned = told
        .await
        .unwrap_or_else(|_| Err(io::Error::other("the hub is ending")));
    Ok((spawned.map_err(ConnectError::Spawn)?, secrets))
}

/// A child that is gone while something that left its group holds the pipe open would otherwise never be seen.
pub(super) fn close_when_it_ends(process: &ProcessHandle, closed: CancellationToken) {
    let mut ended = process.watch();
    tokio::spawn(async move {
        let _ = ended.wait_for(Option::is_some).await;
        // What it wrote last is still in the pipe: the end of the stream comes first, as a rule.
        let _ = timeout(LAST_WORDS, closed.cancelled()).await;
        closed.cancel();
    });
}
