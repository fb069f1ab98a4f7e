//! HTTP servers: nothing is reached that no rule allows.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener},
    thread,
};

use portcullis_e2e::Folder;

use crate::portcullis;

/// A listener on loopback, with its port.
fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Nobody has come to this listener.
#[track_caller]
fn check_untouched(trap: &TcpListener) {
    trap.set_nonblocking(true).unwrap();
    let came = trap.accept();
    assert!(
        came.as_ref()
            .is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock),
        "somebody came: {came:?}"
    );
}

#[test]
fn a_host_that_no_rule_allows_is_refused_with_the_line_to_add() {
    let (trap, port) = listen();
    let folder = Folder::new();
    let config = |allowed: &str| {
        format!(
            "mcp:\n  allowedHosts: [{allowed}]\n  servers:\n    - name: far\n      url: http://127.0.0.1:{port}/mcp\n"
        )
    };
    for allowed in [
        "",
        "\"https://mcp.example.com\"",
        &format!("\"https://127.0.0.1:{port}\""),
    ] {
        folder.write("hub.yaml", config(allowed));
        let checked = portcullis(&folder, &["check", "hub.yaml", "--format", "json"])
            .run()
            .exits(3)
            .json();
        let found = &checked["diagnostics"][0];
        assert_eq!(
            (found["code"].as_str(), found["line"].as_u64()),
            (Some("host-not-allowed"), Some(5)),
            "{checked}"
        );
        let help = found["help"].as_str().unwrap();
        assert!(
            help.contains(&format!("http://127.0.0.1:{port}")),
            "the line to add: {help}"
        );
        let refused = portcullis(&folder, &["tools", "--config", "hub.yaml"])
            .run()
            .exits(3);
        assert!(refused.stderr.contains("hub.yaml:5:"), "{}", refused.stderr);
        assert!(refused.stderr.contains("allowedHosts"), "{}", refused.stderr);
    }
    check_untouched(&trap);
    // The line that was named is the line that helps.
    folder.write("hub.yaml", config(&format!("\"http://127.0.0.1:{port}\"")));
    portcullis(&folder, &["check", "hub.yaml"]).run().exits(0);
}

#[test]
fn a_server_that_sends_the_hub_elsewhere_is_not_followed() {
    let ((server, port), (trap, elsewhere)) = (listen(), listen());
    // Ends with the test's process, as its listener does.
    thread::spawn(move || {
        for stream in server.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4_096]);
            let answer = format!(
                "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:{elsewhere}/mcp\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let folder = Folder::new();
    folder.write(
        "hub.yaml",
        format!(
            "mcp:\n  allowedHosts: [\"http://127.0.0.1:{port}\"]\n  servers:\n    - name: sly\n      url: http://127.0.0.1:{port}/mcp\n"
        ),
    );
    let finished = portcullis(&folder, &["tools", "--config", "hub.yaml"])
        .run()
        .exits(6);
    assert!(
        finished.stderr.contains(&format!("127.0.0.1:{elsewhere}"))
            && finished.stderr.contains("not allowed"),
        "{}",
        finished.stderr
    );
    check_untouched(&trap);
}

#[test]
fn no_proxy_of_the_environment_is_used() {
    let ((server, port), (trap, proxy)) = (listen(), listen());
    thread::spawn(move || {
        for stream in server.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4_096]);
            let _ = stream.write_all(b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    let folder = Folder::new();
    folder.write(
        "mcp.json",
        format!(r#"{{"mcpServers": {{"far": {{"url": "http://127.0.0.1:{port}/mcp"}}}}}}"#),
    );
    let proxy = format!("http://127.0.0.1:{proxy}");
    let finished = portcullis(&folder, &["tools", "--config", "mcp.json"])
        .env("HTTP_PROXY", &proxy)
        .env("http_proxy", &proxy)
        .env("ALL_PROXY", &proxy)
        .run()
        .exits(6);
    assert!(
        finished.stderr.contains("410"),
        "the server itself was reached: {}",
        finished.stderr
    );
    check_untouched(&trap);
}

#[test]
fn a_configured_proxy_is_used_where_a_rule_allows_it_and_only_there() {
    let ((proxy, port), (trap, elsewhere)) = (listen(), listen());
    thread::spawn(move || {
        for stream in proxy.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut bytes = [0; 4_096];
            let read = stream.read(&mut bytes).unwrap_or(0);
            // The whole url stands where else a path does.
            let asked = bytes[..read].starts_with(b"POST http://mcp.example.test/mcp ");
            let status: &[u8] = if asked { b"410 Gone" } else { b"400 Bad Request" };
            let rest = b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(&[b"HTTP/1.1 ", status, rest].concat());
        }
    });
    let folder = Folder::new();
    let config = |allowed: &str, proxy: u16| {
        format!(
            "mcp:\n  allowedHosts: [\"http://mcp.example.test\"{allowed}]\n  proxy: http://127.0.0.1:{proxy}\n  servers:\n    - name: far\n      url: http://mcp.example.test/mcp\n"
        )
    };
    folder.write("hub.yaml", config("", elsewhere));
    let refused = portcullis(&folder, &["tools", "--config", "hub.yaml"])
        .run()
        .exits(3);
    assert!(
        refused.stderr.contains("hub.yaml:3:") && refused.stderr.contains("the proxy is"),
        "{}",
        refused.stderr
    );
    check_untouched(&trap);
    folder.write(
        "hub.yaml",
        config(&format!(", \"CONNECT http://127.0.0.1:{port}\""), port),
    );
    let checked = portcullis(&folder, &["check", "hub.yaml"]).run().exits(0);
    assert!(
        checked
            .stdout
            .contains(&format!(", through http://127.0.0.1:{port}/, may reach")),
        "{}",
        checked.stdout
    );
    let finished = portcullis(&folder, &["tools", "--config", "hub.yaml"])
        .env("HTTP_PROXY", &format!("http://127.0.0.1:{elsewhere}"))
        .env("NO_PROXY", "*")
        .run()
        .exits(6);
    assert!(finished.stderr.contains("410"), "{}", finished.stderr);
    check_untouched(&trap);
}
