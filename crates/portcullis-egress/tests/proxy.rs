//! A proxy that the environment names is not used. The environment of a process can be set from outside only, so
//! the test starts itself.

use std::process::{Command, Stdio};

use portcullis_egress::{EgressRules, GuardedClient, GuardedRequest, Limits};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use url::Url;

/// The variable by which the child knows itself.
const CHILD: &str = "PORTCULLIS_TEST_BEHIND_A_PROXY";

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_of_the_environment_is_not_used() {
    #[expect(
        clippy::disallowed_methods,
        reason = "the child is told what it is by its environment"
    )]
    let child = std::env::var_os(CHILD).is_some();
    if child {
        ask_directly().await;
        return;
    }
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    #[expect(
        clippy::disallowed_methods,
        reason = "the test starts itself with another environment"
    )]
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "a_proxy_of_the_environment_is_not_used", "--nocapture"])
        .stdin(Stdio::null())
        .env(CHILD, "1");
    for name in [
        "HTTP_PROXY",
        "http_proxy",
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
    ] {
        command.env(name, &address);
    }
    command
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .env_remove("REQUEST_METHOD");
    let child = tokio::task::spawn_blocking(move || command.output().unwrap());
    let output = tokio::select! {
        _ = proxy.accept() => panic!("the proxy was connected to"),
        output = child => output.unwrap(),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed") && text.contains(ASKED),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// What the child prints once it has its answer: a child that asked nobody proves nothing.
const ASKED: &str = "answered: direct";

// Marked as a test, so that it may unwrap as tests may.
#[cfg(test)]
async fn ask_directly() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = server.accept().await.unwrap();
        let mut bytes = vec![0; 4096];
        let _ = stream.read(&mut bytes).await;
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\ndirect")
            .await;
    });
    let limits = Limits {
        first_byte: std::time::Duration::from_secs(5),
        ..Limits::default()
    };
    let rules = EgressRules::new(vec![format!("http://{address}").parse().unwrap()]);
    let client = GuardedClient::builder(rules).limits(limits).build().unwrap();
    let url = Url::parse(&format!("http://{address}/")).unwrap();
    let answer = client
        .send(GuardedRequest::new(http::Method::GET, url))
        .await
        .unwrap();
    assert_eq!(answer.bytes().await.unwrap(), "direct");
    println!("{ASKED}");
}
