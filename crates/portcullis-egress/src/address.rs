use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use portcullis_types::{EgressRule, HostPattern};

use crate::Refusal;

/// Why an address is not one of the public internet (IANA's special-purpose registries, RFC 6890 and its kin).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressKind {
    /// `0.0.0.0/8`, `::`.
    Unspecified,
    /// `127.0.0.0/8`, `::1`.
    Loopback,
    /// `10/8`, `172.16/12`, `192.168/16` (RFC 1918), `fec0::/10`.
    Private,
    /// `169.254/16`, `fe80::/10`.
    LinkLocal,
    /// `fc00::/7` (RFC 4193).
    UniqueLocal,
    /// Where clouds serve credentials to their machines.
    Metadata,
    /// `100.64/10` (RFC 6598).
    SharedNat,
    /// `224/4`, `ff00::/8`.
    Multicast,
    /// `255.255.255.255`.
    Broadcast,
    /// `192.0.2/24` and its kin (RFC 5737, 3849, 9637).
    Documentation,
    /// `198.18/15`, `2001:2::/48` (RFC 2544, 5180).
    Benchmarking,
    /// An IPv4 address inside an IPv6 one: mapped, compatible, translated, NAT64, 6to4 or Teredo.
    Embedded,
    /// Set aside for anything else.
    Reserved,
    /// A public address, but not the one that the rule names.
    Other,
}

impl fmt::Display for AddressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unspecified => "an address that means this host",
            Self::Loopback => "a loopback address",
            Self::Private => "a private address",
            Self::LinkLocal => "a link-local address",
            Self::UniqueLocal => "a unique-local address",
            Self::Metadata => "a cloud metadata address",
            Self::SharedNat => "an address of a carrier's network",
            Self::Multicast => "a multicast address",
            Self::Broadcast => "the broadcast address",
            Self::Documentation => "an address for documentation",
            Self::Benchmarking => "an address for benchmarks",
            Self::Embedded => "an address that carries another one inside",
            Self::Reserved => "a reserved address",
            Self::Other => "not the address that the rule names",
        })
    }
}

/// Whether `rule` lets its host be connected to at this address and port.
///
/// A rule that names a literal address allows exactly that; `localhost` allows 127.0.0.1 and ::1; any other name
/// allows public addresses only.
///
/// # Errors
/// [`Refusal::Address`] otherwise, which says what kind of address it is and the line that would allow it.
///
/// ```
/// use portcullis_egress::check_address;
///
/// let rule = "api.example.com".parse()?;
/// assert!(check_address("8.8.8.8".parse()?, 443, &rule).is_ok());
/// assert!(check_address("10.0.0.1".parse()?, 443, &rule).is_err());
/// assert!(check_address("10.0.0.1".parse()?, 443, &"10.0.0.1".parse()?).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check_address(address: IpAddr, port: u16, rule: &EgressRule) -> Result<(), Refusal> {
    let named = match &rule.host {
        HostPattern::Exact(host) => Named::parse(host),
        HostPattern::Suffix(_) => Named::Name,
    };
    let same_port = port == rule.port;
    let allowed = match named {
        Named::Literal(literal) => literal == address && same_port,
        Named::Localhost => {
            same_port
                && (address == IpAddr::V4(Ipv4Addr::LOCALHOST) || address == IpAddr::V6(Ipv6Addr::LOCALHOST))
        }
        Named::Name => kind_of(address).is_none(),
    };
    if allowed {
        return Ok(());
    }
    let host = match &rule.host {
        HostPattern::Exact(host) => host.clone(),
        HostPattern::Suffix(suffix) => format!("*.{suffix}"),
    };
    Err(Refusal::Address {
        host,
        address,
        kind: kind_of(address).unwrap_or(AddressKind::Other),
        add: literal_line(&rule.scheme, address, port),
    })
}

/// The line that names an address.
pub(crate) fn literal_line(scheme: &str, address: IpAddr, port: u16) -> String {
    let host = HostPattern::Exact(address.to_string());
    EgressRule {
        scheme: scheme.to_owned(),
        host,
        port,
        path_prefix: "/".to_owned(),
        methods: BTreeSet::new(),
    }
    .to_string()
}

