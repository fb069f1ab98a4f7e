//! The scripted server over HTTP, under the supervisor.

use portcullis_config::HttpSpec;
use portcullis_testkit::{BadReply, Behaviour, HttpReplies, HttpServer, Tool};

use super::*;

pub(super) fn reached(server: &HttpServer) -> ServerSpec {
    let mut spec = stdio("s", Path::new("/nowhere"), &[], &[]);
    let origin = format!("http://{}", server.address());
    spec.transport = TransportSpec::Http(HttpSpec {
        url: server.url().parse().unwrap(),
        headers: BTreeMap::new(),
        egress: vec![origin.parse().unwrap()].into(),
        proxy: None,
        root_certificates: Vec::new(),
    });
    spec
}

#[tokio::test]
async fn a_scripted_server_answers_over_http_as_over_stdio() {
    let script = Script::new("s")
        .tool(Tool::new("echo", Behaviour::Echo))
        .tool(Tool::new("slow", Behaviour::delay(100, Behaviour::Echo)))
        .tool(Tool::new("bad", Behaviour::BadReply(BadReply::NotANumber)))
        .tool(Tool::new("crash", Behaviour::crash(3)));
    for replies in [HttpReplies::Events, HttpReplies::Json] {
        let server = HttpServer::start(&script, replies).unwrap();
        let rig = Rig::start([reached(&server)]).await;
        let arguments = r#"{"n":1.10,"big":123456789012345678901234567890}"#;
        for tool in ["slow", "echo"] {
            let answer = rig.call("s", tool, arguments).await.unwrap();
            assert_eq!(text(&answer), arguments, "{replies:?}");
        }
        let fault = timeout(AT_ONCE, rig.call("s", "bad", "{}"))
            .await
            .unwrap()
            .unwrap_err();
        assert!(
            matches!(fault, CallFault::BadReply { .. }),
            "{replies:?}: {fault:?}"
        );
        let fault = timeout(AT_ONCE, rig.call("s", "crash", "{}"))
            .await
            .unwrap()
            .unwrap_err();
        assert!(
            matches!(fault, CallFault::OutcomeUnknown { .. }),
            "{replies:?}: {fault:?}"
        );
        // The session is gone; the next call opens another one.
        let answer = rig.call("s", "echo", arguments).await.unwrap();
        assert_eq!(text(&answer), arguments, "{replies:?}");
    }
}

/// The second of two replies goes to another stream, where it may be heard first: no call is lost between them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_answered_twice_are_answered() {
    let script = Script::new("s").tool(Tool::new("twice", Behaviour::BadReply(BadReply::Twice)));
    for replies in [HttpReplies::Events, HttpReplies::Json] {
        let server = HttpServer::start(&script, replies).unwrap();
        let rig = Rig::start([reached(&server)]).await;
        for _ in 0..100 {
            rig.call("s", "twice", "{}").await.unwrap();
        }
    }
}
