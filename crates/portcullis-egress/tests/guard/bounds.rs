use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use portcullis_egress::{EgressError, Limits};
use tokio::io::AsyncWriteExt;

use crate::server::{Script, Server, builder, get, gzipped, ok, short};

/// Many lines of headers at once, so that what stops them is their size and not the time that they take.
static LINES: &[u8] = &{
    let (line, mut lines, mut at) = (*b"x-filler: yyyy\r\n", [0; 16 * 1024], 0);
    while at < lines.len() {
        lines[at] = line[at % line.len()];
        at += 1;
    }
    lines
};

/// Asks once and reads all of the answer.
async fn fetch(server: &Server, limits: Limits) -> Result<bytes::Bytes, EgressError> {
    let client = builder(&[format!("http://{}", server.address)])
        .limits(limits)
        .build()
        .unwrap();
    client.send(get(server.url("/"))).await?.bytes().await
}

/// Sends `head`, then `piece` again and again.
fn endless(head: &'static str, piece: &'static [u8], pause: Duration) -> Script {
    Arc::new(move |_, mut stream| {
        Box::pin(async move {
            let mut sent = stream.write_all(head.as_bytes()).await;
            while sent.is_ok() {
                tokio::time::sleep(pause).await;
                sent = stream.write_all(piece).await;
            }
        })
    })
}

#[tokio::test]
async fn a_plain_and_a_compressed_body_come_whole() {
    let text = "so it is ".repeat(10_000);
    for answer in [ok(&text), gzipped(text.as_bytes())] {
        let server = Server::answering(move |_| answer.clone()).await;
        assert_eq!(fetch(&server, Limits::default()).await.unwrap(), text.as_bytes());
        assert_eq!(server.seen()[0].header("accept-encoding"), Some("gzip"));
    }
    // What is said to be compressed, and is nothing at all.
    let nothing = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 0\r\n\r\n";
    let server = Server::answering(|_| nothing.to_vec()).await;
    assert_eq!(fetch(&server, short()).await.unwrap(), "");
}

#[tokio::test]
async fn a_bomb_is_stopped_while_it_unpacks() {
    // 16 MiB of zeros in 16 KiB.
    let bomb = gzipped(&vec![0; 16 << 20]);
    assert!(bomb.len() < 256 << 10);
    let server = Server::answering(move |_| bomb.clone()).await;
    let limits = Limits {
        decoded_bytes: 1 << 20,
        ..short()
    };
    let client = builder(&[format!("http://{}", server.address)])
        .limits(limits)
        .build()
        .unwrap();
    let whole = client.send(get(server.url("/"))).await.unwrap().bytes().await;
    let pieces = client.send(get(server.url("/"))).await.unwrap().into_pieces();
    let pieces: Vec<_> = pieces.collect().await;
    for error in [whole.err(), pieces.into_iter().find_map(Result::err)] {
        assert!(
            matches!(
                &error,
                Some(error @ EgressError::DecodedTooLarge { limit_bytes: 1_048_576, .. }) if !error.is_not_sent()
            ),
            "{error:?}"
        );
    }
}

/// What has come in one piece and grows to hundreds of MiB would hold up whoever shares the thread.
#[tokio::test]
async fn while_a_body_unpacks_others_have_their_turn() {
    let bomb = gzipped(&vec![0; 64 << 20]);
    let server = Server::answering(move |_| bomb.clone()).await;
    let turns = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&turns);
    tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
        }
    });
    let client = builder(&[format!("http://{}", server.address)]).build().unwrap();
    let pieces = client.send(get(server.url("/"))).await.unwrap().into_pieces();
    let mut pieces = std::pin::pin!(pieces);
    let (mut large, mut before) = (0, 0);
    while let Some(piece) = pieces.next().await {
        let now = turns.load(Ordering::SeqCst);
        if piece.unwrap().len() > 256 << 10 {
            assert!(now > before, "no turn after piece {large}");
            large += 1;
        }
        before = now;
    }
    assert!(large > 4, "{large}");
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused_announced_or_not() {
    let limits = Limits {
        body_bytes: 1000,
        ..short()
    };
    let announced = Server::answering(|_| ok(&"x".repeat(1001))).await;
    let endless = Server::scripted(endless("HTTP/1.1 200 OK\r\n\r\n", &[b'x'; 700], Duration::ZERO)).await;
    for server in [announced, endless] {
        let error = fetch(&server, limits).await.unwrap_err();
        assert!(
            matches!(
                error,
                EgressError::BodyTooLarge {
                    limit_bytes: 1000,
                    ..
                }
            ),
            "{error:?}"
        );
    }
    let exact = Server::answering(|_| ok(&"x".repeat(1000))).await;
    assert_eq!(fetch(&exact, limits).await.unwrap().len(), 1000);
}

