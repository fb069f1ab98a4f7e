//! Egress rules, and the HTTP client that obeys them.
//!
//! An HTTP server of the hub connects only where a rule allows: scheme, host, port, path prefix and method. Names are
//! resolved here and the addresses checked, and what was checked is what is connected to. Redirects are followed
//! hop by hop under the same rules, and what could be a credential never crosses an origin. Whatever fails while
//! deciding refuses.
//!
//! `rules` and `address` are pure: they see a URL or an address and answer. The rest is the client.
//!
//! Deliberately absent: any proxy of the system (one that is configured needs a rule of its own), cookies, caches,
//! retries, knowledge of MCP, and a guard over what a child process does on the network.
//!
//! ```
//! use portcullis_egress::EgressRules;
//! use url::Url;
//!
//! let rules = EgressRules::new(vec!["*.example.com".parse()?]);
//! assert!(rules.check_url(&Url::parse("https://api.example.com/mcp")?).is_ok());
//!
//! let refusal = rules.check_url(&Url::parse("http://169.254.169.254/latest/")?).unwrap_err();
//! assert_eq!(refusal.code(), "host_not_allowed");
//! assert!(refusal.to_string().contains("add `http://169.254.169.254:80/`"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod body;
mod client;
mod error;
mod limits;
mod proxy;
mod record;
mod redirect;
mod refusal;
mod resolve;
mod rules;
mod tls;

pub use address::{AddressKind, check_address};
pub use client::{GuardedClient, GuardedClientBuilder, GuardedRequest, GuardedResponse};
pub use error::EgressError;
pub use limits::Limits;
pub use proxy::EgressProxy;
pub use record::{EgressCounters, EgressLog, EgressOutcome, EgressRecord};
pub use refusal::{Refusal, RefusalCode};
pub use resolve::{Resolver, SystemResolver};
pub use rules::EgressRules;
