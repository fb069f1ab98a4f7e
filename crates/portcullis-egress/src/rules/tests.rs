use super::*;

/// `expected` is `ok` or the refusal's code.
fn check(rules: &[&str], cases: &[(&str, &str)]) {
    let rules = EgressRules::new(rules.iter().map(|rule| rule.parse().unwrap()).collect());
    for (url, expected) in cases {
        let url = Url::parse(url).unwrap();
        let answer = rules
            .check_url(&url)
            .map_or_else(|refusal| refusal.code(), |_| "ok");
        assert_eq!(answer, *expected, "{url}");
    }
}

#[test]
fn without_rules_nothing_is_allowed() {
    check(
        &[],
        &[
            ("https://example.com/", "host_not_allowed"),
            ("http://127.0.0.1/", "host_not_allowed"),
        ],
    );
}

#[test]
fn scheme_host_and_port_all_count() {
    check(
        &["example.com", "http://plain.example:8080"],
        &[
            ("https://example.com/any/path?q#f", "ok"),
            ("https://EXAMPLE.com./", "ok"),
            ("https://example.com:443/", "ok"),
            ("http://example.com/", "scheme_not_allowed"),
            ("https://example.com:8443/", "port_not_allowed"),
            ("https://sub.example.com/", "host_not_allowed"),
            ("https://example.com.evil.test/", "host_not_allowed"),
            ("https://example.com../", "no_host"),
            ("https://evil.test/example.com", "host_not_allowed"),
            ("https://example.com@evil.test/", "credentials_in_url"),
            ("https://user:secret@example.com/", "credentials_in_url"),
            ("http://plain.example:8080/", "ok"),
            ("http://plain.example/", "port_not_allowed"),
            ("ftp://example.com/", "scheme_unsupported"),
            ("file:///etc/passwd", "scheme_unsupported"),
            ("ws://example.com/", "scheme_unsupported"),
        ],
    );
}

#[test]
fn a_refusal_shows_no_key_of_a_path() {
    let key = "9f8e7d6c5b4a39281706";
    for (rule, url) in [
        ("https://a.test/mcp", format!("https://a.test/s/{key}/x")),
        ("https://a.test/s", format!("https://a.test/s/{key}/%2e%2e%2f")),
        ("GET https://a.test/s", format!("https://a.test/s/{key}")),
    ] {
        let rules = EgressRules::new(vec![rule.parse().unwrap()]);
        let refusal = rules
            .check_request("POST", &Url::parse(&url).unwrap())
            .unwrap_err();
        let shown = format!("{refusal} {refusal:?}");
        assert!(!shown.contains(key) && shown.contains("/s/…"), "{shown}");
    }
    let long = Url::parse("https://a.test/mcp/streamable-http-endpoint/v1").unwrap();
    assert_eq!(shown_path(&long), long.path());
}

#[test]
fn a_suffix_is_every_name_below_and_no_address() {
    check(
        &["*.example.com", "*.1"],
        &[
            ("https://a.example.com/", "ok"),
            ("https://a.b.example.com/", "ok"),
            ("https://example.com/", "host_not_allowed"),
            ("https://badexample.com/", "host_not_allowed"),
            ("https://.example.com/", "no_host"),
            ("https://127.0.0.1/", "host_not_allowed"),
        ],
    );
}

#[test]
fn names_are_compared_after_idna() {
    check(
        &["bücher.example", "xn--mnchen-3ya.example", "FULLWIDTH.example"],
        &[
            ("https://xn--bcher-kva.example/", "ok"),
            ("https://BÜCHER.example/", "ok"),
            ("https://münchen.example/", "ok"),
            ("https://ｆｕｌｌｗｉｄｔｈ.example/", "ok"),
            ("https://bucher.example/", "host_not_allowed"),
            ("https://b\u{fc}cher\u{3002}example/", "ok"),
        ],
    );
}

