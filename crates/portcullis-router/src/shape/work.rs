//! The shaping of a hub's results: away from the threads that serve everybody, each within a time, and so many of one
//! server's at once.

use std::{collections::HashMap, fmt, sync::Arc, thread, time::Duration};

use portcullis_blobs::{BlobStore, Tag};
use portcullis_supervisor::{LongString, RawReply};
use portcullis_types::ServerId;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::timeout,
};

use super::{ShapeError, ShapeOptions, ShapedResult, Unstored, replace, spooled::Spools};
use crate::{
    clock,
    router::BlobTag,
    spool::{Outcome, Spooled},
};

/// From which size on, in bytes of its JSON, a result is shaped on a thread of its own: below that it takes less
/// than a millisecond.
const LARGE_BYTES: usize = 512 << 10;

/// How many results of one server go to the store at a time. What hangs there keeps its place, and with it a thread where
/// it has one, until it is done; other servers have theirs.
const AT_ONCE: u32 = 8;

/// How many of those places a large result takes, which has a thread of its own.
const PLACES_OF_LARGE: u32 = 2;

/// How many large results of a hub are looked through at a time: for each, its text and what it becomes lie in memory
/// together, some 200 MiB at worst. Nothing is put into the store meanwhile, and nothing waits for one of its locks.
const LOOKED_THROUGH: usize = 8;

// One server's cannot fill the hub.
const _: () = assert!((AT_ONCE / PLACES_OF_LARGE) as usize <= LOOKED_THROUGH / 2);

/// How long a result may take that is there: several times as long as a store waits for its locks, and the gigabytes of
/// a picture are on the disk by then. The call's own time is over when its reply comes.
const WITHIN: Duration = Duration::from_secs(120);

/// Shapes the results of a hub's servers.
pub(crate) struct Shaping {
    keeper: Keeper,
    places: HashMap<ServerId, Arc<Semaphore>>,
    /// Taken after a place, and given back before anything is stored.
    looked_through: Arc<Semaphore>,
}

/// Where results go and how they are kept there.
#[derive(Clone)]
struct Keeper {
    store: Arc<dyn BlobStore>,
    options: ShapeOptions,
    tag: Option<BlobTag>,
}

/// Who waits for a result.
type Caller = oneshot::Sender<Result<ShapedResult, ShapeError>>;

impl Shaping {
    /// For results of `servers`. What they put into `store` is kept there under `tag`, where there is one.
    pub(crate) fn new<'a>(
        servers: impl Iterator<Item = &'a ServerId>,
        store: Arc<dyn BlobStore>,
        options: ShapeOptions,
        tag: Option<BlobTag>,
    ) -> Self {
        let places = |server: &ServerId| (server.clone(), Arc::new(Semaphore::new(AT_ONCE as usize)));
        Self {
            keeper: Keeper { store, options, tag },
            places: servers.map(places).collect(),
            looked_through: Arc::new(Semaphore::new(LOOKED_THROUGH)),
        }
    }

    pub(super) fn options(&self) -> &ShapeOptions {
        &self.keeper.options
    }

    /// The result as the host gets it.
    pub(crate) async fn shape(&self, server: &ServerId, reply: RawReply) -> Result<ShapedResult, ShapeError> {
        timeout(WITHIN, self.shape_at_leisure(server, reply))
            .await
            .unwrap_or(Err(LATE))
    }

    async fn shape_at_leisure(&self, server: &ServerId, reply: RawReply) -> Result<ShapedResult, ShapeError> {
        let (keeper, options) = (self.keeper.clone(), self.keeper.options);
        let (caller, shaped) = oneshot::channel();
        if reply.strings.is_empty() && reply.json.len() < LARGE_BYTES {
            let unstored = replace(&reply.json, Spools::default(), &options)?;
            if unstored.is_stored() {
                // A store that hangs is none of its business.
                return unstored.store(keeper.store.as_ref(), || Ok(())).await;
            }
            let place = self.place(server, 1).await?;
            tokio::spawn(async move {
                let result = keeper.keep(unstored, &caller).await;
                drop(place);
                let _ = caller.send(result);
            });
        } else {
            let strings = gathered(reply.strings).await?;
            let place = self.place(server, PLACES_OF_LARGE).await?;
            let looked_through = Arc::clone(&self.looked_through).acquire_owned().await;
            let looked_through = looked_through.map_err(|_| no_place())?;
            let (json, runtime) = (reply.json, Handle::current());
            // None of the runtime's: it waits for the store, which needs one of those, and a host may have few of them.
            let thread = thread::Builder::new().name("large result".to_owned());
            let shaping = move || {
                let mut spools = Spools::new(strings);
                let unstored = spools
                    .prepare(json)
                    .and_then(|json| replace(&json, spools, &options));
                drop(looked_through);
                let result = unstored.and_then(|unstored| runtime.block_on(keeper.keep(unstored, &caller)));
                drop(place);
                let _ = caller.send(result);
            };
            thread.spawn(shaping).map_err(ShapeError::Thread)?;
        }
        shaped.await.map_err(|_| lost("what shaped or stored it"))?
    }

    /// Held until what it was taken for is done, also where nobody waits for that any more.
    async fn place(&self, server: &ServerId, places: u32) -> Result<OwnedSemaphorePermit, ShapeError> {
        let all = Arc::clone(self.places.get(server).ok_or_else(no_place)?);
        all.acquire_many_owned(places).await.map_err(|_| no_place())
    }
}

impl Keeper {
    /// Stores a result for as long as `caller` waits for it, and keeps what it stored under the hub's name.
    async fn keep(&self, unstored: Unstored, caller: &Caller) -> Result<ShapedResult, ShapeError> {
        let go_on = || if caller.is_closed() { Err(LATE) } else { Ok(()) };
        let result = unstored.store(self.store.as_ref(), go_on).await?;
        if let Some(BlobTag { name, life }) = &self.tag {
            let until = |life: &Duration| {
                let life_ms = i64::try_from(life.as_millis()).unwrap_or(i64::MAX);
                clock::unix_ms().saturating_add(life_ms)
            };
            let expires_ms = life.as_ref().map(until);
            for info in &result.blobs {
                go_on()?;
                let tag = Tag {
                    name: name.clone(),
                    blob: info.blob,
                    expires_ms,
                };
                self.store.tag(tag).await.map_err(ShapeError::Store)?;
            }
        }
        Ok(result)
    }
}

impl fmt::Debug for Shaping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shaping").finish_non_exhaustive()
    }
}

/// The long strings of a result by their markers, once all of them are written.
async fn gathered(strings: Vec<LongString>) -> Result<Vec<(String, Spooled)>, ShapeError> {
    let mut gathered = Vec::with_capacity(strings.len());
    for string in strings {
        let marker = string.marker();
        let lost = || lost("the thread that wrote it");
        let outcome = string.spooled().await.ok_or_else(lost)?;
        let outcome = outcome.into_any().downcast::<Outcome>().map_err(|_| lost())?;
        gathered.push((marker, outcome.0?));
    }
    Ok(gathered)
}

const LATE: ShapeError = ShapeError::Late { after: WITHIN };

/// For where `worker` panicked, or went with the runtime.
fn lost(worker: &str) -> ShapeError {
    ShapeError::Lost(format!("{worker} came to nothing"))
}

fn no_place() -> ShapeError {
    ShapeError::Lost("its server has no place in this hub".to_owned())
}

#[cfg(test)]
#[path = "../../tests/shared/odd_store.rs"]
mod odd_store;

#[cfg(test)]
mod tests;
