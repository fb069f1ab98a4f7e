use std::{io::Write, time::Duration};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http::{HeaderMap, header};
use tokio::time::{Instant, timeout, timeout_at};

use crate::{EgressError, Limits};

/// How much compressed data is decompressed at once: deflate can grow by 1,032, so at most about 4 MiB come of it.
const SLICE_BYTES: usize = 4 << 10;

/// How long the start of a body is waited for that only says more of what its status has said: whoever asked waits
/// for that with all that he waits for.
const PREFIX_WAIT: Duration = Duration::from_secs(10);

/// A body as it comes, decompressed, counted on both sides.
pub(crate) struct Body {
    response: reqwest::Response,
    host: String,
    gunzip: Option<MultiGzDecoder<Vec<u8>>>,
    /// Wire data that are not decompressed yet.
    pending: Bytes,
    wire_bytes: u64,
    decoded_bytes: u64,
    ended: bool,
}

/// What is asked of one reading of a body.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) idle: Option<Duration>,
    pub(crate) deadline: Option<(Instant, Duration)>,
    /// Wire and decoded bytes.
    pub(crate) most: Option<(u64, u64)>,
}

impl Body {
    pub(crate) fn new(response: reqwest::Response, host: String) -> Result<Self, EgressError> {
        let gunzip = match encoding(response.headers()) {
            None => None,
            Some(name)
                if ["gzip", "x-gzip"]
                    .iter()
                    .any(|gzip| name.eq_ignore_ascii_case(gzip)) =>
            {
                Some(MultiGzDecoder::new(Vec::new()))
            }
            Some(name) => return Err(EgressError::UnknownEncoding { host, name }),
        };
        Ok(Self {
            response,
            host,
            gunzip,
            pending: Bytes::new(),
            wire_bytes: 0,
            decoded_bytes: 0,
            ended: false,
        })
    }

    /// All of it.
    pub(crate) async fn collect(mut self, limits: &Limits, deadline: Instant) -> Result<Bytes, EgressError> {
        let reading = Reading {
            idle: Some(limits.idle),
            deadline: Some((deadline, limits.total)),
            most: Some((limits.body_bytes, limits.decoded_bytes)),
        };
        // A length that is announced and too long needs no reading.
        if self
            .response
            .content_length()
            .is_some_and(|length| length > limits.body_bytes)
        {
            return Err(EgressError::BodyTooLarge {
                host: self.host,
                limit_bytes: limits.body_bytes,
            });
        }
        let mut all = Vec::new();
        while let Some(chunk) = self.chunk(reading).await? {
            all.extend_from_slice(&chunk);
        }
        Ok(all.into())
    }

    /// At most the first `most` bytes, for a message to a person.
    pub(crate) async fn prefix(mut self, most: usize, limits: &Limits, deadline: Instant) -> Vec<u8> {
        let deadline = deadline.min(Instant::now() + PREFIX_WAIT);
        let reading = Reading {
            idle: Some(limits.idle),
            deadline: Some((deadline, limits.total)),
            most: None,
        };
        let mut prefix = Vec::new();
        // What cannot be read is left out: the status alone already says that something is wrong.
        while let Ok(Some(chunk)) = self.chunk(reading).await {
            prefix.extend_from_slice(&chunk);
            if prefix.len() >= most {
                prefix.truncate(most);
                break;
            }
        }
        prefix
    }