#[test]
fn a_path_prefix_ends_at_a_segment_and_cannot_be_left() {
    check(
        &["https://a.test/mcp", "https://b.test/x/"],
        &[
            ("https://a.test/mcp", "ok"),
            ("https://a.test/mcp/", "ok"),
            ("https://a.test/mcp/v1?q=..", "ok"),
            ("https://a.test/mcpx", "path_not_allowed"),
            ("https://a.test/", "path_not_allowed"),
            ("https://a.test/MCP", "path_not_allowed"),
            ("https://a.test/mcp/../admin", "path_not_allowed"),
            ("https://a.test/mcp/%2e%2e/admin", "path_not_allowed"),
            ("https://a.test/mcp\\..\\admin", "path_not_allowed"),
            ("https://a.test/mcp/..%2fadmin", "path_ambiguous"),
            ("https://a.test/mcp/..%5cadmin", "path_ambiguous"),
            ("https://a.test/mcp/%252e%252e/admin", "path_ambiguous"),
            ("https://a.test/mcp/..;/admin", "path_ambiguous"),
            ("https://a.test/mcp/x%00/", "path_ambiguous"),
            ("https://b.test/x/y", "ok"),
            ("https://b.test/x", "path_not_allowed"),
        ],
    );
}

#[test]
fn a_method_needs_a_rule_that_names_it_or_names_none() {
    let lines = ["post,GET https://a.test/mcp", "https://a.test/any"];
    let rules = EgressRules::new(lines.iter().map(|rule| rule.parse().unwrap()).collect());
    for (method, path, expected) in [
        ("POST", "mcp/x", "ok"),
        ("GET", "mcp", "ok"),
        ("DELETE", "mcp", "method_not_allowed"),
        ("post", "mcp", "method_not_allowed"),
        ("DELETE", "any", "ok"),
        ("POST", "other", "path_not_allowed"),
    ] {
        let url = Url::parse(&format!("https://a.test/{path}")).unwrap();
        let answer = rules.check_request(method, &url);
        assert_eq!(
            answer.as_ref().map_or_else(|refusal| refusal.code(), |_| "ok"),
            expected,
            "{method} {path}"
        );
        // The line to add does allow it.
        if let Err(Refusal::Method { add, .. }) = &answer {
            let rules = EgressRules::new(vec![add.parse().unwrap()]);
            assert!(rules.check_request(&method.to_uppercase(), &url).is_ok(), "{add}");
        }
        assert!(rules.check_url(&url).is_ok() || expected == "path_not_allowed");
    }
}

#[test]
fn what_the_hub_does_not_allow_no_server_gets() {
    let hub = ["GET *.test", "http://10.0.0.5:80"].map(|rule| rule.parse().unwrap());
    let own = [
        "https://a.test",
        "b.example",
        "http://corp.test",
        "http://10.0.0.5:80",
    ];
    let rules = EgressRules::new(own.iter().map(|rule| rule.parse().unwrap()).collect())
        .within(EgressRules::new(hub.to_vec()));
    for (method, url, expected) in [
        ("GET", "https://a.test/", "ok"),
        ("POST", "https://a.test/", "hub method_not_allowed"),
        ("GET", "https://c.test/", "host_not_allowed"),
        ("GET", "https://b.example/", "hub host_not_allowed"),
        ("GET", "http://corp.test/", "hub scheme_not_allowed"),
        ("GET", "http://10.0.0.5/", "ok"),
    ] {
        let answer = match rules.check_request(method, &Url::parse(url).unwrap()) {
            Ok(_) => "ok".to_owned(),
            Err(refusal @ Refusal::Hub(_)) => format!("hub {}", refusal.code()),
            Err(refusal) => refusal.code().to_owned(),
        };
        assert_eq!(answer, expected, "{method} {url}");
    }
    assert!(rules.check_resolved("a.test", "8.8.8.8".parse().unwrap()).is_ok());
    let refusal = rules.check_resolved("corp.test", "10.0.0.5".parse().unwrap());
    assert!(matches!(refusal, Err(Refusal::Hub(_))), "{refusal:?}");
}

