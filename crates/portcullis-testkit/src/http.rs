//! A script over streamable HTTP (MCP, section "Streamable HTTP"), on loopback.

mod message;
mod session;

use std::{
    collections::HashMap,
    io::{self, BufReader, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::Receiver,
    },
    thread,
};

use crate::{Error, Script};
use message::{Head, JsonRpc, read_request};
use session::{Line, Session};

/// In which form a call's reply comes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HttpReplies {
    /// As a stream of events, with what the server says meanwhile before it.
    #[default]
    Events,
    /// As one JSON body. What the server says meanwhile goes to a listening stream, where there is one.
    Json,
}

/// A scripted server that is reached over HTTP, in this process. Dropped, it ends with all its sessions.
///
/// Each session (`initialize` opens one) plays the script anew; what comes without a session, as in the revision of
/// 2026-07-28, is played in one that all share. [`Script::process`](crate::Script) is not heeded. A script that ends
/// the server ends its session: streams break off, and the session is not known any more.
///
/// ```
/// use std::io::{Read, Write};
/// use portcullis_testkit::{Behaviour, HttpReplies, HttpServer, Script, Tool};
///
/// let script = Script::new("greeter").tool(Tool::new("greet", Behaviour::Text("Hello!".into())));
/// let server = HttpServer::start(&script, HttpReplies::Json)?;
/// assert!(server.url().starts_with("http://127.0.0.1:"));
/// let mut connection = std::net::TcpStream::connect(server.address())?;
///
/// let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
/// let length = body.len();
/// write!(connection, "POST /mcp HTTP/1.1\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")?;
/// let mut answer = String::new();
/// connection.read_to_string(&mut answer)?;
/// assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("mcp-session-id: session-1"), "{answer}");
/// assert!(answer.contains("greeter"), "{answer}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    script: Script,
    replies: HttpReplies,
    over: AtomicBool,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    next_session: AtomicU64,
}

impl HttpServer {
    /// Starts it on a free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// What [`Script::check`] finds, and [`Error::SetUp`] where no port is to be had.
    pub fn start(script: &Script, replies: HttpReplies) -> Result<Self, Error> {
        script.check()?;
        let failed = |source| Error::SetUp {
            what: "listen on loopback",
            source,
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            script: script.clone(),
            replies,
            over: AtomicBool::new(false),
            sessions: Mutex::default(),
            next_session: AtomicU64::new(1),
        });
        let weak = Arc::downgrade(&shared);
        thread::Builder::new()
            .name("http".to_owned())
            .spawn(move || accept(&listener, &weak))
            .map_err(failed)?;
        Ok(Self { address, shared })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a client is configured with.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        // Who listens to one holds it, so that it would live on.
        let sessions = std::mem::take(&mut *self.shared.sessions());
        for session in sessions.into_values() {
            session.end();
        }
        // Wakes the thread that accepts; a listener that is gone already needs none.
        #[expect(
            clippy::disallowed_methods,
            reason = "a connection to itself, which ends the wait for others"
        )]
        let _ = TcpStream::connect(self.address);
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("script", &self.script.name)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        // No code panics while it holds the lock.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session that a message belongs to, and the id of one that it opens.
    fn session(
        &self,
        head: &Head,
        message: &JsonRpc,
    ) -> Result<(Arc<Session>, Option<String>), &'static str> {
        let known = match &head.session {
            Some(id) => {
                let known = self.sessions().get(id).cloned();
                return known
                    .filter(|session| session.is_open())
                    .map(|session| (session, None))
                    .ok_or("404 Not Found");
            }
            None if message.method.as_deref() == Some("initialize") => None,
            None => self.sessions().get("").cloned(),
        };
        if let Some(known) = known.filter(|session| session.is_open()) {
            return Ok((known, None));
        }
        let opens = message.method.as_deref() == Some("initialize");
        let id = if opens {
            format!("session-{}", self.next_session.fetch_add(1, Ordering::Relaxed))
        } else {
            String::new()
        };
        let session = Session::start(&self.script).map_err(|_| "503 Service Unavailable")?;
        self.sessions().insert(id.clone(), Arc::clone(&session));
        Ok((session, opens.then_some(id)))
    }
}

