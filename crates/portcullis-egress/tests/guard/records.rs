use std::sync::{Arc, Mutex};

use portcullis_egress::{EgressCounters, EgressLog, EgressOutcome, EgressRecord, GuardedClient};
use tokio::{io::AsyncWriteExt, net::TcpListener};
use url::Url;

use crate::server::{Answers, Script, Server, builder, get, ok, redirect, short};

type Told = Arc<Mutex<Vec<EgressRecord>>>;

fn client(lines: &[String], answers: &[&str]) -> (GuardedClient, Told) {
    let told = Told::default();
    let all = Arc::clone(&told);
    let client = builder(lines)
        .limits(short())
        .resolver(Answers::new(answers))
        .log(EgressLog::new(move |record| all.lock().unwrap().push(record)))
        .build()
        .unwrap();
    (client, told)
}

/// Each record as `target rule address outcome`.
fn lines(told: &Told) -> Vec<String> {
    let all = std::mem::take(&mut *told.lock().unwrap());
    let line = |record: EgressRecord| {
        let outcome = match record.outcome {
            EgressOutcome::Allowed => "allowed".to_owned(),
            EgressOutcome::Refused(refusal) => refusal.code().to_owned(),
            EgressOutcome::Failed(_) => "failed".to_owned(),
        };
        let rule = record.rule.unwrap_or_else(|| "-".to_owned());
        let address = record.address.map_or_else(|| "-".to_owned(), |a| a.to_string());
        format!("{} {rule} {address} {outcome}", record.target)
    };
    all.into_iter().map(line).collect()
}

#[tokio::test]
async fn each_connection_is_told_once_and_each_refusal() {
    // Keeps its connection, so that the second request goes over the first one's.
    let script: Script = Arc::new(|_, mut stream| {
        Box::pin(async move {
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            let _ = stream.write_all(answer).await;
            let mut bytes = vec![0; 4096];
            while let Ok(1..) = tokio::io::AsyncReadExt::read(&mut stream, &mut bytes).await {
                let _ = stream.write_all(answer).await;
            }
        })
    });
    let server = Server::scripted(script).await;
    let port = server.address.port();
    let here = format!("http://127.0.0.1:{port}");
    let (client, told) = client(&[here.clone(), format!("http://name.test:{port}")], &["10.0.0.9"]);
    for _ in 0..3 {
        client
            .send(get(server.url("/")))
            .await
            .unwrap()
            .bytes()
            .await
            .unwrap();
    }
    assert_eq!(lines(&told), [format!("{here} {here}/ 127.0.0.1 allowed")]);

    let elsewhere = Url::parse("https://other.test/?secret").unwrap();
    assert!(client.send(get(elsewhere)).await.is_err());
    let inside = Url::parse(&format!("http://name.test:{port}/")).unwrap();
    assert!(client.send(get(inside)).await.is_err());
    assert_eq!(
        lines(&told),
        [
            "https://other.test:443 - - host_not_allowed".to_owned(),
            format!("http://name.test:{port} - 10.0.0.9 address_not_allowed"),
        ]
    );
    let counters = EgressCounters {
        requests: 4,
        connections: 1,
        refused: 2,
        failed: 0,
    };
    assert_eq!(client.log().counters(), counters);
}

#[tokio::test]
async fn each_hop_is_told() {
    let end = Server::answering(|_| ok("end")).await;
    let there = format!("http://{}", end.address);
    let to = format!("{there}/x");
    let start = Server::answering(move |_| redirect(307, &to)).await;
    let here = format!("http://{}", start.address);
    let (client, told) = client(&[here.clone(), there.clone()], &[]);
    client.send(get(start.url("/"))).await.unwrap();
    assert_eq!(
        lines(&told),
        [
            format!("{here} {here}/ 127.0.0.1 allowed"),
            format!("{there} {there}/ 127.0.0.1 allowed"),
        ]
    );
}

#[tokio::test]
async fn what_may_have_been_sent_is_told_and_what_was_not_as_failed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let here = format!("http://{address}");
    let (client, told) = client(std::slice::from_ref(&here), &[]);
    let url = Url::parse(&here).unwrap();
    // Connected, and never answered; then given up by the caller.
    assert!(client.send(get(url.clone())).await.is_err());
    let given_up = tokio::time::timeout(
        std::time::Duration::from_millis(50),
        client.send(get(url.clone())),
    );
    assert!(given_up.await.is_err());
    assert_eq!(lines(&told), vec![format!("{here} {here}/ - allowed"); 2]);
    drop(listener);
    assert!(client.send(get(url)).await.is_err());
    assert_eq!(lines(&told), [format!("{here} {here}/ - failed")]);
    assert_eq!(client.log().counters().failed, 1);
}

/// A redirect may lead to what the server was given, in the place of a host.
#[tokio::test]
async fn what_a_server_may_have_said_is_told_as_it_is_shown() {
    for (rule, outcome) in [
        ("http://other.test:1", "Refused"),
        ("http://canary.test:1", "Failed"),
    ] {
        let start = Server::answering(|_| redirect(307, "http://canary.test:1/")).await;
        let told = Arc::<Mutex<Vec<String>>>::default();
        let all = Arc::clone(&told);
        let log = EgressLog::new(move |mut record| {
            record.rule = None;
            all.lock().unwrap().push(format!("{record:?}"));
        });
        let client = builder(&[format!("http://{}", start.address), rule.to_owned()])
            .limits(short())
            .resolver(Answers::new(&[]))
            .log(log.showing(|said| said.replace("canary", "[shown]")))
            .build()
            .unwrap();
        assert!(client.send(get(start.url("/"))).await.is_err());
        let told = told.lock().unwrap().join("\n");
        assert!(
            told.contains(outcome) && told.contains("target: \"http://[shown].test:1\""),
            "{told}"
        );
        assert!(!told.contains("canary"), "{told}");
        // One log, whoever tells it.
        let counted = log.counters();
        assert_eq!((counted.refused + counted.failed, counted.connections), (1, 1));
    }
}
