use std::sync::{Arc, Mutex};

use portcullis_egress::EgressError;
use tokio::io::AsyncWriteExt;
use url::Url;

use crate::server::{Answers, Script, Server, Trap, builder, get, ok, short};

#[tokio::test]
async fn a_name_that_changes_its_answer_gains_nothing() {
    // 127.0.0.2 stands for the server that may be reached, 127.0.0.1 for what the name later says.
    let script: Script = Arc::new(|_, mut stream| {
        Box::pin(async move {
            let _ = stream.write_all(&ok("good")).await;
        })
    });
    let server = Server::at("127.0.0.2:0".parse().unwrap(), script).await;
    let port = server.address.port();
    let trap = Trap::at(&format!("127.0.0.1:{port}")).await;
    let lines = [
        format!("http://rebind.test:{port}"),
        format!("http://127.0.0.2:{port}"),
    ];
    let client = builder(&lines)
        .resolver(Answers::new(&["127.0.0.2", "127.0.0.1"]))
        .limits(short())
        .build()
        .unwrap();
    let url = Url::parse(&format!("http://rebind.test:{port}/")).unwrap();
    assert_eq!(
        client
            .send(get(url.clone()))
            .await
            .unwrap()
            .bytes()
            .await
            .unwrap(),
        "good"
    );
    for _ in 0..3 {
        let error = client.send(get(url.clone())).await.unwrap_err();
        assert_eq!(
            error.refusal().map(|refusal| refusal.code()),
            Some("address_not_allowed"),
            "{error:?}"
        );
        assert!(
            error
                .to_string()
                .contains(&format!("add `http://127.0.0.1:{port}/`"))
                || error.is_not_sent()
        );
    }
    assert_eq!(trap.connections().await, 0);
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_name_that_leads_inside_is_refused_whatever_the_family() {
    let trap = Trap::at("127.0.0.1:0").await;
    let port = trap.address.port();
    for address in [
        "127.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "0.0.0.0",
        "::",
        "10.0.0.1",
        "169.254.169.254",
        "fe80::1",
        "fc00::1",
        "224.0.0.1",
    ] {
        let client = builder(&[format!("http://inside.test:{port}")])
            .resolver(Answers::new(&[address]))
            .limits(short())
            .build()
            .unwrap();
        let url = Url::parse(&format!("http://inside.test:{port}/")).unwrap();
        let error = client.send(get(url)).await.unwrap_err();
        assert_eq!(
            error.refusal().map(|refusal| refusal.code()),
            Some("address_not_allowed"),
            "{address}: {error:?}"
        );
        assert!(error.is_not_sent());
    }
    assert_eq!(trap.connections().await, 0);
}

#[tokio::test]
async fn a_resolver_that_fails_refuses() {
    let client = builder(&["http://nowhere.test".to_owned()])
        .resolver(Answers(Mutex::new(vec![Err(std::io::Error::other(
            "the resolver is down",
        ))])))
        .build()
        .unwrap();
    let error = client
        .send(get(Url::parse("http://nowhere.test/").unwrap()))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, EgressError::Resolve { host, .. } if host == "http://nowhere.test:80"),
        "{error:?}"
    );
    assert!(error.is_not_sent());
}

#[tokio::test]
async fn localhost_is_reached_where_a_rule_names_it_and_only_there() {
    let server = Server::answering(|_| ok("local")).await;
    let port = server.address.port();
    let client = builder(&[format!("http://localhost:{port}")])
        .limits(short())
        .build()
        .unwrap();
    let url = Url::parse(&format!("http://localhost:{port}/")).unwrap();
    assert_eq!(
        client.send(get(url)).await.unwrap().bytes().await.unwrap(),
        "local"
    );
    // The same address by number is another host, and no rule names it.
    assert!(
        client
            .send(get(server.url("/")))
            .await
            .unwrap_err()
            .refusal()
            .is_some()
    );
    // A resolver that lies about localhost is not believed.
    let client = builder(&[format!("http://localhost:{port}")])
        .resolver(Answers::new(&["8.8.8.8"]))
        .build()
        .unwrap();
    let url = Url::parse(&format!("http://localhost:{port}/")).unwrap();
    assert!(client.send(get(url)).await.unwrap_err().refusal().is_some());
}
