//! Servers that talk unasked, on and on.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::{
    io::ReadBuf,
    time::{Instant, sleep},
};

use super::*;

/// So many reads end it: one that is read without a pause comes to its end in a test, not to none.
const MOST_READS: usize = 100_000;

/// What says `line` whenever it is asked, with how often it was.
struct Chatter {
    line: &'static str,
    reads: Arc<AtomicUsize>,
}

impl AsyncRead for Chatter {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.reads.fetch_add(1, Ordering::Relaxed) < MOST_READS {
            buffer.put_slice(self.line.as_bytes());
        }
        Poll::Ready(Ok(()))
    }
}

fn transport(line: &'static str, closed: &CancellationToken) -> (StdioTransport<Chatter>, Arc<AtomicUsize>) {
    let reads = Arc::<AtomicUsize>::default();
    let chatter = Chatter {
        line,
        reads: Arc::clone(&reads),
    };
    let transport = StdioTransport::new(chatter, sink(), Arc::default(), closed.clone());
    (transport, reads)
}

async fn listen(transport: &mut StdioTransport<Chatter>) {
    while transport.receive().await.is_some() {}
}

#[tokio::test(start_paused = true)]
async fn who_talks_unasked_is_read_now_and_then() {
    // Blank lines, more of them than a piece of a long reply is small.
    let blank: &'static str = Box::leak("\r\n".repeat(2_048).into_boxed_str());
    for line in [
        blank,
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/made_up\"}\n",
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n",
        "INFO listening\n",
        "\n",
        ".",
    ] {
        let (mut transport, reads) = transport(line, &CancellationToken::new());
        let second = timeout(Duration::from_secs(1), listen(&mut transport));
        second.await.expect_err("the server never ends");
        let reads = reads.load(Ordering::Relaxed);
        assert!((100..1_000).contains(&reads), "`{line}` was read {reads} times");
    }
}

#[tokio::test(start_paused = true)]
async fn who_talks_unasked_does_not_keep_its_connection_from_ending() {
    let closed = CancellationToken::new();
    let (mut transport, _) = transport("INFO listening\n", &closed);
    let ended = tokio::spawn(async move {
        listen(&mut transport).await;
        Instant::now()
    });
    sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    closed.cancel();
    assert_eq!(ended.await.unwrap(), began);
}
