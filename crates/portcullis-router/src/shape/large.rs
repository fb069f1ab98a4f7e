//! Shaping what is large away from the threads that serve everybody.

use std::{sync::Arc, thread};

use portcullis_blobs::{BlobError, BlobStore};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, oneshot},
};

use portcullis_supervisor::RawReply;

use super::{ShapeError, ShapeOptions, ShapedResult, shape, shape_with, spooled::Spools};
use crate::spool::Outcome;

/// From which size on, in bytes of its JSON, a result is shaped on a thread of its own: below that it takes less
/// than a millisecond.
const LARGE_BYTES: usize = 512 << 10;

/// How many are shaped so at a time.
static AT_ONCE: Semaphore = Semaphore::const_new(8);

/// As [`shape`], never keeping the calling thread for long.
async fn shape_any(
    raw_result: String,
    store: &Arc<dyn BlobStore>,
    options: &ShapeOptions,
) -> Result<ShapedResult, ShapeError> {
    if raw_result.len() < LARGE_BYTES {
        return shape(&raw_result, store.as_ref(), options).await;
    }
    shape_apart(raw_result, Spools::default(), store, options).await
}

/// The same of a result whose long strings have left it.
pub(crate) async fn shape_reply(
    reply: RawReply,
    store: &Arc<dyn BlobStore>,
    options: &ShapeOptions,
) -> Result<ShapedResult, ShapeError> {
    if reply.strings.is_empty() {
        return shape_any(reply.json, store, options).await;
    }
    let mut strings = Vec::with_capacity(reply.strings.len());
    for string in reply.strings {
        let marker = string.marker();
        let lost = || ShapeError::Lost("the thread that wrote it came to nothing".to_owned());
        let outcome = string.spooled().await.ok_or_else(lost)?;
        let outcome = outcome.into_any().downcast::<Outcome>().map_err(|_| lost())?;
        strings.push((marker, outcome.0?));
    }
    shape_apart(reply.json, Spools::new(strings), store, options).await
}

/// Shapes on a thread that may block. It is none of the runtime's: it waits for the store, which needs one of those, and
/// a host may have few of them.
async fn shape_apart(
    json: String,
    mut spools: Spools,
    store: &Arc<dyn BlobStore>,
    options: &ShapeOptions,
) -> Result<ShapedResult, ShapeError> {
    let stopping = || ShapeError::Store(BlobError::NoRuntime);
    let permit = AT_ONCE.acquire().await.map_err(|_| stopping())?;
    let (store, options, runtime) = (Arc::clone(store), *options, Handle::current());
    let (tell, shaped) = oneshot::channel();
    let shaping = move || {
        // Held until it is done, also where nobody waits for it any more.
        let _permit = permit;
        let result = spools
            .prepare(json)
            .and_then(|json| runtime.block_on(shape_with(&json, spools, store.as_ref(), &options)));
        let _ = tell.send(result);
    };
    let thread = thread::Builder::new().name("large result".to_owned());
    thread.spawn(shaping).map_err(ShapeError::Thread)?;
    shaped.await.map_err(|_| stopping())?
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::poll;
    use portcullis_blobs::{FsOptions, FsStore, MemStore};
    use tokio::{runtime::Builder, time::timeout};

    use super::*;

    #[tokio::test]
    async fn what_is_large_does_not_keep_the_thread_and_comes_out_the_same() {
        let store: Arc<dyn BlobStore> = Arc::new(MemStore::default());
        let options = ShapeOptions::default();
        for (size, at_once) in [(1_000, true), (2 << 20, false)] {
            let raw = format!(
                r#"{{"content":[{{"type":"text","text":"{}"}}],"_meta":{{}}}}"#,
                "x".repeat(size)
            );
            let mut shaping = Box::pin(shape_any(raw.clone(), &store, &options));
            // A store in memory never waits, so what is shaped here is done with the first poll.
            let first = poll!(&mut shaping);
            assert_eq!(first.is_ready(), at_once, "{size}");
            let shaped = match first {
                std::task::Poll::Ready(shaped) => shaped,
                std::task::Poll::Pending => shaping.await,
            };
            let expected = shape(&raw, store.as_ref(), &options).await.unwrap();
            assert_eq!(shaped.unwrap().result.get(), expected.result.get());
        }
    }

    /// However few threads the host's runtime has for what may block, the store gets one while results are shaped.
    #[test]
    fn a_runtime_with_one_thread_for_such_work_shapes_what_is_large() {
        let folder = tempfile::tempdir().unwrap();
        let store = FsStore::open(&folder.path().join("blobs"), FsOptions::default()).unwrap();
        let store: Arc<dyn BlobStore> = Arc::new(store);
        let text = base64_simd::STANDARD.encode_to_string(vec![0; LARGE_BYTES]);
        let raw = format!(r#"{{"content":[{{"type":"image","data":"{text}"}}]}}"#);
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_time().max_blocking_threads(1).build().unwrap();
        let options = ShapeOptions::default();
        let shaping = async { timeout(Duration::from_secs(30), shape_any(raw, &store, &options)).await };
        let shaped = runtime.block_on(shaping);
        // One that waits would be waited for.
        runtime.shutdown_background();
        assert_eq!(shaped.unwrap().unwrap().blobs.len(), 1);
    }
}
