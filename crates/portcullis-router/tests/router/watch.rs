//! Edits of a folder of policies, on the disk, while the router runs.

use std::path::{Path, PathBuf};

use portcullis_policy::Seal;
use portcullis_router::{Event, PolicyFolder, PolicyReload, ReloadOutcome};
use portcullis_testkit::{Behaviour, Tool};
use tempfile::TempDir;

use super::*;

/// Edits are taken once they have stood still for so long.
const STILL: Duration = Duration::from_millis(250);

struct Watched {
    root: TempDir,
    rig: Rig,
}

impl Watched {
    /// A router over `policies/`, which holds `a.rules`.
    async fn start(rules: &str, sealed: bool) -> Self {
        let root = tempfile::tempdir().unwrap();
        create(&root.path().join("policies"));
        write(&root.path().join("policies/a.rules"), rules);
        if sealed {
            seal(&root.path().join("policies"));
        }
        Self::over(root).await
    }

    async fn over(root: TempDir) -> Self {
        let script = Script::new("s").tool(Tool::new("t", Behaviour::Echo));
        let folder = PolicyFolder::new(root.path().join("policies")).still(STILL);
        let mut options = options("", None);
        options.policies = Arc::new(folder.load().unwrap());
        options.policy_folder = Some(folder);
        let rig = Rig::start_options(scripted(&script), options).await;
        Self { root, rig }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join("policies").join(name)
    }

    /// The next reload that is told: its outcome, what is no longer forbidden, what is wrong.
    async fn reload(&mut self) -> (ReloadOutcome, usize, Vec<String>) {
        self.rig.until(|event| event["event"] == "policy.reload").await;
        let last = match &self.rig.heard.last().unwrap().event {
            Event::PolicyReload {
                outcome,
                no_longer_forbidden,
                errors,
                ..
            } => Some((*outcome, no_longer_forbidden.len(), errors.clone())),
            _ => None,
        };
        last.unwrap()
    }

    async fn takes(&mut self, vanished: usize) {
        assert_eq!(self.reload().await, (ReloadOutcome::Taken, vanished, Vec::new()));
    }

    async fn refuses(&mut self, why: &str) {
        let (outcome, _, errors) = self.reload().await;
        assert_eq!(outcome, ReloadOutcome::Refused);
        assert!(errors.iter().any(|error| error.contains(why)), "{errors:?}");
        assert_eq!(self.rig.router.policies_refused(), errors);
    }

    async fn answers(&self, expected: &str) {
        let called = self.rig.call("t", "{}").await;
        assert_eq!(called.map_or_else(|error| error.code(), |_| "ok"), expected);
    }
}

#[expect(clippy::disallowed_methods, reason = "a test edits a folder")]
fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "a test edits a folder")]
fn create(path: &Path) {
    std::fs::create_dir(path).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "a test edits a folder")]
fn rename(from: &Path, to: &Path) {
    std::fs::rename(from, to).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "a test edits a folder")]
fn remove(path: &Path) {
    std::fs::remove_file(path).unwrap();
}

fn seal(folder: &Path) {
    let files = PolicyFolder::new(folder).files().unwrap();
    write(
        &folder.join(Seal::FILE_NAME),
        &Seal::of(&files).unwrap().to_string(),
    );
}

#[tokio::test]
async fn edits_in_place_and_by_rename_take_over_and_a_forbid_that_goes_is_announced() {
    let mut watched = Watched::start("allow mcp.s.*\n", false).await;
    watched.answers("ok").await;
    let catalog = watched.rig.router.catalog();
    write(&watched.path("a.rules"), "allow mcp.s.*\ndeny mcp.s.t\n");
    watched.takes(0).await;
    watched.answers("denied").await;
    watched
        .rig
        .until(|event| event["event"] == "catalog.changed")
        .await;
    assert!(
        !Arc::ptr_eq(&catalog, &watched.rig.router.catalog()),
        "it is published anew"
    );
    write(&watched.path("a.rules.tmp"), "allow mcp.s.*\n");
    rename(&watched.path("a.rules.tmp"), &watched.path("a.rules"));
    watched.takes(1).await;
    watched.answers("ok").await;
    write(&watched.path("b.rules"), "deny mcp.s.t\n");
    watched.takes(0).await;
    remove(&watched.path("b.rules"));
    watched.takes(1).await;
}

