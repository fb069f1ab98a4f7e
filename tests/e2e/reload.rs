//! Policies that are edited while the program serves.

use std::fs;

use portcullis::Alias;
use portcullis_e2e::{Client, Folder};
use portcullis_testkit::{Behaviour, Script, Tool};

use crate::{configure, portcullis};

/// A hub of one server, whose one tool is allowed, and that tool's name for the client.
fn connect(folder: &Folder, also: &[&str]) -> (Client, Alias) {
    let tool = Tool::new("write", Behaviour::Text("written".to_owned()));
    configure(folder, &[("notes", Script::new("notes").tool(tool))]);
    folder.rules("allow mcp.notes.*\n");
    let arguments = [
        "serve",
        "--stdio",
        "--config",
        "mcp.json",
        "--policies",
        "policies",
    ];
    let program = portcullis(folder, &[arguments.as_slice(), also].concat());
    let capability: portcullis::CapabilityId = "mcp.notes.write".parse().unwrap();
    (Client::connect(program), capability.alias())
}

#[track_caller]
fn check(client: &mut Client, name: &Alias, expected: &str) {
    let reply = client.call(name.as_str(), "{}");
    assert!(reply.contains(expected), "{reply}");
}

#[test]
fn an_edit_takes_over_and_what_it_no_longer_forbids_is_told() {
    let folder = Folder::new();
    let (mut client, name) = connect(&folder, &[]);
    check(&mut client, &name, "written");
    folder.rules("allow mcp.notes.*\ndeny mcp.notes.write\n");
    client.running_mut().until_told("policies taken: ");
    check(&mut client, &name, "denied");
    folder.rules("allow mcp.notes.*\n");
    client
        .running_mut()
        .until_told("no longer forbidden: test.rules:2");
    check(&mut client, &name, "written");
    client.leave().exits(0);
}

#[test]
fn a_broken_edit_leaves_what_was_in_force_and_shows_in_the_exit_code() {
    let folder = Folder::new();
    let (mut client, name) = connect(&folder, &[]);
    folder.rules("allow mcp.notes.*\ndney mcp.notes.write\n");
    client.running_mut().until_told("policies/test.rules:2");
    check(&mut client, &name, "written");
    let told = client.leave().exits(3).stderr;
    assert!(told.contains("in force to the end are older"), "{told}");

    let (mut client, _) = connect(&folder, &[]);
    folder.rules("alow mcp.notes.*\n");
    client.running_mut().until_told("policies in force stay");
    folder.rules("allow mcp.notes.*\n");
    client.running_mut().until_told("policies restored: ");
    client.leave().exits(0);
}

#[test]
fn a_sealed_folder_takes_over_with_its_seal_alone() {
    let folder = Folder::new();
    folder.rules("allow mcp.notes.*\n");
    let seal = || {
        portcullis(&folder, &["policy", "seal", "policies"])
            .run()
            .exits(0)
    };
    seal();
    let (mut client, name) = connect(&folder, &["--sealed"]);
    folder.rules("deny mcp.notes.*\n");
    client.running_mut().until_told("not the one that was sealed");
    check(&mut client, &name, "written");
    seal();
    client.running_mut().until_told("policies taken: ");
    check(&mut client, &name, "denied");
    fs::remove_file(folder.path("policies/policies.seal")).unwrap();
    client.running_mut().until_told("the policies are not sealed");
    client.leave().exits(3);
}