    /// The next piece, never empty; `None` at the end.
    pub(crate) async fn chunk(&mut self, reading: Reading) -> Result<Option<Bytes>, EgressError> {
        loop {
            if self.gunzip.is_some() && !self.pending.is_empty() {
                // What has come may grow to hundreds of MiB: others have their turn after each slice of it.
                tokio::task::yield_now().await;
            }
            if let Some(decoded) = self.decode_slice(reading)? {
                return Ok(Some(decoded));
            }
            if self.ended {
                return Ok(None);
            }
            match self.wire(reading).await? {
                Some(chunk) => {
                    self.wire_bytes = self.wire_bytes.saturating_add(chunk.len() as u64);
                    if let Some((limit_bytes, _)) = reading.most
                        && self.wire_bytes > limit_bytes
                    {
                        return Err(EgressError::BodyTooLarge {
                            host: self.host.clone(),
                            limit_bytes,
                        });
                    }
                    self.pending = chunk;
                }
                None => {
                    self.ended = true;
                    if let Some(last) = self.finish(reading)? {
                        return Ok(Some(last));
                    }
                }
            }
        }
    }

    async fn wire(&mut self, reading: Reading) -> Result<Option<Bytes>, EgressError> {
        let idle = reading.idle;
        let deadline = reading.deadline;
        let next = async {
            match idle {
                Some(after) => match timeout(after, self.response.chunk()).await {
                    Ok(chunk) => Ok(chunk),
                    Err(_) => Err(EgressError::Idle {
                        host: self.host.clone(),
                        after,
                    }),
                },
                None => Ok(self.response.chunk().await),
            }
        };
        let chunk = match deadline {
            Some((at, after)) => match timeout_at(at, next).await {
                Ok(chunk) => chunk?,
                Err(_) => {
                    return Err(EgressError::Total {
                        host: self.host.clone(),
                        after,
                    });
                }
            },
            None => next.await?,
        };
        chunk.map_err(|source| EgressError::Exchange {
            host: self.host.clone(),
            source: source.without_url(),
        })
    }

    /// Decompresses one slice of what is pending; `None` where more wire data are needed.
    fn decode_slice(&mut self, reading: Reading) -> Result<Option<Bytes>, EgressError> {
        while !self.pending.is_empty() {
            let decoded = match &mut self.gunzip {
                None => std::mem::take(&mut self.pending),
                Some(gunzip) => {
                    let slice = self.pending.split_to(self.pending.len().min(SLICE_BYTES));
                    // Flushed, so that an event that has come is not held back for the next one.
                    let written = gunzip.write_all(&slice).and_then(|()| gunzip.flush());
                    let decoded = std::mem::take(gunzip.get_mut());
                    written.map_err(|error| self.broken(&error))?;
                    decoded.into()
                }
            };
            if !decoded.is_empty() {
                return self.counted(decoded, reading).map(Some);
            }
        }
        Ok(None)
    }

    fn finish(&mut self, reading: Reading) -> Result<Option<Bytes>, EgressError> {
        // A compressed body of no bytes at all is an empty body.
        let Some(gunzip) = self.gunzip.as_mut().filter(|_| self.wire_bytes > 0) else {
            return Ok(None);
        };
        let finished = gunzip.try_finish();
        let decoded = std::mem::take(gunzip.get_mut());
        finished.map_err(|error| self.broken(&error))?;
        if decoded.is_empty() {
            Ok(None)
        } else {
            self.counted(decoded.into(), reading).map(Some)
        }
    }

    fn counted(&mut self, decoded: Bytes, reading: Reading) -> Result<Bytes, EgressError> {
        self.decoded_bytes = self.decoded_bytes.saturating_add(decoded.len() as u64);
        match reading.most {
            Some((_, limit_bytes)) if self.decoded_bytes > limit_bytes => Err(EgressError::DecodedTooLarge {
                host: self.host.clone(),
                limit_bytes,
            }),
            _ => Ok(decoded),
        }
    }

    fn broken(&self, error: &std::io::Error) -> EgressError {
        EgressError::Encoding {
            host: self.host.clone(),
            why: format!("its gzip data are broken: {error}"),
        }
    }
}

/// The encoding of a body, as the server wrote it; `None` for none.
fn encoding(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_ENCODING)?;
    let name = String::from_utf8_lossy(value.as_bytes()).trim().to_owned();
    (!name.is_empty() && !name.eq_ignore_ascii_case("identity")).then_some(name)
}
