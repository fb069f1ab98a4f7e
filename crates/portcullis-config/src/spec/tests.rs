use super::*;

fn spec() -> ServerSpec {
    let stdio = StdioSpec {
        env: BTreeMap::from([("A".to_owned(), Template::parse("1"))]),
        inherit_env: BTreeSet::from(["B".to_owned()]),
        ..StdioSpec::new("/bin/x", ["one", "two"])
    };
    ServerSpec::new("a".parse().unwrap(), stdio)
}

#[test]
fn whatever_matters_to_a_running_server_changes_its_fingerprint() {
    let stdio = |change: fn(&mut StdioSpec)| {
        let mut spec = spec();
        if let TransportSpec::Stdio(stdio) = &mut spec.transport {
            change(stdio);
        }
        spec
    };
    let with = |change: fn(&mut ServerSpec)| {
        let mut spec = spec();
        change(&mut spec);
        spec
    };
    let all = [
        spec(),
        stdio(|s| s.program = "/bin/y".into()),
        stdio(|s| s.args = vec![Template::parse("onetwo")]),
        stdio(|s| s.args.reverse()),
        stdio(|s| s.env = BTreeMap::from([("A".to_owned(), Template::parse("2"))])),
        stdio(|s| s.inherit_env = BTreeSet::from(["C".to_owned()])),
        stdio(|s| s.cwd = Some("/".into())),
        stdio(|s| s.args = vec![Template::parse("${X}")]),
        stdio(|s| s.args = vec![Template::literal("${X}")]),
        with(|s| s.id = "b".parse().unwrap()),
        with(|s| s.timeouts.call_max = Duration::from_secs(1)),
        with(|s| s.protocol = Protocol::Modern),
        with(|s| s.enabled = false),
        with(|s| s.disabled_tools = BTreeSet::from(["t".to_owned()])),
        with(|s| s.disabled_auto_approve_tools = BTreeSet::from(["t".to_owned()])),
        with(|s| s.isolation = Isolation::PerSession),
        with(|s| s.limits.tools = 1),
        with(|s| s.profile = Profile::Strict),
    ];
    let distinct: BTreeSet<_> = all.iter().map(ServerSpec::fingerprint).collect();
    assert_eq!(distinct.len(), all.len());
}

#[test]
fn the_way_to_a_server_counts_as_what_it_is_reached_by() {
    let with = |change: fn(&mut HttpSpec)| {
        let mut http = HttpSpec::new("https://example.com/mcp".parse().unwrap(), Egress::default());
        change(&mut http);
        let transport = TransportSpec::Http(http);
        ServerSpec { transport, ..spec() }
    };
    let proxy = |username: Option<&str>, password: Option<&str>| ProxySpec {
        url: "http://proxy.example.com:3128".parse().unwrap(),
        username: username.map(Template::parse),
        password: password.map(Template::parse),
    };
    let all = [
        with(|_| {}),
        with(|http| http.root_certificates = vec!["/a.pem".into()]),
        with(|http| http.root_certificates = vec!["/b.pem".into()]),
        with(|http| http.egress = Egress::from(vec!["example.com".parse().unwrap()])),
    ];
    let logins = [
        (None, None),
        (Some("a"), None),
        (Some("a"), Some("b")),
        (Some("ab"), None),
    ];
    let proxied = logins.map(|(username, password)| {
        let mut spec = with(|_| {});
        if let TransportSpec::Http(http) = &mut spec.transport {
            http.proxy = Some(Box::new(proxy(username, password)));
        }
        spec
    });
    let distinct: BTreeSet<_> = all
        .iter()
        .chain(&proxied)
        .map(ServerSpec::launch_fingerprint)
        .collect();
    assert_eq!(distinct.len(), all.len() + proxied.len());
}

