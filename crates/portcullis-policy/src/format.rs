//! Files of policies in the one way to write them.

use crate::{PolicyError, PolicyErrors, PolicyFile, PolicyProblem, compile_rules, depth, rules, source};

/// The text of a file of policies as it should be committed. Comments stay.
///
/// # Errors
/// What keeps the file from being read.
pub fn format_policies(file: &PolicyFile) -> Result<String, PolicyErrors> {
    depth::with_room(&file.name, || formatted(file))
}

fn formatted(file: &PolicyFile) -> Result<String, PolicyErrors> {
    let mut errors = Vec::new();
    source::check_text(file, &mut errors);
    let formatted = if file.name.ends_with(".cedar") {
        source::load_cedar(file, &mut errors);
        if errors.is_empty() {
            pretty_file(file)?
        } else {
            String::new()
        }
    } else if file.name.ends_with(".rules") {
        rules::formatted(file, &mut errors)
    } else {
        errors.push(PolicyError::new(&file.name, 1, PolicyProblem::FileKind));
        String::new()
    };
    if errors.is_empty() {
        Ok(formatted)
    } else {
        Err(PolicyErrors(errors))
    }
}

/// The folder beside files of rules that holds what they compile to. It is for people to read; it is not loaded.
pub const COMPILED_FOLDER: &str = "compiled";

/// What a file of rules compiles to, as it is committed in [`COMPILED_FOLDER`] under the file's name and `.cedar`.
///
/// # Errors
/// All that is wrong in the file, each with its line.
pub fn compiled_text(file: &PolicyFile) -> Result<String, PolicyErrors> {
    let name = file.base_name().to_owned();
    let text = file.text.clone();
    let compiled = compile_rules(&PolicyFile { name, text })?;
    let head = format!(
        "// What {} means. Written by `portcullis policy rules`.\n",
        file.base_name()
    );
    Ok(if compiled.trim().is_empty() {
        head
    } else {
        format!("{head}\n{}\n", compiled.trim_end())
    })
}

/// How many policies are given to Cedar's formatter at once: it looks through the whole text for each comment, so a
/// file of ten thousand policies would take it hours.
const AT_ONCE: usize = 32;

fn pretty_file(file: &PolicyFile) -> Result<String, PolicyErrors> {
    let pretty: Result<Vec<_>, _> = pieces(&file.text, AT_ONCE)
        .into_iter()
        .map(|piece| pretty(file, piece))
        .collect();
    Ok(pretty?.join("\n"))
}

/// The text in pieces of so many policies. A comment that stands behind a policy in the same line goes with it.
fn pieces(text: &str, policies: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut start, mut count) = (0, 0);
    let ends = source::ends(text);
    // What stands behind the last policy goes with it.
    for end in ends.iter().copied().take(ends.len().saturating_sub(1)) {
        count += 1;
        let Some((_, rest)) = text.split_at_checked(end) else {
            continue;
        };
        let behind = rest.trim_start_matches([' ', '\t']);
        let end = match behind.starts_with("//") {
            true => end + rest.find('\n').unwrap_or(rest.len()),
            false => end,
        };
        if count >= policies {
            pieces.extend(text.get(start..end));
            (start, count) = (end, 0);
        }
    }
    pieces.extend(text.get(start..));
    pieces
}

pub(crate) fn pretty(file: &PolicyFile, text: &str) -> Result<String, PolicyErrors> {
    if text.trim().is_empty() {
        return Ok(String::new());
    }
    let pretty =
        cedar_policy_formatter::policies_str_to_pretty(text, &cedar_policy_formatter::Config::default());
    let pretty = pretty.map_err(|error| {
        let problem = PolicyProblem::Internal(error.to_string());
        PolicyErrors(vec![PolicyError::new(&file.name, 1, problem)])
    })?;
    Ok(format!("{}\n", pretty.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, text: &str, expected: &str) {
        let file = |text: &str| PolicyFile {
            name: name.to_owned(),
            text: text.to_owned(),
        };
        let formatted = format_policies(&file(text)).unwrap();
        assert_eq!(formatted, expected);
        assert_eq!(
            format_policies(&file(&formatted)).unwrap(),
            expected,
            "twice is as once"
        );
    }

    #[test]
    fn rules_keep_their_comments() {
        check("a.rules", "", "");
        check(
            "a.rules",
            "\n\n#  head\n  allow   mcp.a.*.*   # why\n\n\n\ndeny mcp.b.*.*\t#c\nallow mcp.a.x when  arg[\"k\"]==\"v\"\n\n",
            "#  head\nallow mcp.a.*.*  # why\n\ndeny mcp.b.*.*  #c\nallow mcp.a.x when arg.k == \"v\"\n",
        );
    }

    #[test]
    fn cedar_is_laid_out_and_keeps_its_comments() {
        check(
            "a.cedar",
            "// head\n@id(\"a\") @description(\"d\") permit(principal,action==Mcp::Action::\"call\",resource);",
            "// head\n@id(\"a\")\n@description(\"d\")\npermit (\n  principal,\n  action == Mcp::Action::\"call\",\n  resource\n);\n",
        );
    }

    #[test]
    fn pieces_are_laid_out_as_the_whole() {
        let policy = |n: usize| {
            format!(
                "@id(\"{n}\")@description(\"; // {n}\") permit(principal,action,resource)when{{resource.name==\"a;\"}};"
            )
        };
        let between = [
            "",
            " ",
            " // behind\n",
            "\n",
            "\n\n// before\n",
            " // behind; permit\n\n// before\n",
            "\r\n\t",
        ];
        for (first, second) in between.iter().flat_map(|a| between.map(|b| (*a, b))) {
            let text = format!(
                "// head\n{}{first}{}{second}{}{first}",
                policy(0),
                policy(1),
                policy(2)
            );
            let file = PolicyFile {
                name: "a.cedar".to_owned(),
                text: text.clone(),
            };
            let whole = pretty(&file, &text).unwrap();
            for at_once in 1..=3 {
                let pieces = pieces(&text, at_once);
                assert_eq!(pieces.concat(), text, "nothing is lost");
                let formatted: Vec<_> = pieces
                    .into_iter()
                    .map(|piece| pretty(&file, piece).unwrap())
                    .collect();
                assert_eq!(formatted.join("\n"), whole, "{at_once} at once of {text:?}");
            }
        }
        let many: String = (0..100).map(policy).collect();
        assert_eq!(
            pieces(&many, AT_ONCE).len(),
            4,
            "a text without line breaks is cut as well"
        );
    }

    #[test]
    fn what_cannot_be_read_is_not_formatted() {
        let file = PolicyFile {
            name: "a.rules".to_owned(),
            text: "allow mcp.a.*\nalow mcp.b.*".to_owned(),
        };
        assert!(
            format_policies(&file)
                .unwrap_err()
                .to_string()
                .starts_with("a.rules:2:")
        );
    }

    #[test]
    fn compiled_text_names_its_rules() {
        let compiled = |text: &str| {
            compiled_text(&PolicyFile {
                name: "dir/a.rules".to_owned(),
                text: text.to_owned(),
            })
            .unwrap()
        };
        assert_eq!(
            compiled("default deny"),
            "// What a.rules means. Written by `portcullis policy rules`.\n"
        );
        let text = compiled("deny mcp.a.*");
        assert!(
            text.contains("@id(\"a.rules#L1\")") && text.ends_with(");\n"),
            "{text}"
        );
    }
}
