//! What a client tells of its connections.

use std::{
    collections::VecDeque,
    fmt,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use hyper_util::client::legacy::connect::HttpInfo;

use crate::{EgressError, Refusal};

/// How many connections are remembered, so that each is told once. More than a pool ever keeps for one server.
const REMEMBERED: usize = 256;

/// One way out that was allowed, refused or not to be had. Requests over a connection that was told of before are
/// only counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressRecord {
    /// `scheme://host:port`.
    pub target: String,
    /// The rule that allowed it; none where none did.
    pub rule: Option<String>,
    /// The address: that of the connection, or the one that was refused. None where it never came to one, or
    /// where a connection was given up before anything came back on it.
    pub address: Option<std::net::IpAddr>,
    /// `scheme://host:port` of the proxy that it went through, whose address it is then.
    pub proxy: Option<String>,
    /// How it ended.
    pub outcome: EgressOutcome,
}

impl EgressRecord {
    /// What of it a server may have chosen. Rule and proxy are the user's own.
    fn words(&mut self) -> Vec<&mut String> {
        let mut words = match &mut self.outcome {
            EgressOutcome::Allowed => Vec::new(),
            EgressOutcome::Refused(refusal) => refusal.words(),
            EgressOutcome::Failed(why) => vec![why],
        };
        words.push(&mut self.target);
        words
    }
}

/// A way out that the rules allow.
pub(crate) struct Way {
    pub(crate) target: String,
    pub(crate) rule: String,
    pub(crate) proxy: Option<String>,
}

/// How a way out ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EgressOutcome {
    /// Connected, or given up when something may already have been sent.
    Allowed,
    /// The rules did not allow it: nothing was connected to.
    Refused(Refusal),
    /// The rules allowed it and no connection came to be: the reason.
    Failed(String),
}

/// What a client has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EgressCounters {
    /// Requests that the rules allowed, each hop counted.
    pub requests: u64,
    /// Connections.
    pub connections: u64,
    /// Refusals.
    pub refused: u64,
    /// Connections that did not come to be.
    pub failed: u64,
}

/// Counts what clients do, and tells somebody of each record. Cheap to clone; clients that come one after the other
/// for one server share it.
///
/// ```
/// use portcullis_egress::{EgressLog, EgressRules, GuardedClient};
///
/// let log = EgressLog::new(|record| println!("{}: {:?}", record.target, record.outcome));
/// let client = GuardedClient::builder(EgressRules::default()).log(log.clone()).build()?;
/// assert_eq!(log.counters().connections, 0);
/// # drop(client);
/// # Ok::<(), portcullis_egress::EgressError>(())
/// ```
#[derive(Clone, Default)]
pub struct EgressLog {
    records: Arc<Records>,
    shown: Option<Arc<Shown>>,
}

type Shown = dyn Fn(&str) -> String + Send + Sync;

#[derive(Default)]
struct Records {
    observer: Option<Box<dyn Fn(EgressRecord) + Send + Sync>>,
    requests: AtomicU64,
    connections: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    /// Local and remote end of the connections that were told of.
    known: Mutex<VecDeque<(SocketAddr, SocketAddr)>>,
}

impl EgressLog {
    /// Tells `observer`. It is called in the middle of a request, and must not wait.
    #[must_use]
    pub fn new(observer: impl Fn(EgressRecord) + Send + Sync + 'static) -> Self {
        Self {
            records: Arc::new(Records {
                observer: Some(Box::new(observer)),
                ..Records::default()
            }),
            shown: None,
        }
    }

    /// The same log, which tells what a server may have said, such as a place that it redirected to, as `shown` gives it.
    #[must_use]
    pub fn showing(&self, shown: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self {
            records: Arc::clone(&self.records),
            shown: Some(Arc::new(shown)),
        }
    }

    /// What has been done so far.
    #[must_use]
    pub fn counters(&self) -> EgressCounters {
        EgressCounters {
            requests: self.records.requests.load(Ordering::Relaxed),
            connections: self.records.connections.load(Ordering::Relaxed),
            refused: self.records.refused.load(Ordering::Relaxed),
            failed: self.records.failed.load(Ordering::Relaxed),
        }
    }

    /// The rules did not allow `target`.
    pub(crate) fn refused(&self, target: String, refusal: &Refusal) {
        self.records.refused.fetch_add(1, Ordering::Relaxed);
        self.tell(|| EgressRecord {
            target,
            rule: None,
            address: refusal.address(),
            proxy: None,
            outcome: EgressOutcome::Refused(refusal.clone()),
        });
    }

    /// The rules allowed this way out: what becomes of it is told by what comes back.
    pub(crate) fn begin(&self, way: Way) -> Attempt<'_> {
        self.records.requests.fetch_add(1, Ordering::Relaxed);
        Attempt {
            log: self,
            way: Some(way),
        }
    }

    fn tell(&self, record: impl FnOnce() -> EgressRecord) {
        if let Some(observer) = &self.records.observer {
            let mut record = record();
            if let Some(shown) = &self.shown {
                for word in record.words() {
                    *word = shown(word);
                }
            }
            observer(record);
        }
    }

    /// Whether this connection was not told of yet.
    fn is_new(&self, info: &HttpInfo) -> bool {
        let ends = (info.local_addr(), info.remote_addr());
        // No code panics while it holds the lock, and the queue is valid at every step.
        let mut known = self.records.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.iter().rev().any(|other| *other == ends) {
            return false;
        }
        if known.len() >= REMEMBERED {
            known.pop_front();
        }
        known.push_back(ends);
        true
    }
}

impl fmt::Debug for EgressLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EgressLog").field(&self.counters()).finish()
    }
}

/// One request that the rules allowed. Dropped before its end is known, as when its caller gives up, it counts as a
/// connection: something may have been sent.
pub(crate) struct Attempt<'a> {
    log: &'a EgressLog,
    way: Option<Way>,
}

impl Attempt<'_> {
    /// The head of an answer came.
    pub(crate) fn answered(mut self, answer: &reqwest::Response) {
        let info = answer.extensions().get::<HttpInfo>();
        if info.is_some_and(|info| !self.log.is_new(info)) {
            self.way = None;
            return;
        }
        self.allowed(info.map(|info| info.remote_addr()));
    }

    pub(crate) fn failed(mut self, error: &EgressError) {
        let Some(Way { target, rule, proxy }) = self.way.take_if(|_| error.is_not_sent()) else {
            return;
        };
        if let Some(refusal) = error.refusal() {
            self.log.refused(target, refusal);
            return;
        }
        self.log.records.failed.fetch_add(1, Ordering::Relaxed);
        self.log.tell(|| EgressRecord {
            target,
            rule: Some(rule),
            address: None,
            proxy,
            outcome: EgressOutcome::Failed(error.chain()),
        });
    }

    fn allowed(&mut self, remote: Option<SocketAddr>) {
        let Some(Way { target, rule, proxy }) = self.way.take() else {
            return;
        };
        self.log.records.connections.fetch_add(1, Ordering::Relaxed);
        self.log.tell(|| EgressRecord {
            target,
            rule: Some(rule),
            address: remote.map(|remote| remote.ip()),
            proxy,
            outcome: EgressOutcome::Allowed,
        });
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.allowed(None);
    }
}
