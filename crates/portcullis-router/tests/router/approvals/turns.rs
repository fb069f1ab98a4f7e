//! What let a call run may be gone by the time that its turn comes.

use futures::poll;
use portcullis_router::HookAnswer;
use tokio::task::JoinHandle;

use super::{super::calls::Answers, *};

/// A server to which as many calls are on their way as are let in at a time.
struct Crowded {
    rig: Rig,
    others: Vec<JoinHandle<()>>,
}

/// A call that waits behind them.
struct Waiting {
    rig: Rig,
    others: Vec<JoinHandle<()>>,
    call: JoinHandle<String>,
    /// What was decided first.
    first: serde_json::Value,
}

impl Crowded {
    /// Calls of `busy` have all places.
    async fn start(mut rig: Rig) -> Self {
        let places = 64;
        let others = (0..places).map(|_| {
            let router = Arc::clone(&rig.router);
            tokio::spawn(async move {
                let call = CallRequest::new("mcp.s.busy".parse().unwrap(), "{}");
                let _ = router.call(call).await;
            })
        });
        let others = others.collect();
        for _ in 0..places {
            rig.until(|event| event["event"] == "tool.call").await;
        }
        Self { rig, others }
    }

    /// Then `t` is called, and decided on.
    async fn call(self) -> Waiting {
        let Self { mut rig, others } = self;
        let router = Arc::clone(&rig.router);
        let call = tokio::spawn(async move {
            let call = CallRequest::new("mcp.s.t".parse().unwrap(), "{}");
            outcome_of(timeout(PATIENCE, router.call(call)).await.unwrap())
        });
        rig.until(|event| event["event"] == "permission" && event["capability"] == "mcp.s.t")
            .await;
        let first = serde_json::to_value(&**rig.heard.last().unwrap()).unwrap();
        Waiting {
            rig,
            others,
            call,
            first,
        }
    }
}

impl Waiting {
    async fn start(rig: Rig) -> Self {
        Crowded::start(rig).await.call().await
    }

    /// Makes room, and tells how the call ends.
    async fn goes_on(self) -> String {
        self.others.first().unwrap().abort();
        let ended = self.call.await.unwrap();
        self.others.iter().for_each(JoinHandle::abort);
        self.rig.router.shutdown().await.unwrap();
        ended
    }
}

fn crowded(received: &Path) -> ServerSpec {
    let script = Script::new("s")
        .tool(Tool::new("t", Behaviour::Echo))
        .tool(Tool::new("u", Behaviour::Echo))
        .tool(Tool::new("busy", Behaviour::Mute))
        .record_received(received);
    scripted(&script)
}

