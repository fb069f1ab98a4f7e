use std::net::IpAddr;

use thiserror::Error;

use crate::AddressKind;

/// Why a connection is not made. Each says which rule was missing and, where a rule would help, the line to add.
///
/// A target is shown as `scheme://host:port`; queries and user names never are, since they may hold secrets.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Neither `http` nor `https`.
    #[error("the scheme `{scheme}` is not allowed: only `https` and `http` are")]
    SchemeUnsupported {
        /// As written.
        scheme: String,
    },
    /// The URL has no host, or one that is no name.
    #[error("`{target}` is not allowed: it has no usable host")]
    NoHost {
        /// What was asked for.
        target: String,
    },
    /// `user:password@` in the URL.
    #[error(
        "`{target}` is not allowed: its url carries a user name or password; put credentials into a header"
    )]
    Credentials {
        /// What was asked for.
        target: String,
    },
    /// No rule names the host.
    #[error("`{target}` is not allowed: no egress rule names this host; to allow it, add `{add}`")]
    Host {
        /// What was asked for.
        target: String,
        /// The line to add.
        add: String,
    },
    /// A rule names the host, for the other scheme.
    #[error(
        "`{target}` is not allowed: the egress rules name this host for another scheme; to allow it, add `{add}`"
    )]
    Scheme {
        /// What was asked for.
        target: String,
        /// The line to add.
        add: String,
    },
    /// A rule names scheme and host, for other ports.
    #[error(
        "`{target}` is not allowed: the egress rules name this host for another port; to allow it, add `{add}`"
    )]
    Port {
        /// What was asked for.
        target: String,
        /// The line to add.
        add: String,
    },
    /// A rule names scheme, host and port, for other paths.
    #[error(
        "`{target}` is not allowed: the egress rules name this host for other paths; to allow it, add `{add}`"
    )]
    Path {
        /// What was asked for, with its path.
        target: String,
        /// The line to add.
        add: String,
    },
    /// The path could be read as another one by the server: encoded dots or slashes, under a rule with a prefix.
    #[error(
        "`{target}` is not allowed: its path has encoded dots, slashes or percent signs, which could leave the allowed prefix"
    )]
    PathTricks {
        /// What was asked for, with its path.
        target: String,
    },
    /// A rule names scheme, host, port and path, for other methods.
    #[error(
        "{method} to `{target}` is not allowed: the egress rules name it for other methods; to allow it, add `{add}`"
    )]
    Method {
        /// What was asked for, with its path.
        target: String,
        /// The method.
        method: String,
        /// The line to add.
        add: String,
    },
    /// The server's own rules allow it, and the rules that hold for every server of the hub do not.
    #[error("the rules of the whole hub do not allow what the server's do: {0}")]
    Hub(Box<Refusal>),
    /// The address is not one of the public internet, and no rule names it.
    #[error(
        "`{host}` is not allowed at `{address}`: {kind}; only a rule that names this very address and port allows it: `{add}`"
    )]
    Address {
        /// The host that led to the address.
        host: String,
        /// The address.
        address: IpAddr,
        /// What kind of address it is.
        kind: AddressKind,
        /// The line to add.
        add: String,
    },
}

macro_rules! codes {
    ($($variant:ident $code:literal $meaning:literal,)*) => {
        /// Why a connection is not made, as a code. Closed: the codes are stable and documented in docs/egress.md.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum RefusalCode {
            $(#[doc = concat!($meaning, ".")] $variant,)*
        }

        impl RefusalCode {
            /// All codes, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The stable code, and what it means in one sentence.
            #[must_use]
            pub fn describe(self) -> (&'static str, &'static str) {
                match self {
                    $(Self::$variant => ($code, $meaning),)*
                }
            }
        }
    };
}

codes! {
    SchemeUnsupported "scheme_unsupported" "neither `http` nor `https`",
    NoHost "no_host" "the url has no host, or one with an empty label",
    Credentials "credentials_in_url" "the url carries a user name or a password",
    Host "host_not_allowed" "no rule names the host",
    Scheme "scheme_not_allowed" "rules name the host, for the other scheme",
    Port "port_not_allowed" "rules name scheme and host, for other ports",
    Path "path_not_allowed" "rules name scheme, host and port, for other paths",
    PathTricks "path_ambiguous" "under a rule with a path, the url's path could be read as another one",
    Method "method_not_allowed" "rules name the url, for other methods",
    Address "address_not_allowed" "the address is not of the public internet, or another than the rule names",
}

impl RefusalCode {
    /// The stable code alone.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.describe().0
    }
}

impl Refusal {
    /// A stable code, for events and documents.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.kind().as_str()
    }

    /// The same, as a value.
    #[must_use]
    pub fn kind(&self) -> RefusalCode {
        match self {
            Self::Hub(refusal) => refusal.kind(),
            Self::SchemeUnsupported { .. } => RefusalCode::SchemeUnsupported,
            Self::NoHost { .. } => RefusalCode::NoHost,
            Self::Credentials { .. } => RefusalCode::Credentials,
            Self::Host { .. } => RefusalCode::Host,
            Self::Scheme { .. } => RefusalCode::Scheme,
            Self::Port { .. } => RefusalCode::Port,
            Self::Path { .. } => RefusalCode::Path,
            Self::PathTricks { .. } => RefusalCode::PathTricks,
            Self::Method { .. } => RefusalCode::Method,
            Self::Address { .. } => RefusalCode::Address,
        }
    }

    /// What of its message a server may have chosen, by a redirect.
    pub(crate) fn words(&mut self) -> Vec<&mut String> {
        match self {
            Self::SchemeUnsupported { scheme } => vec![scheme],
            Self::NoHost { target } | Self::Credentials { target } | Self::PathTricks { target } => {
                vec![target]
            }
            Self::Host { target, add }
            | Self::Scheme { target, add }
            | Self::Port { target, add }
            | Self::Path { target, add }
            | Self::Method { target, add, .. } => vec![target, add],
            Self::Hub(refusal) => refusal.words(),
            Self::Address { host, add, .. } => vec![host, add],
        }
    }

    /// The address that was refused, where the name led to one.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Address { address, .. } => Some(*address),
            Self::Hub(refusal) => refusal.address(),
            _ => None,
        }
    }
}
