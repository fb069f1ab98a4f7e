//! A small HTTP/1.1 server of the tests' own, and a trap that counts who connects.

use std::{
    io::Write,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use portcullis_egress::{EgressRules, GuardedClient, GuardedClientBuilder, GuardedRequest, Limits, Resolver};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use url::Url;

/// A request as it came: its head, and its body.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or("")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// What the server does with a connection once a request has come.
pub(crate) type Script = Arc<dyn Fn(Seen, TcpStream) -> BoxFuture<'static, ()> + Send + Sync>;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// Answers each request with these bytes and closes.
    pub(crate) async fn answering(answer: impl Fn(&Seen) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let answer = Arc::new(answer);
        Self::scripted(Arc::new(move |seen, mut stream| {
            let bytes = answer(&seen);
            Box::pin(async move {
                let _ = stream.write_all(&bytes).await;
                let _ = stream.shutdown().await;
            })
        }))
        .await
    }

    pub(crate) async fn scripted(script: Script) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), script).await
    }

    pub(crate) async fn at(address: SocketAddr, script: Script) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (script, all) = (Arc::clone(&script), Arc::clone(&all));
                tokio::spawn(async move {
                    if let Some(request) = read(&mut stream).await {
                        all.lock().unwrap().push(request.clone());
                        script(request, stream).await;
                    }
                });
            }
        });
        Self { address, seen }
    }

    pub(crate) fn url(&self, path: &str) -> Url {
        Url::parse(&format!("http://{}{path}", self.address)).unwrap()
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

async fn read(stream: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let mut seen = Seen {
        head: String::from_utf8_lossy(&bytes[..end]).into_owned(),
        body: String::new(),
    };
    let length: usize = seen
        .header("content-length")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    while bytes.len() < end + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    seen.body = String::from_utf8_lossy(&bytes[end..]).into_owned();
    Some(seen)
}

/// A listener that answers nobody and counts who came.
pub(crate) struct Trap {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Trap {
    pub(crate) async fn at(address: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { address, connections }
    }

    /// Who came, once everybody who was on the way has been counted: a connection of our own is queued behind them.
    pub(crate) async fn connections(&self) -> usize {
        let before = self.connections.load(Ordering::SeqCst);
        #[expect(clippy::disallowed_methods, reason = "the test's own probe of its trap")]
        let own = TcpStream::connect(self.address).await.unwrap();
        let counted = async {
            while self.connections.load(Ordering::SeqCst) == before {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), counted)
            .await
            .unwrap();
        drop(own);
        self.connections.fetch_sub(1, Ordering::SeqCst) - 1
    }
}

/// A resolver that gives its answers in turn, and the last one for ever.
pub(crate) struct Answers(pub(crate) Mutex<Vec<std::io::Result<Vec<IpAddr>>>>);

impl Answers {
    pub(crate) fn new(answers: &[&str]) -> Self {
        Self(Mutex::new(
            answers
                .iter()
                .rev()
                .map(|text| Ok(vec![text.parse().unwrap()]))
                .collect(),
        ))
    }
}

impl Resolver for Answers {
    fn resolve(&self, _: String) -> BoxFuture<'static, std::io::Result<Vec<IpAddr>>> {
        let mut answers = self.0.lock().unwrap();
        let answer = match answers.len() {
            0 => Err(std::io::Error::other("no answer")),
            1 => answers[0]
                .as_ref()
                .map(Clone::clone)
                .map_err(|error| std::io::Error::other(error.to_string())),
            _ => answers.pop().unwrap(),
        };
        Box::pin(async move { answer })
    }
}

pub(crate) fn rules(lines: &[String]) -> EgressRules {
    EgressRules::new(lines.iter().map(|line| line.parse().unwrap()).collect())
}

pub(crate) fn builder(lines: &[String]) -> GuardedClientBuilder {
    GuardedClient::builder(rules(lines))
}

/// Limits short enough for tests that wait for them.
pub(crate) fn short() -> Limits {
    Limits {
        connect: Duration::from_secs(2),
        first_byte: Duration::from_millis(300),
        idle: Duration::from_millis(300),
        total: Duration::from_secs(2),
        ..Limits::default()
    }
}

pub(crate) fn get(url: Url) -> GuardedRequest {
    GuardedRequest::new(http::Method::GET, url)
}

/// `200` with a body of known length.
pub(crate) fn ok(body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

pub(crate) fn redirect(status: u16, location: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status} Moved\r\nlocation: {location}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    )
    .into_bytes()
}

/// `200` whose body is these bytes in gzip.
pub(crate) fn gzipped(body: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(body).unwrap();
    let packed = gzip.finish().unwrap();
    let mut answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        packed.len()
    )
    .into_bytes();
    answer.extend_from_slice(&packed);
    answer
}
