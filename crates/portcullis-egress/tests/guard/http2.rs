//! HTTP/2, agreed upon in the TLS handshake, under the same limits.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::future::join_all;
use hyper::{Request, Response, Version, body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use portcullis_egress::{EgressError, GuardedClient};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use url::Url;

use crate::{
    server::{builder, get, short},
    tls::Authority,
};

/// A server that speaks HTTP/2 alone, and how many connections it took.
struct Server {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl Server {
    async fn new(authority: &Authority) -> Self {
        let mut config = authority.config(&["localhost"]);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service = service_fn(|request| async move { Ok::<_, Infallible>(answer(&request)) });
                    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { port, connections }
    }

    fn client(&self, authority: &Authority) -> GuardedClient {
        builder(&[format!("https://localhost:{}", self.port)])
            .limits(short())
            .root_certificate(authority.root())
            .build()
            .unwrap()
    }

    async fn ask(&self, client: &GuardedClient, path: &str) -> Result<String, EgressError> {
        let url = Url::parse(&format!("https://localhost:{}{path}", self.port)).unwrap();
        let body = client.send(get(url)).await?.bytes().await?;
        Ok(String::from_utf8(body.to_vec()).unwrap())
    }
}

fn answer(request: &Request<Incoming>) -> Response<String> {
    assert_eq!(request.version(), Version::HTTP_2);
    match request.uri().path() {
        "/headers" => {
            let filler = "y".repeat(2_000);
            let mut response = Response::builder();
            for at in 0..50 {
                response = response.header(format!("x-filler-{at}"), &filler);
            }
            response.body(String::new()).unwrap()
        }
        "/body" => Response::new("z".repeat(4_000)),
        path => Response::new(path.to_owned()),
    }
}

#[tokio::test]
async fn many_requests_share_one_connection() {
    let authority = Authority::new();
    let server = Server::new(&authority).await;
    let client = server.client(&authority);
    assert_eq!(server.ask(&client, "/first").await.unwrap(), "/first");
    let paths: Vec<_> = (0..50).map(|number| format!("/{number}")).collect();
    let answers = join_all(paths.iter().map(|path| server.ask(&client, path))).await;
    let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers, paths);
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
    assert_eq!(client.log().counters().connections, 1);
    assert_eq!(client.log().counters().requests, 51);
}

#[tokio::test]
async fn headers_and_bodies_are_bounded_as_over_any_connection() {
    let authority = Authority::new();
    let server = Server::new(&authority).await;
    let error = server
        .ask(&server.client(&authority), "/headers")
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            EgressError::HeadersTooLarge { .. } | EgressError::Exchange { .. }
        ),
        "{error:?}"
    );
    assert!(!error.is_not_sent());
    let mut limits = short();
    limits.body_bytes = 3_999;
    let client = builder(&[format!("https://localhost:{}", server.port)])
        .limits(limits)
        .root_certificate(authority.root())
        .build()
        .unwrap();
    let error = server.ask(&client, "/body").await.unwrap_err();
    assert!(matches!(error, EgressError::BodyTooLarge { .. }), "{error:?}");
}
