use serde_json::value::RawValue;

use super::{listing::MAX_REPORTS, *};

const DESKTOP: ToolLimit = ToolLimit {
    tools: 256,
    strict: false,
};

fn list(entries: &[&str]) -> ToolList {
    list_within(DESKTOP, entries).unwrap()
}

fn list_within(limit: ToolLimit, entries: &[&str]) -> Result<ToolList, ListError> {
    let mut listing = Listing::new(limit);
    entries.iter().try_for_each(|entry| listing.add(entry))?;
    Ok(listing.finish())
}

/// What the server says is looked through for what it was given; the hub's own words stay.
#[test]
fn an_error_of_a_listing_shows_what_the_server_says_of_it_without_secrets() {
    let hide = |said: &str| said.replace("list", "[redacted]");
    let said = rmcp::model::ErrorData::internal_error("no list for `list`", None);
    let unreadable = serde_json::from_str::<Page<'_>>(r#""list""#).err().unwrap();
    for (error, told) in [
        (
            ListError::Service(ServiceError::McpError(said)),
            "listing tools failed: error -32603: no [redacted] for `[redacted]`",
        ),
        (
            ListError::Unreadable(unreadable),
            "the list of tools cannot be read: invalid type: string \"[redacted]\"",
        ),
        (
            ListError::LongPage,
            "a page of the server's list of tools has more than 1000000 entries",
        ),
    ] {
        assert!(error.told(hide).starts_with(told), "{}", error.told(hide));
    }
}

#[test]
fn a_page_that_is_too_long_is_called_that() {
    for strict in [true, false] {
        let mut listing = Listing::new(ToolLimit { tools: 256, strict });
        listing.add(&many(1)[0]).unwrap();
        let outcome = listing.long_page();
        assert_eq!(matches!(outcome, Err(ListError::LongPage)), strict);
        let list = listing.finish();
        let reported = list
            .reports
            .iter()
            .any(|report| report.contains("more than 1000000 entries"));
        assert!(reported != strict && list.tools.len() == 1, "{:?}", list.reports);
    }
}