/// The last good policies stay, and it is told once.
#[tokio::test]
async fn what_is_wrong_stays_out_loudly_until_it_is_mended() {
    let mut watched = Watched::start("default deny\nallow mcp.s.t\n", false).await;
    write(&watched.path("a.rules"), "default deny\nalow mcp.s.t\n");
    watched.refuses("a.rules:2").await;
    watched.answers("ok").await;
    let again = watched.rig.router.reload_policies().await;
    assert!(matches!(again, PolicyReload::Refused(_)), "{again:?}");
    watched.rig.told();
    let heard = watched.rig.heard.iter();
    let told = heard.filter(|record| matches!(record.event, Event::PolicyReload { .. }));
    assert_eq!(told.count(), 1, "it is told once");
    // Half a file, as an editor leaves it when it dies.
    write(&watched.path("a.rules"), "default deny\nallow mcp.s.");
    watched.refuses("a.rules:2").await;
    write(&watched.path("a.rules"), "default deny\nallow mcp.s.t\n");
    assert_eq!(watched.reload().await.0, ReloadOutcome::Restored);
    assert_eq!(watched.rig.router.policies_refused(), [""; 0]);
    remove(&watched.path("a.rules"));
    watched.refuses("there is no policy").await;
    watched.answers("ok").await;
}

#[tokio::test]
async fn a_folder_that_is_deleted_or_exchanged_is_noticed() {
    let mut watched = Watched::start("allow mcp.s.t\n", false).await;
    let (folder, away) = (watched.path(""), watched.root.path().join("away"));
    rename(&folder, &away);
    watched.refuses("cannot read").await;
    watched.answers("ok").await;
    create(&folder);
    write(&watched.path("a.rules"), "deny mcp.s.t\n");
    watched.takes(0).await;
    assert_eq!(watched.rig.router.policies_refused(), [""; 0]);
    watched.answers("denied").await;
}

/// As orchestrators deliver files: the folder is a link to one of a generation, and is turned around.
#[tokio::test]
async fn a_folder_behind_a_link_takes_over_when_the_link_is_turned() {
    let root = tempfile::tempdir().unwrap();
    for (generation, rules) in [("one", "allow mcp.s.t\n"), ("two", "deny mcp.s.t\n")] {
        create(&root.path().join(generation));
        write(&root.path().join(generation).join("a.rules"), rules);
    }
    std::os::unix::fs::symlink("one", root.path().join("policies")).unwrap();
    let mut watched = Watched::over(root).await;
    watched.answers("ok").await;
    std::os::unix::fs::symlink("two", watched.root.path().join("next")).unwrap();
    rename(
        &watched.root.path().join("next"),
        &watched.root.path().join("policies"),
    );
    watched.takes(0).await;
    watched.answers("denied").await;
    // And a file that is a link is followed to its edit.
    write(&watched.root.path().join("two/a.rules"), "allow mcp.s.t\n");
    watched.takes(1).await;
}

#[tokio::test]
async fn a_sealed_folder_takes_over_only_with_its_seal() {
    let mut watched = Watched::start("deny mcp.s.t\n", true).await;
    write(&watched.path("a.rules"), "allow mcp.s.t\n");
    watched.refuses("not the one that was sealed").await;
    watched.answers("denied").await;
    seal(&watched.path(""));
    watched.takes(1).await;
    watched.answers("ok").await;
}

/// Hundreds of quick edits: what is loaded while they go on, and at the end, is little.
#[tokio::test]
async fn hundreds_of_quick_edits_are_few_reloads() {
    let mut watched = Watched::start("allow mcp.s.t\n", false).await;
    let began = tokio::time::Instant::now();
    for number in 0..400 {
        write(
            &watched.path("a.rules"),
            &format!("allow mcp.s.t\ndeny mcp.x{number}.*\n"),
        );
        tokio::task::yield_now().await;
    }
    write(&watched.path("a.rules"), "allow mcp.s.t\ndeny mcp.last.*\n");
    let last = PolicyFolder::new(watched.path("")).load().unwrap().digest();
    let mut reloads = 0;
    while watched.rig.router.policies().digest() != last {
        watched.reload().await;
        reloads += 1;
    }
    // Each has stood still for its time, however slowly this machine writes.
    let most = 1 + began.elapsed().as_millis() / STILL.as_millis();
    assert!((1..=most).contains(&reloads), "{reloads} of {most}");
}

/// Without policies at the start there is nothing to fall back on.
#[tokio::test]
async fn none_means_deny() {
    let root = tempfile::tempdir().unwrap();
    let folder = PolicyFolder::new(root.path().join("policies")).still(STILL);
    folder.load().unwrap_err();
    let script = Script::new("s").tool(Tool::new("t", Behaviour::Echo));
    let mut options = options("", None);
    options.policies = Arc::new(DecisionPoint::deny_all());
    options.policy_folder = Some(folder);
    let rig = Rig::start_options(scripted(&script), options).await;
    let mut watched = Watched { root, rig };
    watched.answers("denied").await;
    create(&watched.path(""));
    write(&watched.path("a.rules"), "allow mcp.s.t\n");
    watched
        .rig
        .until(|event| event["event"] == "policy.reload" && event["outcome"] == "taken")
        .await;
    watched.answers("ok").await;
}
