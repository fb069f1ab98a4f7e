//! Lists of tools: pages and cursors, silence, errors, limits.

use portcullis_testkit::{Behaviour, ListReply, Page, Paging, Shown, Tool};

use super::*;

fn page(at: Option<&str>, tools: &[usize], next: Option<&str>) -> Page {
    Page {
        at: at.map(str::to_owned),
        tools: tools.to_vec(),
        next: next.map(str::to_owned),
    }
}

fn three(paging: Paging) -> Script {
    ["a", "b", "c"]
        .iter()
        .fold(Script::new("s").paging(paging), |script, name| {
            script.tool(Tool::new(name, Behaviour::Pid))
        })
}

/// Report 23: a listing ends with what was found, whatever the cursors do, and says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_listing_ends_with_what_was_found() {
    let same = Paging::Pages(vec![
        page(None, &[0], Some("x")),
        page(Some("x"), &[1], Some("x")),
    ]);
    let round = Paging::Pages(vec![
        page(None, &[0], Some("a")),
        page(Some("a"), &[1], Some("b")),
        page(Some("b"), &[2], Some("a")),
    ]);
    let long = "x".repeat(16 * 1024 + 1);
    let endless = Paging::Pages(vec![page(None, &[0], Some(&long)), page(Some(&long), &[1], None)]);
    let empty = Paging::Pages(vec![page(None, &[0, 1], Some("")), page(Some(""), &[2], None)]);
    for (paging, found, told) in [
        (Paging::Whole, &["a", "b", "c"][..], None),
        (Paging::Size(1), &["a", "b", "c"], None),
        (same, &["a", "b"], Some("the cursor `x` came again")),
        (round, &["a", "b", "c"], Some("the cursor `a` came again")),
        (empty, &["a", "b", "c"], None),
        (endless, &["a"], Some("a cursor has more than 16384 bytes")),
        (Paging::Endless, &["a", "b", "c"], Some("more than 1000 pages")),
    ] {
        let mut rig = Rig::start([scripted(&three(paging.clone()))]).await;
        let (_, list) = rig.tools("s").await;
        assert_eq!(names(&list), found, "{paging:?}");
        match told {
            Some(told) => assert!(
                list.reports.iter().any(|report| report.contains(told)),
                "{list:?}"
            ),
            None => assert_eq!(list.reports, [""; 0], "{paging:?}"),
        }
        rig.call("s", "a", "{}").await.unwrap();
    }
}

