use std::{fmt::Write, sync::mpsc, thread, time::Duration};

use rmcp::model::{CallToolRequest, CallToolRequestParams, RequestId};

use super::{definition::MOST, *};

/// The names of all headers in a tree.
fn names(all: &ParamHeaders) -> Vec<String> {
    let mut found: Vec<_> = all.below.values().flat_map(names).collect();
    found.extend(all.header.iter().map(|name| name.as_str().to_owned()));
    found.sort_unstable();
    found
}

/// What `work` gives. It takes moments, and what it would take if the cost were a product of two sizes is out of all
/// proportion to this deadline.
fn in_no_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(work()));
    told.recv_timeout(Duration::from_secs(20))
        .expect("it takes too long")
}

#[test]
fn a_tool_of_which_too_many_properties_go_into_headers_is_none() {
    let property = |n: usize| format!(r#""p{n}":{{"type":"string","x-mcp-header":"H{n}"}}"#);
    let of = |count: usize| {
        let properties: Vec<_> = (0..count).map(property).collect();
        param_headers(&tool(&format!("{{{}}}", properties.join(","))))
    };
    assert_eq!(names(&of(MOST).unwrap()).len(), MOST);
    let told = of(MOST + 1).unwrap_err();
    assert_eq!(
        told,
        "`x-mcp-header` stands at more of its properties than the 64 that may have it"
    );
}

#[test]
fn what_stands_behind_the_last_header_that_a_tool_may_have_is_not_looked_at() {
    let mut properties = String::new();
    for n in 0..=MOST {
        write!(
            properties,
            r#""p{n:02}":{{"type":"string","x-mcp-header":"H{n}"}},"#
        )
        .unwrap();
    }
    let told = param_headers(&tool(&format!(r#"{{{properties}"z":{{"x-mcp-header":7}}}}"#))).unwrap_err();
    assert!(told.contains("than the 64 that may have it"), "{told}");
}

/// Each property below a name would have a copy of it.
#[test]
fn a_long_name_above_many_properties_is_kept_once() {
    let found = in_no_time(|| {
        let mut properties = String::from(r#""last":{}"#);
        for n in 0..100_000 {
            write!(properties, r#","p{n}":{{}}"#).unwrap();
        }
        for n in 0..MOST {
            write!(properties, r#","h{n}":{{"type":"string","x-mcp-header":"H{n}"}}"#).unwrap();
        }
        let parent = "n".repeat(4 << 20);
        param_headers(&tool(&format!(
            r#"{{"{parent}":{{"properties":{{{properties}}}}}}}"#
        )))
        .unwrap()
    });
    assert_eq!((found.below.len(), names(&found).len()), (1, MOST));
}

#[test]
fn a_long_name_does_not_make_a_long_report() {
    let parent = "\n".repeat(4 << 20).escape_default().to_string();
    for bad in [
        r#"{"x-mcp-header":"A"}"#,
        r#"{"type":"string","x-mcp-header":""}"#,
    ] {
        let told = param_headers(&tool(&format!(r#"{{"{parent}":{bad}}}"#))).unwrap_err();
        assert!(
            told.contains(r"`\n\n") && told.len() < 400,
            "{} bytes",
            told.len()
        );
    }
}

/// One member of a call may be large, and each header below it would read it anew, on each level.
#[test]
fn arguments_are_read_once_for_all_headers_however_deep_they_stand() {
    const DEEP: usize = 50;
    let headers = in_no_time(|| {
        let (mut properties, mut members) = (
            Vec::new(),
            vec![r#""x":["#.to_owned() + &"1,".repeat(1 << 20) + "1]"],
        );
        for n in 0..MOST {
            properties.push(format!(r#""p{n}":{{"type":"integer","x-mcp-header":"H{n}"}}"#));
            members.push(format!(r#""p{n}":{n}"#));
        }
        let (mut schema, mut arguments) = (
            format!("{{{}}}", properties.join(",")),
            format!("{{{}}}", members.join(",")),
        );
        for _ in 0..DEEP {
            schema = format!(r#"{{"a":{{"properties":{schema}}}}}"#);
            arguments = format!(r#"{{"a":{arguments}}}"#);
        }
        let cache = ParamCache::default();
        let found = param_headers(&tool(&schema)).unwrap();
        cache.replace(HashMap::from([("t".to_owned(), Arc::new(found))]));
        headers(&cache, &arguments)
    });
    assert_eq!(headers.len(), MOST);
    assert_eq!(headers[0], "mcp-param-h0: 0");
}

fn tool(properties: &str) -> String {
    format!(r#"{{"name":"t","inputSchema":{{"type":"object","properties":{properties}}}}}"#)
}

#[test]
fn annotations_that_break_the_rules_are_named() {
    let good = tool(
        r#"{"a":{"type":"string","x-mcp-header":"Region"},
            "b":{"type":"object","properties":{"c":{"type":"integer","x-mcp-header":"Deep"}}},
            "d":{"type":"object","default":{"x-mcp-header":7}}}"#,
    );
    let found = param_headers(&good).unwrap();
    assert_eq!(names(&found), ["mcp-param-deep", "mcp-param-region"]);
    for (properties, part) in [
        (
            r#"{"a":{"type":"string","x-mcp-header":""}}"#,
            "no name of a header",
        ),
        (
            r#"{"a":{"type":"string","x-mcp-header":7}}"#,
            "no name of a header",
        ),
        (
            r#"{"a":{"type":"string","x-mcp-header":"a b"}}"#,
            "no name of a header",
        ),
        (
            r#"{"a":{"type":"number","x-mcp-header":"A"}}"#,
            "no string, integer or boolean",
        ),
        (r#"{"a":{"x-mcp-header":"A"}}"#, "no string, integer or boolean"),
        (
            r#"{"a":{"type":"string","x-mcp-header":"A","properties":{"b":{"type":"string","x-mcp-header":"B"}}}}"#,
            "no string, integer or boolean",
        ),
        (
            r#"{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}"#,
            "two of its properties",
        ),
        (
            r#"{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}"#,
            "where no property of the input is",
        ),
        (
            r#"{"a":{"anyOf":[{"type":"string","x-mcp-header":"A"}]}}"#,
            "where no property of the input is",
        ),
    ] {
        let error = param_headers(&tool(properties)).unwrap_err();
        assert!(error.contains(part), "{properties}: {error}");
    }
    let root = r#"{"name":"t","inputSchema":{"x-mcp-header":"A"}}"#;
    assert!(param_headers(root).is_err());
}

fn headers(cache: &ParamCache, arguments: &str) -> Vec<String> {
    let mut request = CallToolRequest::new(CallToolRequestParams::new("t"));
    request.extensions.insert(RawArguments(arguments.into()));
    let message =
        ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(request), RequestId::Number(1));
    let headers = cache.headers(&message);
    let mut lines: Vec<_> = headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    lines.sort();
    lines
}

#[test]
fn values_go_out_as_they_are_or_in_base64() {
    let cache = ParamCache::default();
    let list = |properties: &str| {
        let headers = param_headers(&tool(properties)).unwrap();
        HashMap::from([("t".to_owned(), Arc::new(headers))])
    };
    cache.replace(list(
        r#"{"s":{"type":"string","x-mcp-header":"S"},"n":{"type":"integer","x-mcp-header":"N"},
            "o":{"type":"object","properties":{"b":{"type":"boolean","x-mcp-header":"B"}}}}"#,
    ));
    for (arguments, expected) in [
        (
            r#"{"s":"eu west","n":-7,"o":{"b":true},"x":1}"#,
            vec!["mcp-param-b: true", "mcp-param-n: -7", "mcp-param-s: eu west"],
        ),
        (r#"{"s":"é"}"#, vec!["mcp-param-s: =?base64?w6k=?="]),
        (r#"{"s":" x"}"#, vec!["mcp-param-s: =?base64?IHg=?="]),
        (
            r#"{"s":"a\r\nEvil: 1"}"#,
            vec!["mcp-param-s: =?base64?YQ0KRXZpbDogMQ==?="],
        ),
        (
            r#"{"s":"=?base64?x?="}"#,
            vec!["mcp-param-s: =?base64?PT9iYXNlNjQ/eD89?="],
        ),
        (r#"{"s":""}"#, vec!["mcp-param-s: "]),
        (r#"{"s":null,"n":[1],"o":7}"#, vec![]),
        (
            r#"{"n":123456789012345678901234567890, "s" : "\u0061\"" }"#,
            vec!["mcp-param-n: 123456789012345678901234567890", "mcp-param-s: a\""],
        ),
        // What becomes no header costs none of the others.
        (r#"{"s":"eu","o":1e999}"#, vec!["mcp-param-s: eu"]),
        (
            r#"{"o":{"b":true,"x":1e999,"y":{"z":-1e999}},"s":"eu"}"#,
            vec!["mcp-param-b: true", "mcp-param-s: eu"],
        ),
        (r#"{"s":"eu","o":[1e999]}"#, vec!["mcp-param-s: eu"]),
        // Of two with one name the later one counts.
        (r#"{"s":"a","s":null}"#, vec![]),
        (r#"{"s":"a","s":"b"}"#, vec!["mcp-param-s: b"]),
        (r#"{"o":{"b":true},"o":{}}"#, vec![]),
        (r#"{"o":{"b":true},"o":null}"#, vec![]),
        // What the JSON library would take for the text in it, and the server does not.
        (r#"{"s":{"$serde_json::private::RawValue":"\"x\""}}"#, vec![]),
        (r#"{"$serde_json::private::RawValue":"{\"s\":\"x\"}"}"#, vec![]),
    ] {
        assert_eq!(headers(&cache, arguments), expected, "{arguments}");
    }
    // A tool that no longer asks for headers gets none.
    cache.replace(list(r#"{"s":{"type":"string"}}"#));
    assert!(headers(&cache, r#"{"s":"x"}"#).is_empty());
}
