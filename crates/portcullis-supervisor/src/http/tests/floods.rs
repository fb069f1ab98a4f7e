//! Servers that ask on and on.

use portcullis_config::Protocol;

use super::{
    supervised::{Hub, initialized},
    *,
};

/// So many requests of its own a server sends on its stream of events.
const ASKED: usize = 20_000;

/// A server of the older era that sends `ask` over and over, with a number for `ID`, and takes no answer to it.
async fn asking(ask: &'static str) -> (SocketAddr, Arc<Mutex<usize>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answers = Arc::<Mutex<usize>>::default();
    let counted = Arc::clone(&answers);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                let Some(request) = request_of(&mut stream).await else {
                    return;
                };
                if request.starts_with("GET") {
                    let head = format!("HTTP/1.1 200 OK\r\n{EVENTS}\r\nconnection: close\r\n\r\n");
                    stream.write_all(head.as_bytes()).await.unwrap();
                    for number in 0..ASKED {
                        let event = format!("data: {}\n\n", ask.replace("ID", &number.to_string()));
                        if stream.write_all(event.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                } else if request.contains(r#""method":"initialize""#) {
                    let kind = format!("{JSON}\r\nmcp-session-id: s");
                    let whole = reply("200 OK", &kind, initialized(&request).as_bytes());
                    stream.write_all(&whole).await.unwrap();
                    return;
                } else if request.contains("\"method\":") || request.starts_with("DELETE") {
                    stream.write_all(&legacy(&request)).await.unwrap();
                    return;
                } else {
                    *counted.lock().unwrap() += 1;
                }
                // Neither an answer nor an end.
                std::future::pending::<()>().await;
            });
        }
    });
    (address, answers)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_asks_on_and_on_and_takes_no_answer_is_given_up() {
    let (address, _) = asking(r#"{"jsonrpc":"2.0","id":ID,"method":"ping"}"#).await;
    let mut hub = Hub::new(spec(address), Protocol::Initialize).await;
    hub.state("ready").await;
    let reason = hub.state("backing_off").await;
    assert!(reason.contains("does not take the answers"), "{reason}");
}

/// What the SDK never sees is answered a few at a time, and not at all beyond that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_requests_that_cannot_be_read_a_few_are_answered_at_once() {
    let ask = r#"{"jsonrpc":"2.0","id":ID,"method":"elicitation/create","params":7}"#;
    let (address, answers) = asking(ask).await;
    let mut hub = Hub::new(spec(address), Protocol::Initialize).await;
    hub.state("ready").await;
    let dropped = async {
        while hub
            .supervisor
            .upstream(&"s".parse().unwrap())
            .unwrap()
            .dropped()
            .noise
            < 10_000
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::supervised::WAIT, dropped)
        .await
        .unwrap();
    let answers = *answers.lock().unwrap();
    assert!((1..=16).contains(&answers), "{answers}");
}