#[test]
fn a_literal_address_needs_a_rule_that_names_it() {
    check(
        &[
            "http://127.0.0.1:8080",
            "http://[::1]:8080",
            "http://localhost:9090",
            "8.8.8.8",
        ],
        &[
            ("http://127.0.0.1:8080/", "ok"),
            ("http://2130706433:8080/", "ok"),
            ("http://[::1]:8080/", "ok"),
            ("http://[0:0::1]:8080/", "ok"),
            ("http://[::ffff:127.0.0.1]:8080/", "host_not_allowed"),
            ("http://127.0.0.2:8080/", "host_not_allowed"),
            ("http://127.0.0.1:8081/", "port_not_allowed"),
            ("http://localhost:8080/", "port_not_allowed"),
            ("http://localhost.:9090/", "ok"),
            ("https://8.8.8.8/", "ok"),
            ("https://8.8.4.4/", "host_not_allowed"),
        ],
    );
}

#[test]
fn a_rule_that_cannot_be_read_matches_nothing_and_is_reported() {
    let rules = [
        "https://a.test/x/../..",
        "https://a.test/%2e%2e",
        "https://a.test/x?y",
        "xn--\u{fffd}.test",
    ];
    let rules = EgressRules::new(rules.iter().filter_map(|rule| rule.parse().ok()).collect());
    assert_eq!(rules.unusable().count(), 4);
    assert!(rules.check_url(&Url::parse("https://a.test/").unwrap()).is_err());
}

#[test]
fn a_resolved_name_must_be_public_or_named_by_address() {
    let rules = [
        "https://api.test",
        "http://corp.test:8080",
        "http://10.0.0.5:8080",
        "http://localhost:9090",
        "http://10.0.0.7:9090",
        "https://10.0.0.8:8080",
    ];
    let rules = EgressRules::new(rules.iter().map(|rule| rule.parse().unwrap()).collect());
    for (host, address, expected) in [
        ("api.test", "8.8.8.8", "ok"),
        ("API.test.", "8.8.8.8", "ok"),
        ("api.test", "10.0.0.5", "address_not_allowed"),
        ("api.test", "::1", "address_not_allowed"),
        ("corp.test", "10.0.0.5", "ok"),
        ("corp.test", "10.0.0.6", "address_not_allowed"),
        // Named for the other scheme.
        ("corp.test", "10.0.0.8", "address_not_allowed"),
        ("localhost", "127.0.0.1", "ok"),
        ("localhost", "8.8.8.8", "address_not_allowed"),
        // It means two addresses, whatever else may be connected to.
        ("localhost", "10.0.0.7", "address_not_allowed"),
        ("other.test", "8.8.8.8", "host_not_allowed"),
    ] {
        let answer = rules.check_resolved(host, address.parse().unwrap());
        assert_eq!(
            answer.map_or_else(|refusal| refusal.code(), |()| "ok"),
            expected,
            "{host} at {address}"
        );
    }
}

#[test]
fn a_host_with_two_rules_needs_the_address_at_both_ports() {
    let rules = [
        "http://corp.test:80",
        "http://corp.test:8080",
        "http://10.0.0.5:8080",
    ];
    let rules = EgressRules::new(rules.iter().map(|rule| rule.parse().unwrap()).collect());
    assert!(
        rules
            .check_resolved("corp.test", "10.0.0.5".parse().unwrap())
            .is_err()
    );
}

#[test]
fn a_refusal_never_shows_a_query_or_a_password() {
    let rules = EgressRules::new(vec!["https://a.test/mcp".parse().unwrap()]);
    for url in [
        "https://u:hunter2@a.test/?t=hunter2",
        "https://a.test/x?t=hunter2",
        "https://b.test/?hunter2",
    ] {
        let refusal = rules.check_url(&Url::parse(url).unwrap()).unwrap_err();
        assert!(!format!("{refusal} {refusal:?}").contains("hunter2"), "{refusal}");
    }
}
