use std::collections::BTreeMap;

use portcullis_types::{EgressRule, HostPattern};
use secrecy::ExposeSecret;
use url::{Host, Url};

use super::{Context, literal_secret, network, open_text, template};
use crate::{
    Code, Egress, HttpSpec, Sources, Template,
    draft::{Draft, EgressSource},
    network::ProxyDraft,
    secrets,
    source::{Sink, quote},
    value::Span,
};

pub(super) fn build(draft: &Draft, context: &Context<'_>, sink: &mut Sink<'_>) -> Option<HttpSpec> {
    let headers = headers(draft, context, sink);
    let text = draft.url.as_ref()?;
    let written = open_text(draft, text, "url", context, sink)?;
    let url = parse(&written, text.span, sink)?;
    let refers = Template::parse(&text.value).has_references();
    for (name, value) in url.query_pairs().filter(|_| !refers) {
        let secret = secrets::name(&name, context.options) || secrets::looks_secret(&value);
        if secret && !value.is_empty() {
            let message = format!(
                "the url's parameter {} holds a secret in the document itself",
                quote(&name)
            );
            sink.warning(
                Code::LiteralSecret,
                text.span,
                message,
                "send it in `headers`, if the server takes it there",
            );
        }
    }
    let loopback = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name.trim_end_matches('.') == "localhost",
        None => false,
    };
    if url.scheme() == "http" && !loopback && !headers.is_empty() {
        let message = "the server's headers go over an unencrypted connection";
        sink.warning(
            Code::PlainHttp,
            text.span,
            message,
            "use `https://` if the server offers it",
        );
    }
    let rule = rule_for(&url);
    let egress = match context.egress {
        EgressSource::Derived => Egress::from(vec![rule]),
        EgressSource::Listed => {
            let own = draft.egress.iter().map(|rule| rule.value.clone());
            let rules = context.allowed_hosts.with(own.collect());
            if !rules.iter().any(|rule| covers(rule, &url)) {
                let message = format!("the url leads to {}, which is not allowed", quote(&short(&rule)));
                let help = format!(
                    "add `- \"{}\"` to `allowedHosts`, or to the server's `egress`",
                    short(&rule)
                );
                sink.error(Code::HostNotAllowed, text.span, message, help);
            }
            rules
        }
    };
    let proxy = network::proxy(draft, &egress, context, sink).ok()?;
    if loopback && let Some(ProxyDraft::Through(through)) = &draft.network.proxy {
        let message = "`proxy` has no effect: an address of this machine is connected to directly";
        sink.warning(Code::IgnoredField, through.url.span, message, "take it out");
    }
    Some(HttpSpec {
        url,
        headers,
        egress,
        proxy: proxy.map(Box::new),
        root_certificates: network::root_certificates(draft, context, sink),
    })
}

/// The rule for the url of a server that is reached at the very url that its document gives, if that can be told.
pub(crate) fn derived_rule(draft: &Draft, context: &Context<'_>) -> Option<EgressRule> {
    let template = Template::parse(&draft.url.as_ref()?.value);
    let written = template.resolve(context.environment as &dyn Sources).ok()?;
    let url = Url::parse(written.expose_secret()).ok()?;
    url.host().is_some().then(|| rule_for(&url))
}

fn parse(written: &str, span: Span, sink: &mut Sink<'_>) -> Option<Url> {
    // A url is quoted nowhere: it may hold a secret in its user, its path or its query.
    let mut refuse = |message: &str, help: &str| sink.error(Code::BadUrl, span, message, help);
    let url = match Url::parse(written) {
        Ok(url) => url,
        Err(error) => {
            refuse(
                &format!("`url` is no url: {error}"),
                "write it whole: `https://host/path`",
            );
            return None;
        }
    };
    let before = written.split(['/', '?', '#']).next().unwrap_or_default();
    if !matches!(url.scheme(), "http" | "https") {
        let message = format!("`url` has the scheme {}", quote(url.scheme()));
        refuse(
            &message,
            "MCP over the network is streamable HTTP: write `https://…` or `http://…`",
        );
    } else if url.host().is_none() || !before.ends_with(':') || !written.contains("://") {
        refuse("`url` names no host", "write it whole: `https://host/path`");
    } else if !url.username().is_empty() || url.password().is_some() {
        refuse(
            "`url` holds a user or a password",
            "send it in `headers`, as `Authorization`",
        );
    } else if url.fragment().is_some() {
        refuse(
            "`url` holds a fragment (`#…`), which is never sent",
            "take it out",
        );
    } else if rule_for(&url).to_string().parse().ok() != Some(rule_for(&url)) {
        refuse(
            "`url` has a host that no egress rule can name",
            "write the host as letters, digits, `-` and `.`",
        );
    } else if url.port() == Some(0) {
        refuse("`url` has the port 0", "give the port that the server listens on");
    } else {
        return Some(url);
    }
    None
}

