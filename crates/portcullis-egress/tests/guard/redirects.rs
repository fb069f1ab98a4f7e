use http::{HeaderMap, HeaderValue, Method};
use portcullis_egress::{EgressError, GuardedRequest};
use url::Url;

use crate::server::{Server, Trap, builder, get, ok, redirect};

const SECRET: &str = "s3cret-value";

fn credentials() -> HeaderMap {
    let mut headers = HeaderMap::new();
    for name in ["authorization", "cookie", "x-api-key", "x-anything-configured"] {
        headers.insert(name, HeaderValue::from_static(SECRET));
    }
    headers
}

/// Posts with credentials to a server that redirects to `location`.
async fn post(status: u16, location: String, more_rules: &[String]) -> (Server, Result<String, EgressError>) {
    let first = Server::answering(move |_| redirect(status, &location)).await;
    let url = first.url("/mcp");
    let mut lines = vec![format!("http://{}", first.address)];
    lines.extend_from_slice(more_rules);
    let client = builder(&lines).credentials(&url, credentials()).build().unwrap();
    let mut request = GuardedRequest::new(Method::POST, url);
    request
        .headers
        .insert("mcp-session-id", HeaderValue::from_static(SECRET));
    request
        .headers
        .insert("content-type", HeaderValue::from_static("application/json"));
    request.body = "{\"a\":1}".into();
    let answer = match client.send(request).await {
        Ok(answer) => answer
            .bytes()
            .await
            .map(|body| String::from_utf8_lossy(&body).into_owned()),
        Err(error) => Err(error),
    };
    (first, answer)
}

#[tokio::test]
async fn credentials_reach_their_origin_and_never_another_one() {
    let second = Server::answering(|_| ok("second")).await;
    let (first, answer) = post(
        307,
        second.url("/next").into(),
        &[format!("http://{}", second.address)],
    )
    .await;
    assert_eq!(answer.unwrap(), "second");
    let home = first.seen().remove(0);
    for name in [
        "authorization",
        "cookie",
        "x-api-key",
        "x-anything-configured",
        "mcp-session-id",
    ] {
        assert_eq!(home.header(name), Some(SECRET), "{name}");
    }
    let away = second.seen().remove(0);
    assert!(!away.head.contains(SECRET), "{}", away.head);
    assert!(away.head.starts_with("POST /next "), "{}", away.head);
    assert_eq!(away.body, "{\"a\":1}");
    assert_eq!(away.header("content-type"), Some("application/json"));
}

#[tokio::test]
async fn credentials_are_for_their_origin_also_where_another_one_is_asked_first() {
    let (home, other) = (
        Server::answering(|_| ok("home")).await,
        Server::answering(|_| ok("other")).await,
    );
    let lines = [
        format!("http://{}", home.address),
        format!("http://{}", other.address),
    ];
    let client = builder(&lines)
        .credentials(&home.url("/mcp"), credentials())
        .build()
        .unwrap();
    for (server, given) in [(&other, false), (&home, true)] {
        client.send(get(server.url("/mcp"))).await.unwrap();
        assert_eq!(server.seen()[0].head.contains(SECRET), given);
    }
}

#[tokio::test]
async fn credentials_stay_within_their_origin() {
    let server = Server::answering(|seen| {
        if seen.path() == "/mcp" {
            redirect(308, "/new")
        } else {
            ok("new")
        }
    })
    .await;
    let url = server.url("/mcp");
    let client = builder(&[format!("http://{}", server.address)])
        .credentials(&url, credentials())
        .build()
        .unwrap();
    let mut request = GuardedRequest::new(Method::POST, url);
    request.body = "x".into();
    let answer = client.send(request).await.unwrap();
    assert_eq!(answer.url().path(), "/new");
    let seen = server.seen();
    assert_eq!(seen[1].header("authorization"), Some(SECRET));
    assert!(seen[1].head.starts_with("POST "));
}

