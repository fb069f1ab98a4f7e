//! The page that lists the codes, generated from them and from a document for each.

use std::collections::BTreeSet;

use portcullis_config::{Code, Document, Excerpts, Options, normalize};

use crate::machine::{Machine, committed};

/// A document that has the finding, by code; the few that need more than one short document have none.
const EXAMPLES: &[(Code, &str, &str)] = &[
    (
        Code::Syntax,
        "mcp.json",
        "{\"mcpServers\": {\"a\": {\"command\": \"node\"}}",
    ),
    (
        Code::YamlFeature,
        "mcp.yaml",
        "mcp: {servers: [&x {name: a, command: node}]}",
    ),
    (Code::EmptyDocument, "mcp.yaml", "# nothing yet\n"),
    (Code::UnknownShape, "mcp.json", "{\"server\": []}"),
    (
        Code::DuplicateKey,
        "mcp.json",
        "{\"mcpServers\": {\"a\": {\"command\": \"node\",\n  \"command\": \"npx\"}}}",
    ),
    (
        Code::UnknownField,
        "mcp.yaml",
        "mcp: {servers: [{name: a, command: node, arg: [x]}]}",
    ),
    (
        Code::UnsupportedField,
        "mcp.json",
        "{\"servers\": {\"a\": {\"command\": \"node\", \"dev\": {}}}}",
    ),
    (
        Code::IgnoredField,
        "mcp.json",
        "{\"mcpServers\": {\"a\": {\"command\": \"node\", \"autoApprove\": [\"read\"]}}}",
    ),
    (
        Code::WrongType,
        "mcp.yaml",
        "mcp: {servers: [{name: a, command: node, args: x}]}",
    ),
    (
        Code::BadValue,
        "mcp.yaml",
        "mcp: {servers: [{name: a, command: node, timeoutMs: 0}]}",
    ),
    (
        Code::MissingField,
        "mcp.yaml",
        "mcp: {servers: [{command: node}]}",
    ),
    (
        Code::NoTransport,
        "mcp.json",
        "{\"mcpServers\": {\"a\": {\"args\": []}}}",
    ),
    (
        Code::TwoTransports,
        "mcp.yaml",
        "mcp: {servers: [{name: a, command: node, url: \"https://a.example\"}]}",
    ),
    (
        Code::UnknownTransport,
        "mcp.json",
        "{\"mcpServers\": {\"a\": {\"type\": \"ws\", \"url\": \"https://a.example\"}}}",
    ),
    (
        Code::SseRefused,
        "mcp.json",
        "{\"mcpServers\": {\"a\": {\"type\": \"sse\", \"url\": \"https://a.example\"}}}",
    ),
    (
        Code::BadUrl,
        "mcp.json",
        "{\"mcpServers\": {\"a\": {\"url\": \"ftp://a.example\"}}}",
    ),
    (
        Code::HostNotAllowed,
        "mcp.yaml",
        "mcp: {servers: [{name: a, url: \"https://a.example\"}]}",
    ),
    (
        Code::PlainHttp,
        "mcp.json",
        "{\"mcpServers\": {\"a\": {\"url\": \"http://a.example\", \"headers\": {\"A\": \"1\"}}}}",
    ),
    (
        Code::ProgramNotFound,
        "mcp.yaml",
        "mcp: {servers: [{name: a, command: nowhere}]}",
    ),
    (
        Code::ProgramNotAbsolute,
        "mcp.yaml",
        "mcp: {servers: [{name: a, command: ./node}]}",
    ),
    (
        Code::UnsetReference,
        "mcp.yaml",
        "mcp: {servers: [{name: a, command: node, args: [\"${env:NOT_THERE}\"]}]}",
    ),
    (
        Code::LiteralSecret,
        "mcp.yaml",
        "mcp: {servers: [{name: a, command: node, env: {API_KEY: abc}}]}",
    ),
    (
        Code::ExposedSecret,
        "mcp.yaml",
        "mcp: {servers: [{name: a, command: node, args: [\"${env:GITHUB_TOKEN}\"]}]}",
    ),
    (
        Code::CapabilityInEnv,
        "mcp.yaml",
        "mcp: {profile: strict, servers: [{name: a, command: /usr/bin/node, env: {API_KEY: abc}}]}",
    ),
    (
        Code::InheritNotAllowed,
        "mcp.yaml",
        "mcp: {profile: strict, servers: [{name: a, command: /usr/bin/node, inheritEnv: [GITHUB_TOKEN]}]}",
    ),
    (
        Code::DuplicateServer,
        "mcp.yaml",
        "mcp:\n  servers:\n    - {name: a, command: node}\n    - {name: a, command: npx}\n",
    ),
    (
        Code::SameServer,
        "mcp.yaml",
        "mcp:\n  servers:\n    - {name: a, command: node}\n    - {name: b, command: node}\n",
    ),
    (
        Code::AsksLifted,
        "mcp.yaml",
        "mcp: {tier: full_access, servers: [{name: a, command: node}]}",
    ),
];

#[test]
fn the_page_of_codes_is_the_one_that_is_generated() {
    let mut page = String::from(
        "# What `portcullis check` finds\n\n\
         Each finding has one of these codes, which do not change. An error keeps the server, the document or the one \
         setting that it is about from being used, and `check` ends with 3; a warning does not. Values that may be secrets are left out of excerpts: an `…` stands for \
         them.\n\n\
         This page is generated from the codes and from the examples' own findings; a test holds it to them.\n\n\
         | code | meaning |\n| --- | --- |\n",
    );
    for code in Code::ALL {
        let (name, meaning) = code.describe();
        page += &format!("| [`{name}`](#{name}) | {meaning} |\n");
    }
    let options = Options::default();
    for code in Code::ALL {
        let (name, meaning) = code.describe();
        page += &format!("\n## {name}\n\n");
        let mut rest = meaning.chars();
        let first = rest.next().unwrap().to_ascii_uppercase();
        page += &format!("{first}{}.\n", rest.as_str());
        let Some((_, file, text)) = EXAMPLES.iter().find(|(known, ..)| known == code) else {
            continue;
        };
        let document = Document::new(*file, *text);
        let found = normalize(std::slice::from_ref(&document), &options, &Machine::default()).diagnostics;
        let found = found.iter().find(|found| found.code == *code);
        let found = found.unwrap_or_else(|| panic!("{text} has no {name}"));
        let excerpt = Excerpts::new(&document, &options).render(found, false);
        page += &format!("\n```text\n{excerpt}```\n");
    }
    committed("docs/config-diagnostics.md", &page);
}

#[test]
fn every_code_but_a_few_has_an_example() {
    let shown: BTreeSet<_> = EXAMPLES.iter().map(|(code, ..)| *code).collect();
    let without: Vec<_> = Code::ALL.iter().filter(|code| !shown.contains(code)).collect();
    let expected = [
        Code::NotUtf8,
        Code::TooLarge,
        Code::TooDeep,
        Code::TooManyServers,
        Code::SettingConflict,
        Code::TooManyDiagnostics,
    ];
    assert_eq!(without, expected.iter().collect::<Vec<_>>());
}
