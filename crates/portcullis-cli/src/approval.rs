use std::io::{BufRead, IsTerminal};

use futures::future::BoxFuture;
use portcullis::{ApprovalHandler, ApprovalRequest, PersonAnswer};

use crate::output;

/// Asks the person at the terminal; where there is none, nobody.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terminal;

/// How much of the arguments a person is shown, in characters.
const SHOWN: usize = 2_000;

impl ApprovalHandler for Terminal {
    fn person<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, PersonAnswer> {
        Box::pin(async move {
            if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
                return PersonAnswer::Nobody;
            }
            output::note(&question(request));
            output::note("Let it run, this once? [y/N]");
            let answer = tokio::task::spawn_blocking(|| {
                let mut line = String::new();
                std::io::stdin().lock().read_line(&mut line).map(|_| line)
            });
            match answer.await {
                Ok(Ok(line)) if matches!(line.trim(), "y" | "Y" | "yes") => PersonAnswer::Allow,
                Ok(Ok(_)) => PersonAnswer::Deny("said no at the terminal".to_owned()),
                _ => PersonAnswer::Nobody,
            }
        })
    }
}

/// What the person is asked. All of it is on lines of its own making: names are the server's, arguments the model's.
fn question(request: &ApprovalRequest) -> String {
    format!(
        "{} wants to run with {}\n  {}",
        output::inline(&request.capability.to_string(), 200),
        output::inline(&request.arguments, SHOWN),
        output::inline(&request.decision.to_string(), 1_000),
    )
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
        };
        let asked = question(&request);
        assert_eq!(asked.lines().count(), 2);
        assert!(!asked.contains(['\r', '\u{1b}']), "{asked:?}");
        assert!(asked.contains("(5012 characters in all)"), "{asked}");
    }
}