fn many(tools: usize) -> Vec<String> {
    (0..tools)
        .map(|n| format!(r#"{{"name":"t{n}","inputSchema":{{}}}}"#))
        .collect()
}

/// Report 24: a good tool stays beside whatever stands next to it, and each bad one is reported.
#[test]
fn bad_tools_are_dropped_one_by_one() {
    let good =
        r#"{"name":"good","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":"yes"},"icons":7}"#;
    let bad = [
        r#"{"name":"a","inputSchema":null}"#,
        r#"{"name":"b"}"#,
        r#"{"name":"c","inputSchema":"x"}"#,
        r#"{"name":"d","inputSchema":true}"#,
        r#"{"name":null,"inputSchema":{}}"#,
        r#"{"inputSchema":{}}"#,
        r#"{"name":"","inputSchema":{}}"#,
        "null",
        "[]",
    ];
    let mut entries = bad.to_vec();
    entries.insert(4, good);
    let list = list(&entries);
    assert_eq!(list.tools.len(), 1);
    assert_eq!(list.tools[0].definition.as_ref(), good, "kept word for word");
    assert_eq!(list.reports.len(), bad.len(), "{:#?}", list.reports);
}

/// Report 26: of two tools of one name the first stands.
#[test]
fn a_name_that_comes_twice_is_offered_once() {
    let list = list(&[
        r#"{"name":"x","description":"first","inputSchema":{}}"#,
        r#"{"name":"x","description":"second","inputSchema":{}}"#,
    ]);
    assert_eq!(list.tools.len(), 1);
    assert_eq!(list.tools[0].description.as_deref(), Some("first"));
    assert!(list.reports[0].contains('x'), "{:?}", list.reports);
}

#[test]
fn neither_tools_nor_reports_grow_without_bound() {
    let many = many(266);
    let offered = list(&many.iter().map(String::as_str).collect::<Vec<_>>());
    let names: Vec<_> = offered.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(
        (names.len(), names[0], names[255]),
        (256, "t0", "t255"),
        "the first by the server's order"
    );
    assert_eq!(
        offered.reports,
        ["there are more tools than the first 256; the rest is not offered"]
    );

    let bad = list(&["0"; MAX_REPORTS + 5]);
    assert_eq!(bad.reports.len(), MAX_REPORTS + 1);
    assert_eq!(bad.reports.last().unwrap(), "and 5 more of the kind");

    let huge = format!(
        r#"{{"name":"huge","description":"{}","inputSchema":{{}}}}"#,
        "x".repeat(MAX_BYTES)
    );
    let too_large = list(&[&huge]);
    assert!(too_large.tools.is_empty());
    assert_eq!(
        too_large.reports,
        [
            "there are more tools than the first 0, whose definitions take over 33554432 bytes together; the rest is \
             not offered"
        ]
    );
    let strict = ToolLimit {
        strict: true,
        ..DESKTOP
    };
    assert!(matches!(list_within(strict, &[&huge]), Err(ListError::TooLarge)));
}

#[test]
fn of_a_page_that_is_all_commas_so_many_entries_are_looked_at() {
    for (entries, more) in [
        (0, false),
        (MAX_ENTRIES, false),
        (MAX_ENTRIES + 1, true),
        (3 * MAX_ENTRIES, true),
    ] {
        let page = format!(r#"{{"tools":[{}]}}"#, vec!["0"; entries].join(","));
        let page: Page<'_> = serde_json::from_str(&page).unwrap();
        let kept = page.tools.entries.len();
        assert_eq!(
            (kept, page.tools.more),
            (entries.min(MAX_ENTRIES), more),
            "{entries}"
        );
    }
    for page in ["{}", r#"{"tools":[]}"#] {
        assert!(serde_json::from_str::<Page<'_>>(page).is_ok(), "{page}");
    }
    for page in [r#"{"tools":null}"#, r#"{"tools":{}}"#, r#"{"tools":[}"#] {
        assert!(serde_json::from_str::<Page<'_>>(page).is_err(), "{page}");
    }
}

/// What a server lists beyond what is offered must not be remembered either, however often it is listed.
#[tokio::test]
async fn headers_are_remembered_of_offered_tools_alone_and_forgotten_with_them() {
    let schema = r#""inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"Region"}}}"#;
    let cache = ParamCache::default();
    for round in 0..3 {
        let offered = format!(r#"{{"name":"offered{round}",{schema}}}"#);
        let dropped: Vec<_> = (0..300)
            .map(|n| format!(r#"{{"name":"d{round}-{n}","description":1,"description":2,{schema}}}"#))
            .collect();
        let entries: Vec<_> = std::iter::once(&offered)
            .chain(&dropped)
            .map(String::as_str)
            .collect();
        let list = with_headers(&entries, &cache).await;
        assert_eq!((list.tools.len(), cache.len()), (1, 1));
    }
}

async fn with_headers(entries: &[&str], cache: &ParamCache) -> ToolList {
    let mut listing = Listing::new(DESKTOP);
    entries.iter().try_for_each(|entry| listing.add(entry)).unwrap();
    listing.keep_good_headers(cache).await;
    listing.finish()
}

#[tokio::test]
async fn tools_with_bad_headers_are_reported_as_often_as_others_that_are_dropped() {
    let bad: Vec<_> = (0..MAX_REPORTS + 5)
        .map(|n| format!(r#"{{"name":"t{n}","inputSchema":{{"x-mcp-header":"A"}}}}"#))
        .collect();
    let entries: Vec<_> = bad.iter().map(String::as_str).collect();
    let list = with_headers(&entries, &ParamCache::default()).await;
    assert_eq!((list.tools.len(), list.reports.len()), (0, MAX_REPORTS + 1));
    assert_eq!(list.reports.last().unwrap(), "and 5 more of the kind");
}

#[test]
fn a_strict_server_with_too_many_tools_lists_none() {
    let strict = ToolLimit {
        strict: true,
        ..DESKTOP
    };
    let (fits, over) = (many(256), many(257));
    let list = |tools: Vec<String>| {
        let entries: Vec<_> = tools.iter().map(String::as_str).collect();
        list_within(strict, &entries)
    };
    assert_eq!(list(fits.clone()).unwrap().tools.len(), 256);
    let error = list(over).unwrap_err();
    assert!(error.ends_the_connection());
    assert!(error.to_string().contains("its limit of 256"), "{error}");
    // What is dropped anyway does not count: a bad tool, and a name that comes again.
    let mut beside = fits;
    beside.extend([
        r#"{"name":"bad"}"#.to_owned(),
        r#"{"name":"t0","inputSchema":{}}"#.to_owned(),
    ]);
    assert_eq!(list(beside).unwrap().tools.len(), 256);
}

#[test]
fn the_least_time_to_live_of_all_pages_holds_and_the_most_private_scope() {
    let mut listing = Listing::new(DESKTOP);
    let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
    for (ttl, scope) in [
        (None, None),
        (Some("60000"), Some(r#""public""#)),
        (Some("1500"), Some(r#""private""#)),
        (Some("-1"), Some("7")),
        (Some(r#""soon""#), None),
    ] {
        let (ttl, scope) = (ttl.map(raw), scope.map(raw));
        listing.hints(ttl.as_deref(), scope.as_deref());
    }
    let list = listing.finish();
    assert_eq!(list.ttl, Some(Duration::from_millis(1_500)));
    assert!(list.private);
}

#[test]
fn what_a_server_wrote_is_printed_without_its_control_characters() {
    assert_eq!(excerpt("a\u{1b}[31m"), r"a\u{1b}[31m");
}
