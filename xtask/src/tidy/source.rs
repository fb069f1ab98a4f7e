//! Rust files: their length, and attributes that switch a check off without saying why.

use anyhow::{Context, Result};
use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};

use super::Report;
use crate::finding::Finding;
use crate::workspace::Root;

/// A file aims at this many lines; a longer one is only mentioned.
const AIM: usize = 400;
/// A file of more lines fails.
const LIMIT: usize = 800;
/// `lib.rs` is a map, so it is short.
const LIB_LIMIT: usize = 100;

pub(super) fn check(root: &Root, report: &mut Report) -> Result<()> {
    for file in root.rust_files()? {
        let path = root.show(&file);
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read `{path}`"))?;
        check_length(&path, text.lines().count(), report);
        if path.ends_with("/mod.rs") {
            let finding = Finding::file(
                &path,
                "a module's file is called `mod.rs`",
                "call it `x.rs` and put it beside the folder `x/`",
            );
            report.findings.push(finding);
        }
        // A file that is not Rust is the guard's to report, which refuses it.
        if let Ok(tokens) = text.parse::<TokenStream>() {
            attributes(tokens, &mut |name, help, span| {
                let start = span.start();
                report.findings.push(
                    Finding::file(&path, format!("`#[{name}]`"), help).at(start.line, start.column + 1),
                );
            });
        }
    }
    Ok(())
}

fn check_length(path: &str, lines: usize, report: &mut Report) {
    if path.ends_with("/src/lib.rs") && lines > LIB_LIMIT {
        let what = format!("{lines} lines; a `lib.rs` has at most {LIB_LIMIT}");
        report.findings.push(Finding::file(
            path,
            what,
            "move code into modules: crate doc, modules and few re-exports stay",
        ));
    } else if lines > LIMIT {
        let what = format!("{lines} lines; a file has at most {LIMIT}");
        report.findings.push(Finding::file(
            path,
            what,
            format!("split it by idea, into files of {AIM} lines or fewer"),
        ));
    } else if lines > AIM {
        report.notes.push(format!(
            "{path}: {lines} lines, more than the {AIM} that a file aims at"
        ));
    }
}

/// Looks for `#[allow(…)]` and `#[ignore]`, also inside macros and `cfg_attr`; comments and strings are no tokens of
/// that kind, so they do not count.
fn attributes(tokens: TokenStream, found: &mut dyn FnMut(&str, &str, Span)) {
    let mut after_hash = false;
    for tree in tokens {
        match tree {
            TokenTree::Punct(punctuation) => {
                // `#!` begins an attribute just as `#` does.
                after_hash = punctuation.as_char() == '#' || (after_hash && punctuation.as_char() == '!');
            }
            TokenTree::Group(group) => {
                if after_hash && group.delimiter() == Delimiter::Bracket {
                    attribute(&group, found);
                } else {
                    attributes(group.stream(), found);
                }
                after_hash = false;
            }
            _ => after_hash = false,
        }
    }
}

fn attribute(group: &Group, found: &mut dyn FnMut(&str, &str, Span)) {
    let mut tokens = group.stream().into_iter();
    let Some(TokenTree::Ident(name)) = tokens.next() else {
        return;
    };
    let mut report = |name: &proc_macro2::Ident| match name.to_string().as_str() {
        "allow" => found(
            "allow",
            "use `#[expect(lint, reason = \"…\")]`, which tells when it is no longer needed",
            name.span(),
        ),
        "ignore" => found(
            "ignore",
            "a test that is not run proves nothing: make it quick, or take it out",
            name.span(),
        ),
        _ => {}
    };
    report(&name);
    if name == "cfg_attr"
        && let Some(TokenTree::Group(inner)) = tokens.next()
    {
        // The condition comes first, and the attributes after its comma.
        let inner = inner
            .stream()
            .into_iter()
            .skip_while(|tree| !matches!(tree, TokenTree::Punct(comma) if comma.as_char() == ','));
        inner
            .filter_map(|tree| {
                if let TokenTree::Ident(name) = tree {
                    Some(name)
                } else {
                    None
                }
            })
            .for_each(|name| report(&name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planted::Planted;

    #[track_caller]
    fn check_file(path: &str, text: &str, expected: &[(usize, &str)]) -> Vec<String> {
        let mut report = Report::default();
        check(&Planted::new(&[(path, text)]).root(), &mut report).unwrap();
        assert_eq!(report.findings.len(), expected.len(), "{:#?}", report.findings);
        for (finding, (line, what)) in report.findings.iter().zip(expected) {
            assert!(
                finding.path == path && finding.line == *line && finding.what.contains(what),
                "{finding}"
            );
        }
        report.notes
    }

    #[test]
    fn long_files_are_found() {
        let lines = |count: usize| "//\n".repeat(count);
        assert!(check_file("crates/a/src/x.rs", &lines(400), &[]).is_empty());
        assert_eq!(check_file("crates/a/src/x.rs", &lines(401), &[]).len(), 1);
        assert_eq!(check_file("crates/a/src/x.rs", &lines(800), &[]).len(), 1);
        check_file("crates/a/src/x.rs", &lines(801), &[(0, "801 lines")]);
        check_file("crates/a/src/lib.rs", &lines(100), &[]);
        check_file(
            "crates/a/src/lib.rs",
            &lines(101),
            &[(0, "101 lines; a `lib.rs`")],
        );
    }

    #[test]
    fn mod_files_are_found() {
        check_file("crates/a/src/x/mod.rs", "", &[(0, "`mod.rs`")]);
        check_file("crates/a/src/x/remod.rs", "", &[]);
    }

    #[test]
    fn silenced_checks_are_found() {
        let path = "crates/a/src/x.rs";
        check_file(path, "\n#[allow(dead_code)]\nfn f() {}\n", &[(2, "`#[allow]`")]);
        check_file(path, "#![allow(clippy::all)]\n", &[(1, "`#[allow]`")]);
        check_file(
            path,
            "mod m {\n  #[test]\n  #[ignore = \"slow\"]\n  fn f() {}\n}\n",
            &[(3, "`#[ignore]`")],
        );
        check_file(
            path,
            "#[cfg_attr(windows, ignore)]\nfn f() {}\n",
            &[(1, "`#[ignore]`")],
        );
        check_file(
            path,
            "macro_rules! m { () => { #[allow(dead_code)] fn f() {} } }\n",
            &[(1, "`#[allow]`")],
        );
    }

    #[test]
    fn words_are_no_attributes() {
        let text = "//! `#[allow(x)]`, #[ignore]\nconst A: &str = \"#[allow(x)]\";\n#[expect(dead_code, reason = \"#[ignore]\")]\nfn allow() { ignore(); [allow]; }\n#[cfg_attr(ignore, inline)]\nfn f() {}\n";
        check_file("crates/a/src/x.rs", text, &[]);
    }
}
