use std::io::{BufRead, IsTerminal};

use futures::future::BoxFuture;
use portcullis::{ApprovalHandler, ApprovalRequest, PersonAnswer};

use crate::output;

/// Asks the person at the terminal; where there is none, nobody.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terminal;

impl ApprovalHandler for Terminal {
    fn person<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, PersonAnswer> {
        Box::pin(async move {
            if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
                return PersonAnswer::Nobody;
            }
            output::note(&format!(
                "{} wants to run with {}",
                request.capability,
                output::safe(&request.arguments)
            ));
            output::note(&format!("  {}", request.decision));
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