/// One deadline for all pages, and a list that cannot be read is told.
#[tokio::test]
async fn a_list_that_does_not_come_fails_the_connection_and_says_why() {
    for (reply, told) in [
        (ListReply::Silence, "listing tools took over 0.2 s"),
        (
            ListReply::Error {
                code: -32000,
                message: "no list today".to_owned(),
            },
            "no list today",
        ),
        (
            ListReply::Raw(r#"{"tools":7}"#.to_owned()),
            "the list of tools cannot be read",
        ),
    ] {
        let mut spec = scripted(&three(Paging::Whole).list_reply(reply));
        spec.timeouts.list = Duration::from_millis(200);
        let mut rig = Rig::start([spec]).await;
        let (reason, _) = rig.until("s", "backing_off").await;
        assert!(reason.contains(told), "{reason}");
    }
}

/// Each page in time, and all of them together not.
#[tokio::test]
async fn the_deadline_of_a_listing_is_one_for_all_its_pages() {
    let slow = three(Paging::Endless).list_reply(ListReply::AfterMs(100));
    let mut spec = scripted(&slow);
    spec.timeouts.list = Duration::from_secs(1);
    let mut rig = Rig::start([spec]).await;
    let (reason, _) = rig.until("s", "backing_off").await;
    assert!(reason.contains("listing tools took over 1 s"), "{reason}");
}

/// Report 27: a change while a listing runs, which has the tools as they were before.
#[tokio::test]
async fn a_change_during_a_listing_is_seen() {
    let changes = Behaviour::ListChanged {
        count: 2,
        interval_ms: 300,
    };
    let script = Script::new("s")
        .tool(Tool::new("old", Behaviour::Pid).shown(Shown::BeforeChange))
        .tool(Tool::new("new", Behaviour::Pid).shown(Shown::AfterChange))
        .tool(Tool::new("change", changes))
        .list_reply(ListReply::AfterMs(1_000));
    let mut rig = Rig::start([scripted(&script)]).await;
    assert_eq!(names(&rig.tools("s").await.1), ["old", "change"]);
    rig.call("s", "change", "{}").await.unwrap();
    // The listing that the first of them began has the old tools, if the machine is quick enough for it to be one.
    while names(&rig.tools("s").await.1) != ["new", "change"] {}
}

/// Report 27 in small: a change is listed and published, and the newer list has the greater version.
#[tokio::test]
async fn changed_tools_are_published() {
    let script = Script::new("s")
        .tool(Tool::new("old", Behaviour::Pid).shown(Shown::BeforeChange))
        .tool(Tool::new("new", Behaviour::Pid).shown(Shown::AfterChange))
        .tool(Tool::new(
            "change",
            Behaviour::ListChanged {
                count: 200,
                interval_ms: 0,
            },
        ));
    let mut rig = Rig::start([scripted(&script)]).await;
    let (first, list) = rig.tools("s").await;
    assert_eq!(names(&list), ["old", "change"]);
    rig.call("s", "change", "{}").await.unwrap();
    let mut listings = 0;
    let last = loop {
        let (version, list) = rig.tools("s").await;
        listings += 1;
        if names(&list) == ["new", "change"] {
            break version;
        }
    };
    assert!(last > first);
    assert!(listings <= 2, "{listings} listings for one burst");
    let ready = rig
        .upstream("s")
        .ready(Instant::now() + PATIENCE, last)
        .await
        .unwrap();
    assert!(ready.tool("new").is_some() && ready.tool("old").is_none());
}

/// Report 27: changes that go on all the while, also while the burst's end is waited for.
#[tokio::test]
async fn a_long_burst_of_changes_costs_two_listings() {
    let folder = tempfile::tempdir().unwrap();
    let received = folder.path().join("received");
    let script = Script::new("s")
        .tool(Tool::new("old", Behaviour::Pid).shown(Shown::BeforeChange))
        .tool(Tool::new("new", Behaviour::Pid).shown(Shown::AfterChange))
        .tool(Tool::new(
            "change",
            Behaviour::ListChanged {
                count: 20,
                interval_ms: 100,
            },
        ))
        .record_received(&received);
    let mut rig = Rig::start([scripted(&script)]).await;
    rig.tools("s").await;
    rig.call("s", "change", "{}").await.unwrap();
    while names(&rig.tools("s").await.1) != ["new", "change"] {}
    let listings = lines(&received)
        .iter()
        .filter(|line| line.contains("tools/list"))
        .count();
    assert_eq!(listings, 1 + 2, "one for the connection, two for the burst");
}

/// A server may say for months, each second, that its tools changed.
#[tokio::test]
async fn listings_that_are_over_leave_nothing_behind() {
    let changes = Behaviour::ListChanged {
        count: 8,
        interval_ms: 700,
    };
    let script = three(Paging::Whole).tool(Tool::new("change", changes));
    let mut rig = Rig::start([scripted(&script)]).await;
    let (first, _) = rig.tools("s").await;
    rig.call("s", "a", "{}").await.unwrap();
    let before = rig.tasks("s").await.unwrap();
    rig.call("s", "change", "{}").await.unwrap();
    // On a slow machine some of the changes may fall together.
    while rig.tools("s").await.0 < first + 3 {}
    let after = rig.tasks("s").await.unwrap();
    // The last listing, and the time to look again.
    assert!(after <= before + 2, "{before} tasks became {after}");
}

/// A list that fails while the server runs is told in the log alone, and that is read by others than the server's owner.
#[tokio::test]
async fn a_new_list_that_fails_is_logged_without_secrets() {
    let (_logging, mut lines) = logged();
    let change = Behaviour::ListChanged {
        count: 1,
        interval_ms: 0,
    };
    let script =
        three(Paging::Whole)
            .tool(Tool::new("change", change))
            .list_reply(ListReply::ErrorAfterChange {
                code: -32000,
                message: "bad key s3cret-canary".to_owned(),
            });
    let mut rig = Rig::start([given(&script, "s3cret-canary")]).await;
    let (_, list) = rig.tools("s").await;
    rig.call("s", "change", "{}").await.unwrap();
    let line = line_with(&mut lines, "a new listing failed").await;
    assert!(line.contains("bad key [redacted]"), "{line}");
    assert!(!line.contains("canary"), "{line}");
    // What was known stays, and can be called.
    assert_eq!(names(&list), ["a", "b", "c", "change"]);
    rig.call("s", "a", "{}").await.unwrap();
}

/// A list that is fresh for a while only is made anew by itself.
#[tokio::test]
async fn what_a_list_says_of_its_freshness_is_kept() {
    let list =
        r#"{"tools":[{"name":"t","inputSchema":{"type":"object"}}],"ttlMs":1500,"cacheScope":"private"}"#;
    let script = Script::new("s").list_reply(ListReply::Raw(list.to_owned()));
    let mut rig = Rig::start([scripted(&script)]).await;
    let (first, tools) = rig.tools("s").await;
    assert_eq!(
        (tools.ttl, tools.private),
        (Some(Duration::from_millis(1_500)), true)
    );
    // Not before ten seconds are over, however short a time the server says.
    let began = Instant::now();
    let (second, _) = rig.tools("s").await;
    assert!(
        second > first && began.elapsed() > Duration::from_secs(8),
        "{:?}",
        began.elapsed()
    );
}

/// A server with two tools at first and three after a change.
fn growing() -> Script {
    let change = Behaviour::ListChanged {
        count: 1,
        interval_ms: 0,
    };
    Script::new("s")
        .tool(Tool::new("change", change))
        .tool(Tool::new("b", Behaviour::Pid))
        .tool(Tool::new("c", Behaviour::Pid).shown(Shown::AfterChange))
}

fn limited(script: &Script, tools: u32, profile: Profile) -> ServerSpec {
    let mut spec = scripted(script);
    spec.limits.tools = tools;
    spec.profile = profile;
    spec
}

/// Of a desktop server the first tools stay, in its own order, and the rest is reported.
#[tokio::test]
async fn a_desktop_server_with_too_many_tools_offers_the_first() {
    let mut rig = Rig::start([limited(&growing(), 2, Profile::Desktop)]).await;
    let (_, list) = rig.tools("s").await;
    assert_eq!((names(&list), list.reports.len()), (vec!["change", "b"], 0));
    rig.call("s", "change", "{}").await.unwrap();
    let list = loop {
        let (_, list) = rig.tools("s").await;
        if !list.reports.is_empty() {
            break list;
        }
    };
    assert_eq!(names(&list), ["change", "b"]);
    assert!(
        list.reports[0].contains("more tools than the first 2"),
        "{:?}",
        list.reports
    );
    assert!(rig.text("s", "b").await.parse::<u32>().is_ok());
}

/// A strict one has no connection then, and says why: at once where it starts with too many, and as soon as it lists
/// more than it may.
#[tokio::test]
async fn a_strict_server_with_too_many_tools_has_no_connection() {
    let mut rig = Rig::start([limited(&growing(), 1, Profile::Strict)]).await;
    let (reason, _) = rig.until("s", "backing_off").await;
    assert!(
        reason.contains("its limit of 1") && reason.contains("strict"),
        "{reason}"
    );

    let mut rig = Rig::start([limited(&growing(), 2, Profile::Strict)]).await;
    assert_eq!(names(&rig.tools("s").await.1), ["change", "b"]);
    // The answer may be overtaken by the end of the connection that it brings about.
    let _ = rig.call("s", "change", "{}").await;
    let (reason, _) = rig.until("s", "backing_off").await;
    assert!(reason.contains("its limit of 2"), "{reason}");
}
