use super::*;

fn files(rules: &str, cedar: &str) -> Vec<PolicyFile> {
    [("t.rules", rules), ("t.cedar", cedar)]
        .map(|(name, text)| PolicyFile {
            name: name.to_owned(),
            text: text.to_owned(),
        })
        .to_vec()
}

/// The findings as `file:line lint`.
#[track_caller]
fn check(rules: &str, cedar: &str, catalog: Option<&[&str]>, expected: &[&str]) {
    let catalog: Option<Vec<CapabilityId>> =
        catalog.map(|tools| tools.iter().map(|tool| tool.parse().unwrap()).collect());
    let findings = lint(&files(rules, cedar), catalog.as_deref()).unwrap_or_else(|errors| panic!("{errors}"));
    let told: Vec<_> = findings
        .iter()
        .map(|finding| format!("{}:{} {}", finding.file, finding.line, finding.lint.describe().0))
        .collect();
    assert_eq!(told, expected, "{findings:?}");
}

fn cedar(scope: &str, condition: &str) -> String {
    format!("@id(\"a\") @description(\"d\")\n{scope}\nwhen {{ {condition} }};")
}

const CALL: &str = "permit (principal, action == Mcp::Action::\"call\", resource)";

#[test]
fn what_reads_otherwise_than_it_is_meant() {
    check("allow mcp.github.*\ndeny mcp.gl*.*\nask mcp.*.x", "", None, &[]);
    check(
        "allow mcp.git*.x\nallow elicit mcp.git*",
        "",
        None,
        &["t.rules:1 server-wildcard", "t.rules:2 server-wildcard"],
    );
    check("deny mcp.a.\\u{2a}\n", "", None, &["t.rules:1 escaped-wildcard"]);
    check(
        "",
        &cedar(CALL, r#"resource.name like "a\u{0_2a}""#),
        None,
        &["t.cedar:3 escaped-wildcard"],
    );
    check(
        "",
        &cedar(CALL, r#"resource.name like "a\u{2a}""#),
        None,
        &["t.cedar:3 escaped-wildcard"],
    );
    check(
        "",
        &cedar(CALL, r#"resource.name like "a\u{002A}""#),
        None,
        &["t.cedar:3 escaped-wildcard"],
    );
    check(
        "",
        &cedar(CALL, r#"resource.name like "a\x2a""#),
        None,
        &["t.cedar:3 escaped-wildcard"],
    );
    check("", &cedar(CALL, r#"resource.name like "a\u{2b}\*""#), None, &[]);
    check(
        "",
        &cedar(CALL, r#"resource.cap like "mcp.git*""#),
        None,
        &["t.cedar:1 joined-name"],
    );
    check(
        "",
        &cedar(CALL, r#"resource.server like "git*""#),
        None,
        &["t.cedar:1 server-wildcard"],
    );
    for spelling in [
        r#"resource["server"] like "git*""#,
        r#"(resource).server like "*t""#,
        "resource // x\n.server\nlike \"g*t\"",
    ] {
        check("", &cedar(CALL, spelling), None, &["t.cedar:1 server-wildcard"]);
    }
    // All servers are meant, one text, or what stands there is no code.
    for harmless in [
        r#"resource.server like "*""#,
        r#"resource.server like "github""#,
        r#"resource.name == "resource.server like git*""#,
        r#"principal == Mcp::Agent::"resource.cap like a*""#,
    ] {
        check("", &cedar(CALL, harmless), None, &[]);
    }
    check(
        "",
        &cedar(
            "forbid (principal, action == Mcp::Action::\"call\", resource == Mcp::Tool::\"mcp.a.*\")",
            "true",
        ),
        None,
        &["t.cedar:1 literal-wildcard"],
    );
    check(
        "",
        &cedar(
            "forbid (principal, action, resource in Mcp::Server::\"mcp.a\")",
            "true",
        ),
        None,
        &["t.cedar:1 unscoped"],
    );
}

#[test]
fn what_is_a_wildcard_elsewhere_is_none_in_a_rule() {
    for rule in [
        r#"deny mcp.a.b when arg.path == "/etc/*""#,
        r#"allow mcp.a.b when arg.kind == "x" and arg.path == "*.txt""#,
        "deny mcp.a.{b,c}",
        "deny mcp.a.[bc]",
        "deny mcp.a.b?",
    ] {
        check(rule, "", None, &["t.rules:1 literal-wildcard"]);
    }
    // A star alone is something that people search for.
    for harmless in [
        r#"deny mcp.a.b when arg.query == "*""#,
        r#"deny mcp.a.b when arg.sql == "SELECT * FROM x""#,
        r#"deny mcp.a.b* when arg.path == "/etc""#,
        r"deny mcp.a.\*",
    ] {
        check(harmless, "", None, &[]);
    }
}

#[test]
fn rules_that_others_leave_without_effect() {
    check("allow mcp.a.x\ndeny mcp.a.*", "", None, &["t.rules:1 shadowed"]);
    check("allow mcp.a.*\ndeny mcp.a.x", "", None, &[]);
    check(
        "ask mcp.a.get_*\nalways ask mcp.*.get*",
        "",
        None,
        &["t.rules:1 shadowed"],
    );
    check("always ask mcp.a.*\nask mcp.*", "", None, &[]);
    check("allow mcp.a.*\nallow mcp.a.*", "", None, &["t.rules:2 shadowed"]);
    check("allow mcp.a.*x\ndeny mcp.a.x*", "", None, &[]);
    check("allow mcp.a.*\ndeny mcp.a.* when arg.x == \"1\"", "", None, &[]);
    check(
        "allow mcp.a.* when arg.x == \"1\"\ndeny mcp.a.*",
        "",
        None,
        &["t.rules:1 shadowed"],
    );
    check("default ask\nask mcp.a.*", "", None, &[]);
}

#[test]
fn what_the_catalog_does_not_have() {
    let catalog = Some(["mcp.github.get_issue", "mcp.files.read", "host.editor.open"].as_slice());
    check(
        "allow mcp.github.get_*\ndeny mcp.*.read\nask host.*",
        "",
        catalog,
        &[],
    );
    check(
        "allow mcp.githb.*\nallow mcp.github.get_isue\ndeny mcp.*.delete_*\ndeny elicit mcp.x*\nask mcp.files.w*",
        "",
        catalog,
        &[
            "t.rules:1 unknown-server",
            "t.rules:2 unknown-tool",
            "t.rules:3 matches-nothing",
            "t.rules:4 matches-nothing",
            "t.rules:5 matches-nothing",
        ],
    );
    check(
        "",
        &cedar(CALL, r#"resource in Mcp::Server::"mcp.githb""#),
        catalog,
        &["t.cedar:1 unknown-server"],
    );
    check(
        "",
        &cedar(CALL, r#"resource == Mcp::Tool::"mcp.files.raed""#),
        catalog,
        &["t.cedar:1 unknown-tool"],
    );
    check(
        "",
        &cedar(CALL, r#"resource.name like "delete_*""#),
        catalog,
        &["t.cedar:1 matches-nothing"],
    );
    // What is always loaded is nobody's to correct.
    check("default ask", "", Some(&[]), &[]);
    check(
        "",
        &cedar(CALL, "resource.definitionChanged && resource.destructive"),
        catalog,
        &[],
    );
}