#[test]
fn what_is_the_same_in_other_words_has_the_same_fingerprint() {
    let http = |headers: &[(&str, &str)], roots: &[&str], egress: &[&str]| {
        let rules: Vec<_> = egress.iter().map(|rule| rule.parse().unwrap()).collect();
        let mut http = HttpSpec::new("https://example.com/mcp".parse().unwrap(), rules);
        let headers = headers.iter();
        http.headers = headers
            .map(|(name, value)| ((*name).to_owned(), Template::parse(value)))
            .collect();
        http.root_certificates = roots.iter().map(PathBuf::from).collect();
        ServerSpec::new("a".parse().unwrap(), http).fingerprint()
    };
    let one = http(
        &[("X-A", "1"), ("b", "2")],
        &["/a", "/b"],
        &["a.example", "b.example"],
    );
    let same = http(
        &[("B", "2"), ("x-a", "1")],
        &["/b", "/a"],
        &["b.example", "a.example"],
    );
    assert_eq!(one, same);
    let other = http(
        &[("B", "1"), ("x-a", "2")],
        &["/b", "/a"],
        &["b.example", "a.example"],
    );
    assert_ne!(one, other);
    let mut both = spec();
    if let TransportSpec::Stdio(stdio) = &mut both.transport {
        stdio.inherit_env.insert("A".to_owned());
    }
    assert_eq!(both.fingerprint(), spec().fingerprint(), "`env` counts");
}

#[cfg(unix)]
#[test]
fn programs_whose_paths_are_no_text_are_told_apart() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

    let of = |name: &[u8]| {
        let path = Path::new("/bin").join(OsStr::from_bytes(name));
        let none: [&str; 0] = [];
        let stdio = StdioSpec::new(path, none);
        ServerSpec::new("a".parse().unwrap(), stdio).launch_fingerprint()
    };
    assert_ne!(of(b"x\xfe"), of(b"x\xff"));
}

#[test]
fn what_is_for_people_does_not_change_the_fingerprint() {
    let mut moved = spec();
    moved.origin = Origin {
        file: "x".to_owned(),
        line: 7,
        plugin: Some("p".to_owned()),
    };
    moved.description = Some("d".to_owned());
    moved.display_name = "A".to_owned();
    assert_eq!(moved.fingerprint(), spec().fingerprint());
    moved.id = "b".parse().unwrap();
    moved.disabled_tools = BTreeSet::from(["t".to_owned()]);
    assert_ne!(moved.fingerprint(), spec().fingerprint());
    assert_eq!(moved.launch_fingerprint(), spec().launch_fingerprint());
}

#[test]
fn secrets_that_stand_in_arguments_are_found() {
    let args = [
        "serve",
        "--token=abc-def",
        "--api-key",
        "ghi",
        "--verbose",
        "x",
        "X-Api-Key: Bearer jkl",
        "ghp_0123456789abcdefgh",
        "--header=X-Api-Key: Bearer mno",
        "--env=API_KEY=pqr",
        "--url=https://example.com/?api_key=stu",
        "--url=https://example.com/?page=2",
        "--set=a=b",
        "--header=X-Api-Key:vwx",
        "-H=X-Api-Key:yz",
        "--extra-header=X-Api-Key:hi",
        "--env=API_KEY:jk",
        // A colon has other uses in an option's value.
        "--sort=key:asc",
        "--select=password:hide",
        "--volume=key:/data",
    ];
    let stdio = StdioSpec::new("/bin/x", args);
    assert_eq!(
        stdio.secrets_in_args(),
        [
            "abc-def",
            "ghi",
            "jkl",
            "ghp_0123456789abcdefgh",
            "mno",
            "pqr",
            "https://example.com/?api_key=stu",
            "vwx",
            "yz",
            "hi",
            "jk"
        ]
    );
}

#[test]
fn no_secret_of_a_url_is_shown() {
    let url = "https://example.com/s/9f8e7d6c5b4a39281706f5e4d3c2b1a0/mcp?apiKey=canary&team=canary";
    let http = HttpSpec::new(url.parse().unwrap(), Egress::default());
    assert_eq!(http.shown_url(), "https://example.com/s/…/mcp?apiKey=…&team=…");
    assert!(!format!("{http:?}").contains("canary"));
}
