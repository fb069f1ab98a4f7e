use portcullis_blobs::MemStore;
use portcullis_config::Document;

use super::*;

/// A server that is never started.
const SERVERS: &str = "servers: [{name: a, command: /bin/true, disabled: true}]";

fn builder<const N: usize>(settings: [&str; N]) -> HubBuilder {
    let documents = settings.iter().enumerate().map(|(number, settings)| {
        let servers = if number == 0 { SERVERS } else { "servers: []" };
        Document::new(format!("{number}.yaml"), format!("mcp: {{{servers}{settings}}}"))
    });
    HubBuilder::default().documents(documents)
}

#[tokio::test]
async fn limits_that_cannot_be_read_start_nothing_unless_code_has_them() {
    let lost = || builder(["", ", blobs: {quotaBytes: 1 GB}"]);
    let options = FsOptions::default;
    let shape = ShapeOptions::default;
    for (document, told) in [
        (
            "mcp: {servers: [], blobs: {quota: 1}}",
            "`quota` is no field of `blobs`",
        ),
        (
            "mcp: {servers: [], reslts: {oversize: reject}}",
            "did you mean `results`?",
        ),
        ("mcp: {servers: [], blobs: {quotaBytes: 1}", "torn.yaml:"),
        ("", "there is nothing in the document"),
    ] {
        let torn = || builder([""]).document(Document::new("torn.yaml", document));
        let error = torn().start().await.unwrap_err();
        assert!(matches!(error, HubError::LimitsUnread(_)), "{document}: {error}");
        assert!(error.to_string().contains(told), "{document}: {error}");
        let given = || torn().blob_options(options()).shape(shape());
        // What may have had limits may have had agents and a tier.
        if !document.contains("blobs: {quota: 1}") {
            let error = given().start().await.unwrap_err();
            assert!(matches!(error, HubError::AgentsUnread(_)), "{document}: {error}");
            let error = given().profiles(BTreeMap::new()).start().await.unwrap_err();
            assert!(matches!(error, HubError::TierUnread(_)), "{document}: {error}");
        }
        let given = given().profiles(BTreeMap::new()).tier(Tier::Plan);
        let hub = given.start().await.unwrap();
        hub.shutdown().await.unwrap();
    }
    for refused in [
        lost(),
        lost().blob_options(options()),
        lost().shape(shape()),
        lost().blob_store(Arc::new(MemStore::default())),
    ] {
        let error = refused.start().await.unwrap_err();
        assert!(matches!(error, HubError::LimitsUnread(_)), "{error}");
        assert!(error.to_string().contains("`quotaBytes` is a text"), "{error}");
    }
    for given in [
        lost().blob_options(options()).shape(shape()),
        lost().blob_store(Arc::new(MemStore::default())).shape(shape()),
    ] {
        given.start().await.unwrap().shutdown().await.unwrap();
    }
}

/// Limits in code say nothing of profiles.
#[tokio::test]
async fn profiles_that_cannot_be_read_start_nothing() {
    for settings in [
        ", agents: {bot: 'ni ght'}",
        ", agents: {bot: night}, tier: none_such",
    ] {
        let given = || {
            let limits = builder(["", settings]).blob_options(FsOptions::default());
            limits.shape(ShapeOptions::default())
        };
        let error = given().start().await.unwrap_err();
        assert!(matches!(error, HubError::AgentsUnread(_)), "{settings}: {error}");
        assert!(error.to_string().contains("1.yaml:"), "{settings}: {error}");
        let given = given().profiles(BTreeMap::new()).tier(Tier::Plan);
        given.start().await.unwrap().shutdown().await.unwrap();
    }
    // Both can be read, and one of them would not hold.
    let given = || builder([", agents: {alice: dev}", ", agents: {bot: night}"]);
    let error = given().start().await.unwrap_err();
    assert!(matches!(error, HubError::AgentsUnread(_)), "{error}");
    let told = "`agents` has another value in `0.yaml`, line 1, so no hub is started with either";
    assert!(error.to_string().contains(told), "{error}");
    let hub = given().profiles(BTreeMap::new()).start().await.unwrap();
    hub.shutdown().await.unwrap();
}

/// Policies that the host names may forbid in one tier what they allow in the default one.
#[tokio::test]
async fn a_tier_that_cannot_be_read_starts_nothing_unless_code_has_one() {
    const PLAN: &str = ", tier: plan";
    for (settings, told) in [
        (["", ", tier: plam"], "2.yaml:1:"),
        ([", tier: [plan]", ""], "1.yaml:1:"),
        (["", ", tier: plan, timeoutMs: 0"], "2.yaml:1:"),
        (["", ", tier: plan, tier: plan"], "2.yaml:1:"),
        // A good one, behind what may have been another.
        ([", policies: 5", PLAN], "1.yaml:1:"),
    ] {
        // The first document has the server, which must not be lost as well.
        let given = || builder(["", settings[0], settings[1]]).preset(Preset::AskByDefault);
        let error = given().start().await.unwrap_err();
        assert!(matches!(error, HubError::TierUnread(_)), "{settings:?}: {error}");
        assert!(error.to_string().contains("`--tier`"), "{error}");
        assert!(error.to_string().contains(told), "{settings:?}: {error}");
        let hub = given().tier(Tier::Plan).start().await.unwrap();
        hub.shutdown().await.unwrap();
    }
    // The one that counts was read, or there is none.
    for settings in [[PLAN, ", tier: plam"], ["", ", policies: 5"]] {
        let hub = builder(settings).start().await.unwrap();
        hub.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_hub_collects_by_its_documents_where_they_agree_and_the_store_is_its_own() {
    let (short, long) = (
        ", blobs: {retentionSeconds: 1}",
        ", blobs: {retentionSeconds: 900}",
    );
    let given = || Arc::new(MemStore::default());
    let hour = Duration::from_secs(3_600);
    for (builder, collects) in [
        (builder([""]), false),
        (builder([short]), true),
        (builder([short, short]), true),
        (builder([short, long]), false),
        (
            builder([short]).document(Document::new("torn.json", r#"{"mcpServers": {"#)),
            false,
        ),
        (builder([short]).blob_store(given()), false),
        // What the host says in code holds for whatever store.
        (builder([short, long]).blob_retention(hour), true),
        (builder([""]).blob_store(given()).blob_retention(hour), true),
    ] {
        let hub = builder.start().await.unwrap();
        assert_eq!(hub._collector.is_some(), collects, "{:?}", hub.diagnostics());
        hub.shutdown().await.unwrap();
    }
}
