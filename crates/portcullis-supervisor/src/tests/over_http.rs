//! The scripted server over HTTP, under the supervisor.

use portcullis_config::HttpSpec;
use portcullis_testkit::{BadReply, Behaviour, HttpReplies, HttpServer, Tool, serve};

use super::*;

pub(super) fn reached(server: &HttpServer) -> ServerSpec {
    let origin = format!("http://{}", server.address());
    let http = HttpSpec::new(server.url().parse().unwrap(), vec![origin.parse().unwrap()]);
    of_older_era("s", http)
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

/// A hub with a server that plays `script`: as a process, and over HTTP in each form of reply.
async fn everywhere(script: &Script) -> Vec<(Rig, Option<HttpServer>)> {
    let mut rigs = Vec::new();
    for replies in [None, Some(HttpReplies::Events), Some(HttpReplies::Json)] {
        let http = replies.map(|replies| HttpServer::start(script, replies).unwrap());
        let spec = http.as_ref().map_or_else(|| scripted(script), reached);
        rigs.push((Rig::start([spec]).await, http));
    }
    rigs
}

/// Progress renews the idle deadline of a call, and not its cap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_makes_progress_is_waited_for_up_to_its_cap() {
    let progress = Behaviour::Progress {
        count: 14,
        interval_ms: 500,
        then: Box::new(Behaviour::Echo),
    };
    let script = Script::new("s").tool(Tool::new("t", progress));
    let within = |cap| Timeouts {
        // Far longer than a machine that does much else keeps progress waiting.
        call: Duration::from_secs(5),
        call_max: cap,
        ..Timeouts::uniform(PATIENCE)
    };
    let short = Duration::from_millis(5_500);
    let each = everywhere(&script)
        .await
        .into_iter()
        .map(|(rig, http)| async move {
            let ready = rig.ready("s").await;
            let answered = ready.call("t", "{}".into(), within(PATIENCE));
            let (answer, fault) = tokio::join!(answered, ready.call("t", "{}".into(), within(short)));
            assert_eq!(text(&answer.unwrap()), "{}");
            let expected = CallFault::TimedOut {
                after: short,
                sent: true,
            };
            assert_eq!(fault.unwrap_err(), expected);
            drop(http);
        });
    futures::future::join_all(each).await;
}

/// The result of a call of `tool`, as the script itself writes it.
fn written(script: &Script, tool: &str) -> String {
    #[derive(serde::Deserialize)]
    struct Reply {
        result: Box<serde_json::value::RawValue>,
    }
    let requests = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"2025-11-25"}}}}
{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"{tool}","arguments":{{}}}}}}
"#
    );
    let (replies, output) = std::io::pipe().unwrap();
    serve(script, std::io::Cursor::new(requests), output).unwrap();
    let replies = std::io::read_to_string(replies).unwrap();
    let reply: Reply = serde_json::from_str(replies.lines().nth(1).unwrap()).unwrap();
    reply.result.get().to_owned()
}

/// Report 31: content of every kind, known or not, comes in its order and as the server wrote it.
#[tokio::test]
async fn every_result_comes_as_its_server_wrote_it() {
    let (bytes, seed) = (1_000, 1);
    let odd = r#"{"content":[{"type":"text","text":"a","text2":null}],"tools":[7],"contents":1.10,"big":123456789012345678901}"#;
    let tools = [
        ("sound", Behaviour::Audio { bytes, seed }),
        ("blob", Behaviour::EmbeddedBlob { bytes, seed }),
        ("twin", Behaviour::Twin { bytes, seed }),
        ("unknown", Behaviour::UnknownBlock),
        ("none", Behaviour::NoContent),
        ("odd", Behaviour::Raw(odd.to_owned())),
    ];
    let script = tools.iter().fold(Script::new("s"), |script, (name, behaviour)| {
        script.tool(Tool::new(name, behaviour.clone()))
    });
    assert!(written(&script, "unknown").contains("video"));
    for (rig, _http) in everywhere(&script).await {
        for (name, _) in &tools {
            assert_eq!(rig.call("s", name, "{}").await.unwrap(), written(&script, name));
        }
    }
}
