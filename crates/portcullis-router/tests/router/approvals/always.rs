//! A yes for good is one to the policies that asked: what they became meanwhile is not added to.

use super::*;

/// What a folder holds, by name.
fn names(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| {
        let name = entry.unwrap().file_name();
        name.into_string().unwrap()
    });
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// What is told of the first answer.
fn first_approval(rig: &mut Rig) -> serde_json::Value {
    let told = rig.told();
    told.into_iter()
        .find(|event| event["event"] == "approval")
        .unwrap()
}

/// Neither where the policies took over already, nor where they only lie in the folder yet.
#[tokio::test]
async fn always_said_to_other_policies_writes_nothing() {
    for (after, taken, expected, why) in [
        (
            "default ask\nalways ask mcp.s.t\n",
            true,
            "refused",
            "other policies",
        ),
        (
            "default ask\nalways ask mcp.s.t\n",
            false,
            "person",
            "other policies",
        ),
        ("default ask\nallow mcp.z.*\n", true, "refused", "other policies"),
        ("default frob\n", false, "person", "cannot be loaded"),
    ] {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "a.rules", "default ask\n");
        let desk = Desk::slow([PersonAnswer::AllowAlways]);
        let mut rig = Rig::start_options(spec(), from_folder(root.path(), &desk)).await;
        let swap = async {
            desk.question.notified().await;
            assert!(desk.last().always.is_some(), "{after}");
            write(root.path(), "a.rules", after);
            if taken {
                assert_eq!(rig.router.reload_policies().await, PolicyReload::Taken);
            }
            let gate = desk.gate.as_ref().unwrap();
            gate.notify_one();
            if taken {
                desk.question.notified().await;
                gate.notify_one();
            }
        };
        let (called, ()) = tokio::join!(outcome(&rig, "t", "{}"), swap);
        assert_eq!(called, expected, "{after}");
        assert_eq!(names(root.path()), ["a.rules"], "{after}");
        let approval = first_approval(&mut rig);
        assert_eq!(
            (approval["answer"].as_str(), approval.get("policy")),
            (Some("approved"), None)
        );
        let error = approval["error"].as_str().unwrap();
        assert!(
            error.contains("nothing was written") && error.contains(why),
            "{error}"
        );
    }
}

/// A file that the seal does not know would keep the hub from its policies.
#[tokio::test]
async fn always_writes_nothing_into_a_folder_that_was_sealed_meanwhile() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "a.rules", "default ask\n");
    let desk = Desk::slow([PersonAnswer::AllowAlways]);
    let mut rig = Rig::start_options(spec(), from_folder(root.path(), &desk)).await;
    let sealing = async {
        desk.question.notified().await;
        let files = PolicyFolder::new(root.path()).files().unwrap();
        write(
            root.path(),
            Seal::FILE_NAME,
            &Seal::of(&files).unwrap().to_string(),
        );
        desk.gate.as_ref().unwrap().notify_one();
    };
    let (called, ()) = tokio::join!(outcome(&rig, "t", "{}"), sealing);
    assert_eq!(called, "person", "it runs this once");
    assert_eq!(names(root.path()), ["a.rules", Seal::FILE_NAME]);
    assert_eq!(rig.router.reload_policies().await, PolicyReload::Unchanged);
    let error = first_approval(&mut rig)["error"].as_str().unwrap().to_owned();
    assert!(
        error.contains("nothing was written") && error.contains("sealed"),
        "{error}"
    );
}

/// What is permitted for good is the tool that was shown.
#[tokio::test]
async fn always_said_to_a_tool_that_changed_meanwhile_writes_nothing() {
    let t = |text: &str| Tool::new("t", Behaviour::Echo).describe(text);
    let change = Behaviour::ListChanged {
        count: 1,
        interval_ms: 0,
    };
    let script = Script::new("s")
        .tool(t("before").shown(Shown::BeforeChange))
        .tool(t("after").shown(Shown::AfterChange))
        .tool(Tool::new("change", change));
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "a.rules", "default ask\nallow mcp.s.change\n");
    let desk = Desk::slow([PersonAnswer::AllowAlways]);
    let mut rig = Rig::start_options(scripted(&script), from_folder(root.path(), &desk)).await;
    let router = Arc::clone(&rig.router);
    let call = CallRequest::new("mcp.s.t".parse().unwrap(), "{}");
    let call = tokio::spawn(async move { outcome_of(router.call(call).await) });
    desk.question.notified().await;
    rig.call("change", "{}").await.unwrap();
    rig.until(|event| event["event"] == "pin" && event["state"] == "changed")
        .await;
    let gate = desk.gate.as_ref().unwrap();
    gate.notify_one();
    desk.question.notified().await;
    gate.notify_one();
    assert_eq!(timeout(PATIENCE, call).await.unwrap().unwrap(), "refused");
    assert_eq!(names(root.path()), ["a.rules"]);
    let error = first_approval(&mut rig)["error"].as_str().unwrap().to_owned();
    assert!(
        error.contains("nothing was written") && error.contains("listed otherwise"),
        "{error}"
    );
}

/// Where the policies themselves say something else by the time of the answer.
#[tokio::test]
async fn always_writes_nothing_where_it_could_not_hold_any_more() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "a.rules", "default ask\n");
    let desk = Desk::slow([PersonAnswer::AllowAlways]);
    let mut rig = Rig::start_options(spec(), from_folder(root.path(), &desk)).await;
    let until_ms = now_ms() + turns::SOON_MS;
    let forbid = turns::by_time(
        "forbid (principal, action == Mcp::Action::\"unattended\", resource == {t}) when { context.now >= {T} }",
        until_ms,
    );
    turns::add(&rig.router, root.path(), &forbid).await;
    let thinking = async {
        desk.question.notified().await;
        assert!(now_ms() < until_ms, "this machine is too slow for this test");
        assert!(desk.last().always.is_some());
        turns::past(until_ms).await;
        desk.gate.as_ref().unwrap().notify_one();
    };
    let (called, ()) = tokio::join!(outcome(&rig, "t", "{}"), thinking);
    assert_eq!(called, "person", "it runs this once");
    assert_eq!(names(root.path()), ["a.rules", "soon.cedar"]);
    let error = first_approval(&mut rig)["error"].as_str().unwrap().to_owned();
    assert!(
        error.contains("nothing was written") && error.contains("not allow"),
        "{error}"
    );
}
