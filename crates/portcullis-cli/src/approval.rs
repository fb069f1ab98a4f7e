use std::io::{BufRead, IsTerminal};

use futures::future::BoxFuture;
use portcullis::{ApprovalHandler, ApprovalRequest, PersonAnswer};

use crate::{hub, output};

/// Asks the person at the terminal; where there is none, nobody.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terminal;

/// How much of the arguments a person is shown before they ask for all, in characters.
const SHOWN: usize = 2_000;
/// How much of that is from their end: where one part alone is shown, the other can be filled with nothing.
const SHOWN_END: usize = 500;

impl ApprovalHandler for Terminal {
    fn name(&self) -> String {
        hub::user_name()
    }

    fn person<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, PersonAnswer> {
        Box::pin(async move {
            if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
                return PersonAnswer::Nobody;
            }
            output::note(&question(request));
            loop {
                output::note(&choices(request));
                let answer = tokio::task::spawn_blocking(|| {
                    let mut line = String::new();
                    std::io::stdin().lock().read_line(&mut line).map(|_| line)
                });
                match answer.await {
                    Ok(Ok(line)) if wants_all(&line, request) => output::note(&whole(&request.arguments)),
                    Ok(Ok(line)) => return understood(&line, request),
                    _ => return PersonAnswer::Nobody,
                }
            }
        })
    }
}

/// What a person typed. Whatever is no yes is a no.
fn understood(line: &str, request: &ApprovalRequest) -> PersonAnswer {
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" | "o" | "once" => PersonAnswer::Allow,
        "h" | "hold" if request.hold.is_some() => PersonAnswer::AllowFor,
        "a" | "always" if request.always.is_some() => PersonAnswer::AllowAlways,
        _ => PersonAnswer::Deny("said no at the terminal".to_owned()),
    }
}

/// Whether they typed that they want to see all of the arguments, where they have not.
fn wants_all(line: &str, request: &ApprovalRequest) -> bool {
    is_cut(&request.arguments) && matches!(line.trim().to_ascii_lowercase().as_str(), "v" | "view")
}

fn is_cut(arguments: &str) -> bool {
    arguments.chars().count() > SHOWN
}

/// What may be answered: only what would hold.
fn choices(request: &ApprovalRequest) -> String {
    let mut choices = String::from("Let it run? [y] this once");
    if let Some(hold) = request.hold {
        let minutes = hold.as_secs().div_ceil(60);
        choices.push_str(&format!(", [h] this very call for {minutes} min"));
    }
    if let Some(offer) = &request.always {
        let path = output::inline(&offer.path.display().to_string(), 400);
        choices.push_str(&format!(
            ", [a] always, whatever the arguments, written to {path}"
        ));
    }
    if is_cut(&request.arguments) {
        choices.push_str(", [v] view all of the arguments first");
    }
    choices.push_str(", [N] no");
    choices
}

/// What the person is asked. All of it is on lines of its own making: names are the server's, arguments the model's.
fn question(request: &ApprovalRequest) -> String {
    format!(
        "{} wants to run with {}\n  {}",
        output::inline(&request.capability.to_string(), 200),
        shown(&request.arguments),
        output::inline(&request.decision.to_string(), 1_000),
    )
}

/// The arguments on one line: all, or their beginning and their end.
fn shown(arguments: &str) -> String {
    let length = arguments.chars().count();
    if length <= SHOWN {
        return output::inline(arguments, SHOWN);
    }
    let end_at = arguments.char_indices().rev().nth(SHOWN_END - 1);
    let end = end_at.and_then(|(at, _)| arguments.get(at..)).unwrap_or_default();
    format!(
        "{}, and at their end …{}",
        output::inline(arguments, SHOWN - SHOWN_END),
        output::inline(end, SHOWN_END)
    )
}

/// All of the arguments.
fn whole(arguments: &str) -> String {
    output::inline(arguments, usize::MAX)
}

#[cfg(test)]
mod tests {
    use portcullis::{Decision, ReasonCode};

    use super::*;

    #[test]
    fn neither_a_tools_name_nor_its_arguments_can_forge_the_question() {
        let request = ApprovalRequest {
            call: 1,
            capability: "mcp.a.x\r\u{1b}[2Kmcp.notes.list wants to run with {}\u{1b}[8m"
                .parse()
                .unwrap(),
            agent: Default::default(),
            tier: Default::default(),
            arguments: format!("{{{}\"path\":\"/\"}}", "\n".repeat(5_000)),
            description: None,
            decision: Decision::deny(ReasonCode::AskByPolicy, None),
            hold: None,
            always: None,
        };
        let asked = question(&request);
        assert_eq!(asked.lines().count(), 2);
        assert!(!asked.contains(['\r', '\u{1b}']), "{asked:?}");
        assert!(asked.contains("(5012 characters in all)"), "{asked}");
        assert!(
            asked.contains("\"path\":\"/\"}"),
            "the end is not hidden: {asked}"
        );
    }

    #[test]
    fn arguments_that_are_cut_can_be_seen_whole_and_nothing_else_offers_it() {
        let request = |arguments: String| ApprovalRequest {
            call: 1,
            capability: "mcp.a.x".parse().unwrap(),
            agent: Default::default(),
            tier: Default::default(),
            arguments,
            description: None,
            decision: Decision::deny(ReasonCode::AskByPolicy, None),
            hold: None,
            always: None,
        };
        let short = request(format!(r#"{{"k":"{}"}}"#, "é".repeat(SHOWN - 8)));
        assert!(!is_cut(&short.arguments) && question(&short).contains(&short.arguments));
        assert!(!wants_all("v", &short) && !choices(&short).contains("[v]"));
        let long = request(format!(
            "{{\"a\":\"{}\",\"wipe\":\"all\u{202e}\",\"b\":\"{}\"}}",
            "é".repeat(SHOWN),
            "é".repeat(SHOWN)
        ));
        assert!(!question(&long).contains("wipe") && choices(&long).contains("[v] view all"));
        assert!(wants_all(" View\n", &long) && !wants_all("y", &long));
        let all = whole(&long.arguments);
        assert!(
            all.contains(r#""wipe":"all\u{202e}""#) && all.lines().count() == 1,
            "{all}"
        );
        assert!(
            matches!(understood("v", &short), PersonAnswer::Deny(_)),
            "whatever is no yes is a no"
        );
    }

    #[test]
    fn only_what_would_hold_is_offered_and_taken() {
        let mut request = ApprovalRequest {
            call: 1,
            capability: "mcp.a.x".parse().unwrap(),
            agent: Default::default(),
            tier: Default::default(),
            arguments: "{}".to_owned(),
            description: None,
            decision: Decision::deny(ReasonCode::AskByPolicy, None),
            hold: None,
            always: None,
        };
        assert_eq!(choices(&request), "Let it run? [y] this once, [N] no");
        for no in ["", "n", "h", "a", "always", "yess", "y y"] {
            assert!(matches!(understood(no, &request), PersonAnswer::Deny(_)), "{no}");
        }
        assert_eq!(understood(" Y\r\n", &request), PersonAnswer::Allow);
        request.hold = Some(std::time::Duration::from_secs(3_600));
        request.always = Some(portcullis::AlwaysOffer {
            path: "policies/a\n.cedar".into(),
            text: String::new(),
        });
        assert_eq!(
            choices(&request),
            "Let it run? [y] this once, [h] this very call for 60 min, [a] always, whatever the arguments, written to policies/a\\n.cedar, [N] no"
        );
        assert_eq!(understood("h", &request), PersonAnswer::AllowFor);
        assert_eq!(understood("Always", &request), PersonAnswer::AllowAlways);
    }
}