/// What the host of a rule names, by the URL standard's own reading (`0x7f.1` is 127.0.0.1).
pub(crate) enum Named {
    /// A literal address.
    Literal(IpAddr),
    /// `localhost`.
    Localhost,
    /// Any other name.
    Name,
}

impl Named {
    pub(crate) fn parse(host: &str) -> Self {
        let bracketed = if host.contains(':') {
            format!("[{host}]")
        } else {
            host.to_owned()
        };
        match url::Host::parse(&bracketed) {
            Ok(url::Host::Ipv4(address)) => Self::Literal(address.into()),
            Ok(url::Host::Ipv6(address)) => Self::Literal(address.into()),
            Ok(url::Host::Domain(name)) if name.trim_end_matches('.') == "localhost" => Self::Localhost,
            Ok(url::Host::Domain(_)) | Err(_) => Self::Name,
        }
    }
}

/// `None` for an address of the public internet.
pub(crate) fn kind_of(address: IpAddr) -> Option<AddressKind> {
    match address {
        IpAddr::V4(v4) => kind_of_v4(v4),
        IpAddr::V6(v6) => kind_of_v6(v6),
    }
}

/// Metadata services that no range below tells from their neighbours.
const METADATA_V4: [Ipv4Addr; 4] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];

const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

fn kind_of_v4(address: Ipv4Addr) -> Option<AddressKind> {
    if METADATA_V4.contains(&address) {
        return Some(AddressKind::Metadata);
    }
    Some(match address.octets() {
        [0, ..] => AddressKind::Unspecified,
        [127, ..] => AddressKind::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => AddressKind::Private,
        [169, 254, ..] => AddressKind::LinkLocal,
        [100, 64..=127, ..] => AddressKind::SharedNat,
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => AddressKind::Documentation,
        [198, 18..=19, ..] => AddressKind::Benchmarking,
        // 6to4's relays lead to whoever runs one.
        [192, 88, 99, _] => AddressKind::Embedded,
        [192, 0, 0, _] => AddressKind::Reserved,
        [224..=239, ..] => AddressKind::Multicast,
        [255, 255, 255, 255] => AddressKind::Broadcast,
        [240..=255, ..] => AddressKind::Reserved,
        _ => return None,
    })
}