#[tokio::test]
async fn broken_and_unknown_encodings_are_said() {
    let mut cut = gzipped(b"a text that is long enough to be cut");
    cut.truncate(cut.len() - 9);
    let length = cut.len();
    let cut = String::from_utf8_lossy(&cut)
        .contains("gzip")
        .then_some(cut)
        .unwrap();
    // Without a length, so that the end of the connection is the end of the body.
    let head_end = cut.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let mut open = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n".to_vec();
    open.extend_from_slice(&cut[head_end..length]);
    let brotli =
        b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 1\r\nconnection: close\r\n\r\nx"
            .to_vec();
    for (answer, part) in [(open, "broken"), (brotli, "`br`")] {
        let server = Server::answering(move |_| answer.clone()).await;
        let error = fetch(&server, short()).await.unwrap_err();
        assert!(
            matches!(
                error,
                EgressError::Encoding { .. } | EgressError::UnknownEncoding { .. }
            ) && error.to_string().contains(part),
            "{error}"
        );
    }
}

#[tokio::test]
async fn headers_are_bounded_many_or_endless() {
    let many = Server::answering(|_| {
        let lines = format!("x-filler: {}\r\n", "y".repeat(2000)).repeat(40);
        format!("HTTP/1.1 200 OK\r\n{lines}content-length: 0\r\n\r\n").into_bytes()
    })
    .await;
    let endless = Server::scripted(endless("HTTP/1.1 200 OK\r\n", LINES, Duration::ZERO)).await;
    for server in [many, endless] {
        let error = fetch(
            &server,
            Limits {
                first_byte: Duration::from_secs(20),
                total: Duration::from_secs(20),
                ..short()
            },
        );
        let error = error.await.unwrap_err();
        assert!(matches!(error, EgressError::HeadersTooLarge { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn silence_before_and_within_an_answer_ends_it() {
    let silent: Script = Arc::new(|_, stream| {
        Box::pin(async move {
            let _held = stream;
            std::future::pending::<()>().await;
        })
    });
    let silent = Server::scripted(silent).await;
    let error = fetch(&silent, short()).await.unwrap_err();
    assert!(matches!(error, EgressError::FirstByte { .. }), "{error:?}");
    assert!(!error.is_not_sent(), "the request went out");

    let half: Script = Arc::new(|_, mut stream| {
        Box::pin(async move {
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")
                .await;
            std::future::pending::<()>().await;
        })
    });
    let half = Server::scripted(half).await;
    let error = fetch(&half, short()).await.unwrap_err();
    assert!(matches!(error, EgressError::Idle { .. }), "{error:?}");
}

#[tokio::test]
async fn a_dripping_body_ends_with_the_whole_exchange() {
    // Each drop comes in time, the whole does not.
    let server = Server::scripted(endless(
        "HTTP/1.1 200 OK\r\n\r\n",
        b".",
        Duration::from_millis(50),
    ))
    .await;
    let limits = Limits {
        total: Duration::from_millis(400),
        ..short()
    };
    let error = fetch(&server, limits).await.unwrap_err();
    assert!(matches!(error, EgressError::Total { .. }), "{error:?}");
    // A stream may drip as long as it likes: the fifth drop comes after the total is over.
    let client = builder(&[format!("http://{}", server.address)])
        .limits(Limits {
            total: Duration::from_millis(100),
            first_byte: Duration::from_millis(100),
            ..short()
        })
        .build()
        .unwrap();
    let stream = client
        .send(get(server.url("/")))
        .await
        .unwrap()
        .into_stream(Some(Duration::from_secs(2)));
    let drops: Vec<_> = stream.take(5).collect().await;
    assert!(drops.iter().all(Result::is_ok), "{drops:?}");
}

/// Whoever may wait longer for the head of an answer has as long for all of it, and is told so.
#[tokio::test]
async fn an_answer_may_take_as_long_as_its_head_might_have() {
    let drops = endless("HTTP/1.1 200 OK\r\n\r\n", b".", Duration::from_millis(50));
    let server = Server::scripted(drops).await;
    let limits = Limits {
        total: Duration::from_millis(100),
        ..short()
    };
    let client = builder(&[format!("http://{}", server.address)])
        .limits(limits)
        .build()
        .unwrap();
    let mut request = get(server.url("/"));
    request.first_byte = Some(Duration::from_millis(400));
    let error = client.send(request).await.unwrap().bytes().await.unwrap_err();
    assert!(error.to_string().ends_with("within 400 ms"), "{error}");
}

/// The status has said already that something is wrong.
#[tokio::test]
async fn the_rest_of_an_error_page_is_not_waited_for_without_end() {
    let half: Script = Arc::new(|_, mut stream| {
        Box::pin(async move {
            let _ = stream
                .write_all(b"HTTP/1.1 500 Oops\r\ncontent-length: 10\r\n\r\nhalf")
                .await;
            std::future::pending::<()>().await;
        })
    });
    let server = Server::scripted(half).await;
    let client = builder(&[format!("http://{}", server.address)]).build().unwrap();
    let answer = client.send(get(server.url("/"))).await.unwrap();
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    assert_eq!(answer.prefix(100).await, b"half");
    assert!(began.elapsed() < Duration::from_secs(11), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_compressed_stream_gives_each_event_as_it_comes() {
    use std::io::Write;
    let script: Script = Arc::new(|_, mut stream| {
        Box::pin(async move {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            gzip.write_all(b"data: 1\n\n").unwrap();
            gzip.flush().unwrap();
            let first = gzip.get_ref().clone();
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n")
                .await;
            let _ = stream.write_all(&first).await;
            std::future::pending::<()>().await;
        })
    });
    let server = Server::scripted(script).await;
    let client = builder(&[format!("http://{}", server.address)])
        .limits(short())
        .build()
        .unwrap();
    let stream = client
        .send(get(server.url("/")))
        .await
        .unwrap()
        .into_stream(Some(Duration::from_millis(300)));
    let mut stream = std::pin::pin!(stream);
    assert_eq!(stream.next().await.unwrap().unwrap(), "data: 1\n\n");
    assert!(matches!(stream.next().await, Some(Err(EgressError::Idle { .. }))));
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn a_connection_that_is_not_made_is_known_as_not_sent() {
    // A port that nobody listens on any more.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = builder(&[format!("http://{address}")])
        .limits(short())
        .build()
        .unwrap();
    let url = url::Url::parse(&format!("http://{address}/?token=hidden")).unwrap();
    let error = client.send(get(url)).await.unwrap_err();
    assert!(
        matches!(error, EgressError::Connect { .. }) && error.is_not_sent(),
        "{error:?}"
    );
    assert!(!format!("{error:?}").contains("hidden"), "{error:?}");

    // A server that reads the request and hangs up may have done anything.
    let rude = Server::scripted(Arc::new(|_, stream| Box::pin(async move { drop(stream) }))).await;
    let error = fetch(&rude, short()).await.unwrap_err();
    assert!(
        matches!(error, EgressError::Exchange { .. }) && !error.is_not_sent(),
        "{error:?}"
    );
    assert_eq!(rude.seen().len(), 1, "it is never sent twice");
}

#[tokio::test]
async fn a_server_without_tls_gets_nothing_over_https() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let client = builder(&[format!("https://{address}")]).build().unwrap();
    let url = url::Url::parse(&format!("https://{address}/")).unwrap();
    let error = client.send(get(url)).await.unwrap_err();
    // Where the machine has no root certificates, nothing is even tried.
    assert!(
        matches!(error, EgressError::Connect { .. } | EgressError::NoRoots { .. }),
        "{error:?}"
    );
    assert!(error.is_not_sent());
}
