use std::{future::poll_fn, task::Poll};

use futures::{FutureExt, future::join_all, poll};
use portcullis_blobs::{FsOptions, FsStore, MemStore};
use tokio::{runtime::Builder, task::yield_now};

use super::{odd_store::OddStore, *};
use crate::shape::shape;

const PATIENCE: Duration = Duration::from_secs(30);
const SMALL_AT_ONCE: usize = AT_ONCE as usize;
const LARGE_AT_ONCE: usize = (AT_ONCE / PLACES_OF_LARGE) as usize;
const SLOW: &[u8] = b"slow";
const QUICK: &[u8] = b"quick";

fn server(name: &str) -> ServerId {
    name.parse().unwrap()
}

/// For the results of the servers `a` and `b`.
fn shaping(store: &Arc<dyn BlobStore>) -> Shaping {
    let servers = [server("a"), server("b")];
    Shaping::new(servers.iter(), Arc::clone(store), ShapeOptions::default(), None)
}

/// A store where what begins with `slow` waits.
fn gated() -> (OddStore, Arc<dyn BlobStore>) {
    let gated = OddStore::new(|content| content.starts_with(SLOW));
    (gated.clone(), Arc::new(gated))
}

/// A result of so many pictures, none like another, each of which begins with `start`; and of so many bytes of text.
fn pictures(start: &[u8], numbers: std::ops::Range<usize>, text_bytes: usize) -> RawReply {
    let picture = |number: usize| {
        let bytes = [start, number.to_string().as_bytes()].concat();
        let data = base64_simd::STANDARD.encode_to_string(bytes);
        format!(r#"{{"type":"image","data":"{data}"}},"#)
    };
    let pictures: String = numbers.map(picture).collect();
    let text = "x".repeat(text_bytes);
    RawReply {
        json: format!(r#"{{"content":[{pictures}{{"type":"text","text":"{text}"}}]}}"#),
        strings: Vec::new(),
    }
}

/// Lets all go on that can, on a runtime of one thread.
async fn quiet() {
    for _ in 0..1_000 {
        yield_now().await;
    }
}

#[tokio::test]
async fn what_is_large_does_not_keep_the_thread_and_comes_out_the_same() {
    let store: Arc<dyn BlobStore> = Arc::new(MemStore::default());
    let (shaping, a) = (shaping(&store), server("a"));
    for (size, at_once) in [(1_000, true), (2 << 20, false)] {
        let reply = pictures(QUICK, 0..0, size);
        let raw = reply.json.clone();
        let mut shaped = Box::pin(shaping.shape(&a, reply));
        // Where nothing is stored, what is shaped here is done with the first poll.
        let first = poll!(&mut shaped);
        assert_eq!(first.is_ready(), at_once, "{size}");
        let shaped = match first {
            Poll::Ready(shaped) => shaped,
            Poll::Pending => shaped.await,
        };
        let expected = shape(&raw, store.as_ref(), &ShapeOptions::default())
            .await
            .unwrap();
        assert_eq!(shaped.unwrap().result.get(), expected.result.get());
    }
}

/// Under the hub's name, from when it was stored, for as long as that says.
#[tokio::test]
async fn what_is_stored_is_kept_for_as_long_as_it_is_said() {
    let (a, hour_ms) = (server("a"), 3_600_000);
    for life in [None, Some(Duration::from_secs(3_600))] {
        let store: Arc<dyn BlobStore> = Arc::new(MemStore::default());
        let tag = BlobTag {
            name: portcullis_blobs::TagName::session("x").unwrap(),
            life,
        };
        let options = ShapeOptions::default();
        let shaping = Shaping::new([&a].into_iter(), Arc::clone(&store), options, Some(tag));
        let before = clock::unix_ms();
        shaping.shape(&a, pictures(QUICK, 0..1, 0)).await.unwrap();
        let [tag] = store.tags().await.unwrap().try_into().unwrap();
        match life {
            None => assert_eq!(tag.expires_ms, None),
            Some(_) => {
                let ends = before + hour_ms..=clock::unix_ms() + hour_ms;
                assert!(ends.contains(&tag.expires_ms.unwrap()), "{tag:?}");
            }
        }
    }
}

/// However few threads the host's runtime has for what may block, the store gets one while results are shaped.
#[test]
fn a_runtime_with_one_thread_for_such_work_shapes_what_is_large() {
    let folder = tempfile::tempdir().unwrap();
    let store = FsStore::open(&folder.path().join("blobs"), FsOptions::default()).unwrap();
    let store: Arc<dyn BlobStore> = Arc::new(store);
    let (shaping, a) = (shaping(&store), server("a"));
    let reply = pictures(&vec![0; LARGE_BYTES], 0..1, 0);
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_time().max_blocking_threads(1).build().unwrap();
    let shaped = runtime.block_on(async { timeout(PATIENCE, shaping.shape(&a, reply)).await });
    // One that waits would be waited for.
    runtime.shutdown_background();
    assert_eq!(shaped.unwrap().unwrap().blobs.len(), 1);
}

/// Each call of one server has its result or an error in time, however many there are. What waits for nothing of the store
/// is handed on meanwhile, and other servers have places of their own.
#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_fails_results_in_time_and_no_other_servers() {
    let (gated, store) = gated();
    let (shaping, a, b) = (shaping(&store), server("a"), server("b"));
    let began = tokio::time::Instant::now();
    let slow = (0..3 * SMALL_AT_ONCE).map(|number| shaping.shape(&a, pictures(SLOW, number..number + 1, 0)));
    let mut slow = Box::pin(join_all(slow));
    assert!(poll!(&mut slow).is_pending());
    quiet().await;
    assert_eq!(gated.waiting(), SMALL_AT_ONCE);
    shaping
        .shape(&a, pictures(SLOW, 0..0, 1_000))
        .now_or_never()
        .unwrap()
        .unwrap();
    let quick = shaping.shape(&b, pictures(QUICK, 0..1, 0)).await.unwrap();
    assert_eq!(quick.blobs.len(), 1);

    for late in timeout(2 * WITHIN, slow).await.unwrap() {
        let told = late.unwrap_err().to_string();
        assert!(
            told.contains("the tool was called") && told.contains("within 120 s"),
            "{told}"
        );
    }
    assert_eq!(began.elapsed(), WITHIN);
    // What hangs keeps its place, so that there is never more of it.
    quiet().await;
    assert_eq!(gated.most_waiting(), SMALL_AT_ONCE);
    gated.open();
    shaping.shape(&a, pictures(SLOW, 0..1, 0)).await.unwrap();
}

/// The same of results that have threads of their own.
#[tokio::test]
async fn large_results_of_one_server_do_not_hold_up_another() {
    let (gated, store) = gated();
    let (shaping, a, b) = (shaping(&store), server("a"), server("b"));
    let slow = (0..3 * LARGE_AT_ONCE)
        .map(|number| shaping.shape(&a, pictures(SLOW, number..number + 1, LARGE_BYTES)));
    let mut slow = Box::pin(join_all(slow));
    let all_there = poll_fn(|context| {
        assert!(slow.poll_unpin(context).is_pending());
        context.waker().wake_by_ref();
        if gated.waiting() < LARGE_AT_ONCE {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    });
    timeout(PATIENCE, all_there).await.unwrap();
    for number in 0..LARGE_AT_ONCE {
        let quick = shaping.shape(&b, pictures(QUICK, number..number + 1, LARGE_BYTES));
        assert_eq!(timeout(PATIENCE, quick).await.unwrap().unwrap().blobs.len(), 2);
    }
    gated.open();
    for shaped in timeout(PATIENCE, slow).await.unwrap() {
        assert_eq!(shaped.unwrap().blobs.len(), 2);
    }
    assert_eq!(gated.most_waiting(), LARGE_AT_ONCE);
}

/// However many servers there are, and though all of them have places: memory is the hub's.
#[tokio::test]
async fn large_results_of_all_servers_share_the_memory_for_looking_through() {
    let store: Arc<dyn BlobStore> = Arc::new(MemStore::default());
    let (shaping, a, b) = (shaping(&store), server("a"), server("b"));
    let memory = &shaping.looked_through;
    let mut others = Vec::new();
    for _ in 0..LOOKED_THROUGH {
        others.push(memory.acquire().now_or_never().unwrap().unwrap());
    }
    let large = [&a, &b].map(|server| shaping.shape(server, pictures(QUICK, 0..1, LARGE_BYTES)));
    let mut large = Box::pin(join_all(large));
    assert!(poll!(&mut large).is_pending());
    // What is small takes none of it.
    let small = shaping.shape(&a, pictures(QUICK, 1..2, 0));
    timeout(PATIENCE, small).await.unwrap().unwrap();

    // The next two rooms are theirs, until they are looked through.
    let mut next = Box::pin(memory.acquire());
    assert!(poll!(&mut next).is_pending());
    others.truncate(LOOKED_THROUGH - 2);
    assert!(poll!(&mut next).is_pending());
    for shaped in timeout(PATIENCE, large).await.unwrap() {
        assert_eq!(shaped.unwrap().blobs.len(), 2);
    }
    assert!(poll!(&mut next).is_ready());
}

/// With as many servers as it takes for all to hang that the hub looks through at a time, and one more.
#[tokio::test]
async fn what_hangs_in_the_store_takes_none_of_that_memory() {
    let (gated, store) = gated();
    let names: Vec<ServerId> = (0..=LOOKED_THROUGH / LARGE_AT_ONCE)
        .map(|number| server(&format!("s{number}")))
        .collect();
    let shaping = Shaping::new(names.iter(), store, ShapeOptions::default(), None);
    let (last, hanging) = names.split_last().unwrap();
    let slow = hanging.iter().flat_map(|server| {
        let pictures = |number| pictures(SLOW, number..number + 1, LARGE_BYTES);
        (0..LARGE_AT_ONCE).map(move |number| (server, pictures(number)))
    });
    let slow = slow.map(|(server, reply)| shaping.shape(server, reply));
    let mut slow = Box::pin(join_all(slow));
    let all_there = poll_fn(|context| {
        assert!(slow.poll_unpin(context).is_pending());
        context.waker().wake_by_ref();
        if gated.waiting() < LOOKED_THROUGH {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    });
    timeout(PATIENCE, all_there).await.unwrap();
    let quick = shaping.shape(last, pictures(QUICK, 0..1, LARGE_BYTES));
    timeout(PATIENCE, quick).await.unwrap().unwrap();
}

/// A store that panics costs one result, whose call says that it was carried out.
#[tokio::test]
async fn where_the_work_on_a_result_panics_the_call_is_said_to_be_done() {
    let store: Arc<dyn BlobStore> = Arc::new(OddStore::new(|_| panic!("this store comes to grief")));
    let (shaping, a) = (shaping(&store), server("a"));
    for text_bytes in [0, LARGE_BYTES] {
        // More than there are places for.
        for _ in 0..=SMALL_AT_ONCE {
            let shaped = shaping.shape(&a, pictures(QUICK, 0..1, text_bytes));
            let told = timeout(PATIENCE, shaped).await.unwrap().unwrap_err().to_string();
            assert_eq!(
                told,
                "the tool was called, but its result, or a long string of it, was lost: what shaped or stored it came to nothing"
            );
        }
    }
}

/// Nothing is stored for a caller that has gone but what was on its way already.
#[tokio::test]
async fn a_result_that_nobody_waits_for_is_stored_no_further() {
    for text_bytes in [0, LARGE_BYTES] {
        let (gated, store) = gated();
        let (shaping, a) = (shaping(&store), server("a"));
        let mut shaped = Box::pin(shaping.shape(&a, pictures(SLOW, 0..3, text_bytes)));
        let on_its_way = poll_fn(|context| {
            assert!(shaped.poll_unpin(context).is_pending());
            context.waker().wake_by_ref();
            if gated.waiting() == 0 {
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        });
        timeout(PATIENCE, on_its_way).await.unwrap();
        drop(shaped);
        gated.open();
        let places = Arc::clone(&shaping.places[&a]);
        let done = places.acquire_many_owned(AT_ONCE);
        let _all = timeout(PATIENCE, done).await.unwrap().unwrap();
        // A reply that is spilled goes first.
        let expected = if text_bytes == 0 { 1 } else { 2 };
        assert_eq!(store.stats().await.unwrap().blobs, expected, "{text_bytes}");
    }
}