fn kind_of_v6(address: Ipv6Addr) -> Option<AddressKind> {
    if METADATA_V6.contains(&address) {
        return Some(AddressKind::Metadata);
    }
    Some(match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => AddressKind::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressKind::Loopback,
        // Compatible `::/96`, mapped `::ffff:0:0/96`, translated `::ffff:0:0:0/96`.
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => AddressKind::Embedded,
        // NAT64 (RFC 6052, RFC 8215), Teredo (RFC 4380), 6to4 (RFC 3056).
        [0x64, 0xff9b, 0, 0, 0, 0, ..] | [0x64, 0xff9b, 1, ..] | [0x2001, 0, ..] | [0x2002, ..] => {
            AddressKind::Embedded
        }
        [0x2001, 2, 0, ..] => AddressKind::Benchmarking,
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => AddressKind::Documentation,
        [0x2001, 0..=0x1ff, ..] => AddressKind::Reserved,
        [0xfc00..=0xfdff, ..] => AddressKind::UniqueLocal,
        [0xfe80..=0xfebf, ..] => AddressKind::LinkLocal,
        [0xfec0..=0xfeff, ..] => AddressKind::Private,
        [0xff00..=0xffff, ..] => AddressKind::Multicast,
        // Only 2000::/3 is given out as global unicast; all else is refused, whatever becomes of it.
        [0x2000..=0x3fff, ..] => return None,
        _ => AddressKind::Reserved,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(address: &str, kind: Option<AddressKind>) {
        let address: IpAddr = address.parse().unwrap();
        assert_eq!(kind_of(address), kind, "{address}");
        // A rule for a name, exact or suffix, allows public addresses and nothing else.
        for rule in ["name.example", "*.example"] {
            let answer = check_address(address, 443, &rule.parse().unwrap());
            assert_eq!(answer.is_ok(), kind.is_none(), "{address} by {rule}");
        }
        // A rule that names the very address allows it, at its port alone.
        let literal: EgressRule = literal_line("https", address, 443).parse().unwrap();
        assert_eq!(check_address(address, 443, &literal), Ok(()), "{address}");
        assert!(check_address(address, 444, &literal).is_err(), "{address}");
    }

    #[test]
    fn each_range_is_known_at_its_edges() {
        use AddressKind as K;
        for (address, kind) in [
            ("0.0.0.0", K::Unspecified),
            ("0.255.255.255", K::Unspecified),
            ("10.0.0.0", K::Private),
            ("10.255.255.255", K::Private),
            ("100.64.0.0", K::SharedNat),
            ("100.127.255.255", K::SharedNat),
            ("100.100.100.200", K::Metadata),
            ("127.0.0.1", K::Loopback),
            ("127.255.255.255", K::Loopback),
            ("168.63.129.16", K::Metadata),
            ("169.254.0.1", K::LinkLocal),
            ("169.254.169.254", K::Metadata),
            ("172.16.0.0", K::Private),
            ("172.31.255.255", K::Private),
            ("192.0.0.192", K::Metadata),
            ("192.0.0.1", K::Reserved),
            ("192.0.2.1", K::Documentation),
            ("192.88.99.1", K::Embedded),
            ("192.168.0.1", K::Private),
            ("198.18.0.1", K::Benchmarking),
            ("198.19.255.255", K::Benchmarking),
            ("198.51.100.7", K::Documentation),
            ("203.0.113.7", K::Documentation),
            ("224.0.0.1", K::Multicast),
            ("239.255.255.255", K::Multicast),
            ("240.0.0.1", K::Reserved),
            ("255.255.255.255", K::Broadcast),
            ("::", K::Unspecified),
            ("::1", K::Loopback),
            ("::7f00:1", K::Embedded),
            ("::ffff:127.0.0.1", K::Embedded),
            ("::ffff:8.8.8.8", K::Embedded),
            ("::ffff:0:127.0.0.1", K::Embedded),
            ("64:ff9b::7f00:1", K::Embedded),
            ("64:ff9b::808:808", K::Embedded),
            ("64:ff9b:1::7f00:1", K::Embedded),
            ("64:ff9b:1:ffff::1", K::Embedded),
            ("100::1", K::Reserved),
            ("2001::1", K::Embedded),
            ("2001:2::1", K::Benchmarking),
            ("2001:20::1", K::Reserved),
            ("2001:db8::1", K::Documentation),
            ("2002:7f00:1::1", K::Embedded),
            ("3fff::1", K::Documentation),
            ("3fff:fff:ffff::1", K::Documentation),
            ("4000::1", K::Reserved),
            ("5f00::1", K::Reserved),
            ("fc00::1", K::UniqueLocal),
            ("fdff::1", K::UniqueLocal),
            ("fd00:ec2::254", K::Metadata),
            ("fd20:ce::254", K::Metadata),
            ("fe80::1", K::LinkLocal),
            ("febf::1", K::LinkLocal),
            ("fec0::1", K::Private),
            ("ff02::1", K::Multicast),
        ] {
            check(address, Some(kind));
        }
    }

    #[test]
    fn the_neighbours_of_each_range_are_public() {
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2003::1",
            "2606:4700::1111",
            "3ffe::1",
            "3fff:1000::1",
        ] {
            check(address, None);
        }
    }

    #[test]
    fn localhost_means_two_addresses_at_one_port() {
        let rule: EgressRule = "http://localhost:8080".parse().unwrap();
        for (address, port, allowed) in [
            ("127.0.0.1", 8080, true),
            ("::1", 8080, true),
            ("127.0.0.1", 8081, false),
            ("127.0.0.2", 8080, false),
            ("::ffff:127.0.0.1", 8080, false),
            ("8.8.8.8", 8080, false),
        ] {
            assert_eq!(
                check_address(address.parse().unwrap(), port, &rule).is_ok(),
                allowed,
                "{address}:{port}"
            );
        }
    }

    #[test]
    fn a_refusal_prints_the_line_that_would_allow() {
        let refusal = check_address(
            "::1".parse().unwrap(),
            9000,
            &"http://x.example:9000".parse().unwrap(),
        );
        assert_eq!(
            refusal.unwrap_err().to_string(),
            "`x.example` is not allowed at `::1`: a loopback address; only a rule that names this very address and \
             port allows it: `http://[::1]:9000/`"
        );
    }
}