#[tokio::test]
async fn credentials_do_not_come_back_from_another_origin() {
    // First to second and back again: the second origin chose the path, so nothing is vouched for.
    let second = Server::answering(|seen| {
        redirect(
            307,
            &format!("http://{}/back", seen.path().trim_start_matches('/')),
        )
    })
    .await;
    let address = second.address;
    let first = Server::answering(move |seen| match seen.path() {
        "/back" => ok("back"),
        _ => redirect(307, &format!("http://{address}/{}", seen.header("host").unwrap())),
    })
    .await;
    let url = first.url("/mcp");
    let lines = [
        format!("http://{}", first.address),
        format!("http://{}", second.address),
    ];
    let client = builder(&lines).credentials(&url, credentials()).build().unwrap();
    assert_eq!(
        client.send(get(url)).await.unwrap().bytes().await.unwrap(),
        "back"
    );
    assert!(!first.seen()[1].head.contains(SECRET));
}

#[tokio::test]
async fn a_redirect_that_no_rule_allows_connects_to_nobody() {
    let trap = Trap::at("127.0.0.1:0").await;
    let port = trap.address.port();
    for location in [
        format!("http://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/"),
        format!("//127.0.0.1:{port}/"),
        format!("https://127.0.0.1:{port}/"),
        format!("http://user@127.0.0.1:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        "ftp://127.0.0.1/".to_owned(),
        "file:///etc/passwd".to_owned(),
    ] {
        let (_, answer) = post(307, location.clone(), &[]).await;
        let error = answer.unwrap_err();
        assert!(error.refusal().is_some(), "{location}: {error:?}");
        assert!(!error.is_not_sent(), "the first host has seen the request");
        assert!(error.is_lasting(), "it will redirect there again: {error:?}");
        assert!(!format!("{error:?} {error}").contains(SECRET));
    }
    assert_eq!(trap.connections().await, 0);
}

#[tokio::test]
async fn a_post_is_not_turned_into_a_get_unasked() {
    let second = Server::answering(|_| ok("second")).await;
    let allow = [format!("http://{}", second.address)];
    for status in [301, 302] {
        let (_, answer) = post(status, second.url("/x?token=hidden").into(), &allow).await;
        let text = answer.unwrap_err().to_string();
        assert!(text.contains("/x`") && !text.contains("hidden"), "{text}");
    }
    assert!(second.seen().is_empty());
    let (_, answer) = post(303, second.url("/see").into(), &allow).await;
    assert_eq!(answer.unwrap(), "second");
    let seen = second.seen().remove(0);
    assert!(
        seen.head.starts_with("GET /see ") && seen.body.is_empty(),
        "{seen:?}"
    );
}

#[tokio::test]
async fn redirects_end() {
    let server = Server::answering(|seen| redirect(307, &format!("{}x", seen.path()))).await;
    let client = builder(&[format!("http://{}", server.address)]).build().unwrap();
    let error = client.send(get(server.url("/"))).await.unwrap_err();
    assert!(
        matches!(error, EgressError::TooManyRedirects { limit: 5, .. }),
        "{error:?}"
    );
    assert_eq!(server.seen().len(), 6);
}

#[tokio::test]
async fn a_host_header_of_the_callers_own_is_refused() {
    let server = Server::answering(|_| ok("")).await;
    let url = server.url("/");
    for name in [
        "host",
        "transfer-encoding",
        "content-length",
        "proxy-authorization",
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_static("other.example"));
        let built = builder(&[format!("http://{}", server.address)])
            .credentials(&url, headers.clone())
            .build();
        assert!(matches!(built, Err(EgressError::Header { .. })), "{name}");
        let client = builder(&[format!("http://{}", server.address)]).build().unwrap();
        let request = GuardedRequest {
            headers,
            ..get(Url::clone(&url))
        };
        assert!(client.send(request).await.unwrap_err().to_string().contains(name));
    }
    assert!(server.seen().is_empty());
}