/// How often the server was told to run `t`.
fn times_run(received: &Path) -> usize {
    let received = std::fs::read_to_string(received).unwrap();
    received.matches(r#""name":"t""#).count()
}

#[tokio::test]
async fn policies_that_take_over_while_a_call_waits_for_its_turn_decide_on_it() {
    let root = tempfile::tempdir().unwrap();
    let (received, folder) = (root.path().join("received"), root.path().join("policies"));
    for (after, expected) in [
        ("allow mcp.s.busy\ndeny mcp.s.t\n", "denied"),
        ("allow mcp.s.busy\nask mcp.s.t\n", "refused"),
        ("allow mcp.s.*\ndeny mcp.z.*\n", "policies"),
    ] {
        #[expect(clippy::disallowed_methods, reason = "a test lays out a folder")]
        std::fs::create_dir_all(&folder).unwrap();
        write(&folder, "a.rules", "allow mcp.s.*\n");
        let options = from_folder(&folder, &Desk::new([]));
        let rig = Rig::start_options(crowded(&received), options).await;
        let waiting = Waiting::start(rig).await;
        write(&folder, "a.rules", after);
        assert_eq!(waiting.rig.router.reload_policies().await, PolicyReload::Taken);
        assert_eq!(waiting.goes_on().await, expected, "{after}");
        let runs = if expected == "policies" { 1 } else { 0 };
        assert_eq!(times_run(&received), runs, "{after}");
    }
}

/// The place that a call got by then is another's while somebody is asked about it.
#[tokio::test]
async fn nobody_waits_for_a_server_because_a_person_thinks() {
    let (root, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(folder.path(), "a.rules", "allow mcp.s.*\n");
    let desk = Desk::slow([]);
    let options = from_folder(folder.path(), &desk);
    let rig = Rig::start_options(crowded(&root.path().join("received")), options).await;
    let waiting = Waiting::start(rig).await;
    write(
        folder.path(),
        "a.rules",
        "allow mcp.s.busy\nallow mcp.s.u\nask mcp.s.t\n",
    );
    assert_eq!(waiting.rig.router.reload_policies().await, PolicyReload::Taken);
    waiting.others.first().unwrap().abort();
    timeout(PATIENCE, desk.question.notified()).await.unwrap();
    waiting.rig.call("u", "{}").await.unwrap();
    waiting.call.abort();
    waiting.others.iter().for_each(JoinHandle::abort);
}

/// How far off a time is that a test waits for. It is chosen once all is up, so it need not be long.
pub(super) const SOON_MS: i64 = 3_000;

/// A policy on calls of `t`, of which `{T}` in `head` is a point in time.
pub(super) fn by_time(head: &str, until_ms: i64) -> String {
    let time = format!("datetime(\"1970-01-01\").offset(duration(\"{until_ms}ms\"))");
    let head = head
        .replace("{T}", &time)
        .replace("{t}", "Mcp::Tool::\"mcp.s.t\"");
    format!("@id(\"soon\") @description(\"For a moment.\")\n{head};\n")
}

/// Waits until the wall clock, by which policies go and which no test can put forward, is past a time.
pub(super) async fn past(until_ms: i64) {
    while let Ok(left_ms @ 0..) = u64::try_from(until_ms - now_ms()) {
        tokio::time::sleep(Duration::from_millis(left_ms + 1)).await;
    }
}

/// Lets `policy` take over.
pub(super) async fn add(router: &Router, folder: &Path, policy: &str) {
    write(folder, "soon.cedar", policy);
    assert_eq!(router.reload_policies().await, PolicyReload::Taken);
}

#[tokio::test]
async fn a_time_that_is_over_when_its_turn_comes_lets_nothing_run() {
    let (root, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let received = root.path().join("received");
    write(folder.path(), "team.rules", "default deny\nallow mcp.s.busy\n");
    let options = from_folder(folder.path(), &Desk::new([]));
    let crowded = Crowded::start(Rig::start_options(crowded(&received), options).await).await;
    let until_ms = now_ms() + SOON_MS;
    let permit = by_time(
        "permit (principal, action in [Mcp::Action::\"call\", Mcp::Action::\"unattended\"], resource == {t})
         when { context.now < {T} }",
        until_ms,
    );
    add(&crowded.rig.router, folder.path(), &permit).await;
    let waiting = crowded.call().await;
    assert_eq!(waiting.first["decision"]["answer"], "allow", "{}", waiting.first);
    past(until_ms).await;
    assert_eq!(waiting.goes_on().await, "denied");
    assert_eq!(times_run(&received), 0);
}

/// From then on a person has to be asked, so a hook's yes is none.
#[tokio::test]
async fn a_hook_that_may_not_allow_any_more_when_its_turn_comes_has_not_allowed() {
    let (root, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let received = root.path().join("received");
    write(folder.path(), "team.rules", "default ask\nallow mcp.s.busy\n");
    let answers = Answers::new(HookAnswer::Allow, PersonAnswer::Deny("no".to_owned()));
    let mut options = from_folder(folder.path(), &Desk::new([]));
    options.approval = Some(answers.clone());
    let crowded = Crowded::start(Rig::start_options(crowded(&received), options).await).await;
    let until_ms = now_ms() + SOON_MS;
    let forbid = by_time(
        "forbid (principal, action == Mcp::Action::\"unattended\", resource == {t}) when { context.now >= {T} }",
        until_ms,
    );
    add(&crowded.rig.router, folder.path(), &forbid).await;
    let mut waiting = crowded.call().await;
    waiting
        .rig
        .until(|event| event["event"] == "permission" && event["by"] == "hook")
        .await;
    assert_eq!(
        waiting.first["decision"]["code"], "ask.policy",
        "{}",
        waiting.first
    );
    assert!(now_ms() < until_ms, "this machine is too slow for this test");
    past(until_ms).await;
    assert_eq!(waiting.goes_on().await, "refused");
    assert_eq!(answers.asked(), ["hook", "hook", "person"]);
    assert_eq!(times_run(&received), 0);
}

/// The one thread on which the state is read has something else to do while the policies' time ends.
#[test]
fn a_time_that_is_over_when_an_approval_has_been_found_lets_nothing_run() {
    with_one_blocking_thread(async {
        let (root, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let received = root.path().join("received");
        write(folder.path(), "team.rules", "default deny\n");
        let desk = Desk::new([PersonAnswer::AllowFor]);
        let options = from_folder(folder.path(), &desk);
        let mut rig = Rig::start_options(crowded(&received), options).await;
        let until_ms = now_ms() + SOON_MS;
        let permit = by_time(
            "permit (principal, action == Mcp::Action::\"call\", resource == {t}) when { context.now < {T} }",
            until_ms,
        );
        add(&rig.router, folder.path(), &permit).await;
        assert_eq!(outcome(&rig, "t", "{}").await, "person");
        rig.told();
        let (done, busy) = std::sync::mpsc::channel::<()>();
        let occupied = tokio::task::spawn_blocking(move || busy.recv());
        let mut call = Box::pin(outcome(&rig, "t", "{}"));
        // A call is decided on by whoever makes it, so by now this one is, and its approval is looked for.
        assert!(poll!(&mut call).is_pending());
        assert!(now_ms() < until_ms, "this machine is too slow for this test");
        past(until_ms).await;
        drop(done);
        assert_eq!(call.await, "denied");
        assert!(occupied.await.unwrap().is_err());
        let decided: Vec<_> = rig
            .told()
            .into_iter()
            .filter(|event| event["event"] == "permission")
            .map(|event| (event["by"].clone(), event["decision"]["answer"].clone()))
            .collect();
        assert_eq!(
            decided,
            [
                ("stored-approval".into(), "ask".into()),
                ("policies".into(), "deny".into())
            ]
        );
        assert_eq!(times_run(&received), 1);
    });
}

/// What was found is handed over when its time is over.
#[test]
fn an_approval_that_ends_while_it_is_looked_for_is_none() {
    with_one_blocking_thread(async {
        let root = tempfile::tempdir().unwrap();
        let desk = Desk::new([PersonAnswer::AllowFor]);
        let mut options = options("default ask\n", Some(desk.clone()));
        options.keeping.approval_hold = Duration::from_millis(SOON_MS.unsigned_abs());
        let rig = Rig::start_options(crowded(&root.path().join("received")), options).await;
        assert_eq!(outcome(&rig, "t", "{}").await, "person");
        let [kept] = rig
            .router
            .state()
            .approvals(now_ms())
            .unwrap()
            .try_into()
            .unwrap();
        // The one thread that may block has something else to do until the approval is waited for.
        let (done, busy) = std::sync::mpsc::channel::<()>();
        drop(tokio::task::spawn_blocking(move || busy.recv()));
        let mut call = Box::pin(outcome(&rig, "t", "{}"));
        assert!(poll!(&mut call).is_pending());
        drop(done);
        // What comes after has been done, so the approval has been found.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        assert!(now_ms() < kept.until_ms, "this machine is too slow for this test");
        past(kept.until_ms).await;
        assert_eq!((call.await.as_str(), desk.count()), ("refused", 2));
    });
}

#[tokio::test]
async fn an_approval_that_is_taken_back_while_a_call_waits_for_its_turn_is_no_more() {
    let root = tempfile::tempdir().unwrap();
    let rules = "default ask\nallow mcp.s.busy\n";
    for (taken_back, expected) in [(false, "stored-approval"), (true, "refused")] {
        let desk = Desk::new([PersonAnswer::AllowFor]);
        let options = options(rules, Some(desk.clone()));
        let mut rig = Rig::start_options(crowded(&root.path().join("received")), options).await;
        assert_eq!(outcome(&rig, "t", "{}").await, "person");
        rig.told();
        let state = Arc::clone(rig.router.state());
        let waiting = Waiting::start(rig).await;
        if taken_back {
            let [kept] = state.approvals(now_ms()).unwrap().try_into().unwrap();
            assert!(state.revoke(kept.id).unwrap());
        }
        assert_eq!(waiting.goes_on().await, expected);
        assert_eq!(desk.count(), if taken_back { 2 } else { 1 });
    }
}