fn accept(listener: &TcpListener, shared: &Weak<Shared>) {
    for stream in listener.incoming() {
        let Some(shared) = shared
            .upgrade()
            .filter(|shared| !shared.over.load(Ordering::Acquire))
        else {
            return;
        };
        let Ok(stream) = stream else { continue };
        // Where no thread can be had, the client sees a connection that ends.
        let _ = thread::Builder::new().name("http".to_owned()).spawn(move || {
            let _ = answer_all(&stream, &shared);
            let _ = stream.shutdown(Shutdown::Both);
        });
    }
}

/// Answers one request after the other, until the connection ends.
fn answer_all(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some((head, body)) = read_request(&mut reader)? {
        if shared.over.load(Ordering::Acquire) {
            break;
        }
        match head.method.as_str() {
            "POST" => on_post(stream, shared, &head, &body)?,
            "GET" => on_get(stream, shared, &head)?,
            "DELETE" => {
                let gone = head.session.as_ref().and_then(|id| shared.sessions().remove(id));
                if let Some(session) = &gone {
                    session.end();
                }
                empty(
                    stream,
                    if gone.is_some() {
                        "204 No Content"
                    } else {
                        "404 Not Found"
                    },
                )?;
            }
            _ => empty(stream, "405 Method Not Allowed")?,
        }
        if head.close {
            break;
        }
    }
    Ok(())
}

fn on_post(stream: &TcpStream, shared: &Shared, head: &Head, body: &[u8]) -> io::Result<()> {
    let Ok(message) = serde_json::from_slice::<JsonRpc>(body) else {
        return empty(stream, "400 Bad Request");
    };
    let (session, opened) = match shared.session(head, &message) {
        Ok(found) => found,
        Err(status) => return empty(stream, status),
    };
    let opened = opened
        .map(|id| format!("mcp-session-id: {id}\r\n"))
        .unwrap_or_default();
    let (Some(id), Some(_)) = (&message.id, &message.method) else {
        session.tell(body)?;
        return empty(stream, "202 Accepted");
    };
    let lines = session.listen(Some(id.get()), shared.replies == HttpReplies::Events);
    session.tell(body)?;
    match shared.replies {
        HttpReplies::Events => events(stream, &opened, &lines),
        HttpReplies::Json => match lines.iter().find(|line| line.last) {
            Some(line) => whole(stream, &opened, &line.bytes),
            // The session is over: so is the connection, without a word.
            None => Err(io::ErrorKind::ConnectionReset.into()),
        },
    }
}

fn on_get(stream: &TcpStream, shared: &Shared, head: &Head) -> io::Result<()> {
    let id = head.session.clone().unwrap_or_default();
    let session = shared.sessions().get(&id).cloned();
    match session.filter(|session| session.is_open()) {
        Some(session) => events(stream, "", &session.listen(None, true)),
        None => empty(stream, "405 Method Not Allowed"),
    }
}

fn empty(mut stream: &TcpStream, status: &str) -> io::Result<()> {
    write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n")
}

fn whole(mut stream: &TcpStream, headers: &str, body: &[u8]) -> io::Result<()> {
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{headers}content-length: {length}\r\n\r\n"
    )?;
    stream.write_all(body)
}

/// Lines as events, until the last one, or until the session is over: then the stream breaks off.
fn events(mut stream: &TcpStream, headers: &str, lines: &Receiver<Line>) -> io::Result<()> {
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{headers}transfer-encoding: chunked\r\n\r\n"
    )?;
    for line in lines {
        let mut event = Vec::new();
        for part in line.bytes.split(|byte| *byte == b'\n') {
            event.extend_from_slice(b"data: ");
            event.extend_from_slice(part);
            event.push(b'\n');
        }
        event.push(b'\n');
        write!(stream, "{:x}\r\n", event.len())?;
        stream.write_all(&event)?;
        stream.write_all(b"\r\n")?;
        if line.last {
            return stream.write_all(b"0\r\n\r\n");
        }
    }
    Err(io::ErrorKind::ConnectionReset.into())
}

#[cfg(test)]
mod tests;
