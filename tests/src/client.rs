use serde_json::{Value, json};

use crate::{Finished, Program, Running};

/// An MCP client at the program's standard input and output: lines of JSON, and no SDK.
#[derive(Debug)]
pub struct Client {
    running: Running,
    last_id: u64,
    /// What the server said unasked.
    pub notifications: Vec<Value>,
}

impl Client {
    /// Starts the program, which should be `serve --stdio`, and goes through the handshake (MCP 2025-11-25,
    /// lifecycle).
    #[track_caller]
    pub fn connect(program: Program) -> Self {
        Self::greet(program.start())
    }

    /// As [`connect`](Self::connect), with the program's standard input and error at a terminal.
    #[track_caller]
    pub fn connect_at_terminal(program: Program) -> Self {
        Self::greet(program.start_at_terminal())
    }

    /// As [`connect`](Self::connect), by a client that reads nothing of the program's standard error.
    #[track_caller]
    pub fn connect_unread(program: Program) -> Self {
        Self::greet(program.start_unread())
    }

    #[track_caller]
    fn greet(running: Running) -> Self {
        let mut client = Self {
            running,
            last_id: 0,
            notifications: Vec::new(),
        };
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "e2e", "version": "1"},
        });
        let reply = client.request("initialize", &params.to_string());
        let reply: Value = serde_json::from_str(&reply).unwrap();
        assert_eq!(reply["result"]["protocolVersion"], "2025-11-25", "{reply}");
        assert_eq!(reply["result"]["serverInfo"]["name"], "portcullis", "{reply}");
        assert!(reply["result"]["capabilities"]["tools"].is_object(), "{reply}");
        client
            .running
            .write_line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        client
    }

    /// Sends a request whose parameters are this very text; gives the reply's very text.
    #[track_caller]
    pub fn request(&mut self, method: &str, params: &str) -> String {
        self.last_id += 1;
        let id = self.last_id;
        self.running.write_line(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#
        ));
        loop {
            let line = self.running.line().expect("a reply comes before the end");
            let message: Value = serde_json::from_str(&line)
                .unwrap_or_else(|error| panic!("no JSON-RPC on standard output ({error}): {line}"));
            assert_eq!(message["jsonrpc"], "2.0", "{line}");
            match message.get("id") {
                Some(of) if *of == json!(id) => return line,
                Some(_) => panic!("a reply that nobody waits for: {line}"),
                None => self.notifications.push(message),
            }
        }
    }

    /// Calls a tool with arguments of this very text; gives the reply's very text.
    #[track_caller]
    pub fn call(&mut self, name: &str, arguments: &str) -> String {
        self.request(
            "tools/call",
            &format!(r#"{{"name":{},"arguments":{arguments}}}"#, json!(name)),
        )
    }

    pub fn running(&self) -> &Running {
        &self.running
    }

    pub fn running_mut(&mut self) -> &mut Running {
        &mut self.running
    }

    /// Leaves, and waits for the program's end.
    #[track_caller]
    pub fn leave(self) -> Finished {
        self.running.finish()
    }

    /// Leaves by what ends an input that is typed, and waits for the program's end.
    #[track_caller]
    pub fn hang_up(mut self) -> Finished {
        self.running.write_line("\u{4}");
        self.running.finish()
    }
}