fn headers(draft: &Draft, context: &Context<'_>, sink: &mut Sink<'_>) -> BTreeMap<String, Template> {
    let mut headers = BTreeMap::new();
    let mut seen: BTreeMap<String, Span> = BTreeMap::new();
    for pair in &draft.headers {
        let name = &pair.name.value;
        let quoted = quote(name);
        let field = format!("headers.{}", quoted.trim_matches('`'));
        // RFC 9110, section 5.6.2: a field name is a token.
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty() || !name.bytes().all(token) {
            let message = format!("{quoted} is no name that a header can have");
            sink.error(
                Code::BadValue,
                pair.name.span,
                message,
                "use letters, digits and `-`",
            );
            continue;
        }
        if let Some(first) = seen.insert(name.to_ascii_lowercase(), pair.name.span) {
            let line = sink.source().line(first);
            let message = format!("{quoted} is the header of line {line} in other letters");
            sink.error(Code::DuplicateKey, pair.name.span, message, "keep one of the two");
        }
        if reserved(name) {
            let message = format!("{quoted} is set by the hub itself, for each request");
            sink.error(Code::BadValue, pair.name.span, message, "take it out");
        }
        let value = template(
            draft,
            |c| c.is_control() && c != '\t',
            &pair.value,
            &field,
            context,
            sink,
        );
        if secrets::holds(&pair.value.value, secrets::name(name, context.options)) {
            literal_secret(pair.value.span, &field, &secrets::capitals(name), sink);
        }
        headers.insert(name.clone(), value);
    }
    headers
}

/// Headers that frame the request, or that MCP's streamable HTTP transport sets.
fn reserved(name: &str) -> bool {
    const NAMES: [&str; 8] = [
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "content-type",
        "mcp-session-id",
        "mcp-protocol-version",
        "last-event-id",
    ];
    NAMES.iter().any(|reserved| name.eq_ignore_ascii_case(reserved))
}

/// The rule that allows this url's scheme, host and port, and nothing else.
pub(super) fn rule_for(url: &Url) -> EgressRule {
    let scheme = url.scheme().to_owned();
    let port = url.port_or_known_default().unwrap_or(443);
    EgressRule {
        scheme,
        host: HostPattern::Exact(host(url)),
        port,
        path_prefix: "/".to_owned(),
        methods: Default::default(),
    }
}

fn host(url: &Url) -> String {
    match url.host() {
        Some(Host::Domain(name)) => name.trim_end_matches('.').to_ascii_lowercase(),
        Some(Host::Ipv4(address)) => address.to_string(),
        Some(Host::Ipv6(address)) => address.to_string(),
        None => String::new(),
    }
}

/// Whether a rule lets this very url through. What is connected to is decided again, hop by hop, when it is.
pub(super) fn covers(rule: &EgressRule, url: &Url) -> bool {
    let host = host(url);
    let host_matches = match &rule.host {
        HostPattern::Exact(exact) => *exact == host,
        HostPattern::Suffix(suffix) => {
            url.domain().is_some()
                && host
                    .strip_suffix(suffix.as_str())
                    .is_some_and(|name| name.len() > 1 && name.ends_with('.'))
        }
    };
    let path_matches = match url.path().strip_prefix(rule.path_prefix.as_str()) {
        Some(rest) => rest.is_empty() || rest.starts_with('/') || rule.path_prefix.ends_with('/'),
        None => false,
    };
    rule.scheme == url.scheme()
        && Some(rule.port) == url.port_or_known_default()
        && host_matches
        && path_matches
}

/// A rule as a person would write it: the host alone where all else is the default.
pub(super) fn short(rule: &EgressRule) -> String {
    let whole = rule.to_string();
    let whole = whole.strip_suffix('/').unwrap_or(&whole);
    if rule.scheme != "https" {
        return whole.to_owned();
    }
    let host = whole.strip_prefix("https://").unwrap_or(whole);
    if rule.port == 443 {
        host.strip_suffix(":443").unwrap_or(host).to_owned()
    } else {
        whole.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_covers_what_it_says_and_nothing_beside() {
        for (rule, url, covered) in [
            ("example.com", "https://example.com/mcp", true),
            ("example.com", "https://EXAMPLE.com./mcp", true),
            ("example.com", "http://example.com/mcp", false),
            ("example.com", "https://example.com:8443/mcp", false),
            ("example.com", "https://a.example.com/mcp", false),
            ("example.com", "https://example.com.evil.test/", false),
            ("*.example.com", "https://a.b.example.com/", true),
            ("*.example.com", "https://example.com/", false),
            ("*.example.com", "https://badexample.com/", false),
            ("https://example.com/mcp", "https://example.com/mcp/v1", true),
            ("https://example.com/mcp", "https://example.com/mcpx", false),
            (
                "https://example.com/mcp",
                "https://example.com/mcp/../admin",
                false,
            ),
            ("http://[::1]:9000", "http://[0:0::1]:9000/mcp", true),
            ("http://127.0.0.1:80", "http://0x7f.1/", true),
        ] {
            assert_eq!(
                covers(&rule.parse().unwrap(), &Url::parse(url).unwrap()),
                covered,
                "{rule} {url}"
            );
        }
    }

    #[test]
    fn the_line_to_add_covers_the_url_that_asked_for_it() {
        for (url, line) in [
            ("https://example.com/mcp?x=1", "example.com"),
            ("https://example.com:8443/mcp", "https://example.com:8443"),
            ("http://127.0.0.1:8080/mcp", "http://127.0.0.1:8080"),
            ("https://[2001:db8::1]/", "[2001:db8::1]"),
        ] {
            let url = Url::parse(url).unwrap();
            assert_eq!(short(&rule_for(&url)), line);
            assert!(covers(&line.parse().unwrap(), &url), "{line}");
        }
    }
}
