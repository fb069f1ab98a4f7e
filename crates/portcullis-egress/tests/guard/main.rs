//! The guarded client against servers on loopback that do what servers should not.

// Marked as tests, so that their helpers may unwrap as tests may.
#[cfg(test)]
mod bounds;
#[cfg(test)]
mod dns;
#[cfg(test)]
mod http2;
#[cfg(test)]
mod names;
#[cfg(test)]
mod proxies;
#[cfg(test)]
mod records;
#[cfg(test)]
mod redirects;
#[cfg(test)]
mod server;
#[cfg(test)]
mod spellings;
#[cfg(test)]
mod tls;
