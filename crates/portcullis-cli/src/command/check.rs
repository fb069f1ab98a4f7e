use portcullis::{
    Diagnostic, ServerSpec,
    config::{HostEnvironment, Options, TransportSpec, normalize},
    read_documents,
};
use serde::Serialize;
use url::Url;

use crate::{
    ExitStatus,
    arguments::{CheckArguments, Format},
    output,
};

/// What a server came to. Values of variables, headers and arguments may be secrets: names and counts stand for
/// them.
#[derive(Serialize)]
struct ServerLine<'a> {
    id: &'a str,
    name: &'a str,
    enabled: bool,
    file: &'a str,
    line: usize,
    fingerprint: String,
    #[serde(flatten)]
    transport: TransportLine<'a>,
}

#[derive(Serialize)]
#[serde(tag = "transport", rename_all = "lowercase")]
enum TransportLine<'a> {
    Stdio {
        program: String,
        arguments: usize,
        env: Vec<&'a str>,
        inherit_env: Vec<&'a str>,
    },
    Http {
        url: String,
        headers: Vec<&'a str>,
        egress: Vec<String>,
    },
}

/// Prints the normalised servers and everything that was found; fails where something is wrong.
pub(crate) fn run(arguments: &CheckArguments) -> ExitStatus {
    let documents = match read_documents(&arguments.files) {
        Ok(documents) => documents,
        Err(error) => {
            output::error(&error.to_string());
            return (&error).into();
        }
    };
    let normalized = normalize(&documents, &Options::default(), &HostEnvironment::capture());
    let servers: Vec<_> = normalized.specs.iter().map(ServerLine::of).collect();
    match arguments.format {
        Format::Json => print_json(&servers, &normalized.diagnostics),
        Format::Text => {
            servers.iter().for_each(|server| output::line(&server.text()));
            normalized
                .diagnostics
                .iter()
                .for_each(|diagnostic| output::note(&diagnostic.to_string()));
        }
    }
    if normalized.has_errors() {
        ExitStatus::BadConfig
    } else {
        ExitStatus::Done
    }
}

fn print_json(servers: &[ServerLine<'_>], diagnostics: &[Diagnostic]) {
    #[derive(Serialize)]
    struct Report<'a> {
        servers: &'a [ServerLine<'a>],
        diagnostics: &'a [Diagnostic],
    }
    output::json(&Report { servers, diagnostics });
}

/// An address without its query, which may hold a secret.
fn shown(url: &Url) -> String {
    let mut shown = url.clone();
    shown.set_query(url.query().map(|_| "…"));
    shown.to_string().replace("%E2%80%A6", "…")
}

impl<'a> ServerLine<'a> {
    fn of(spec: &'a ServerSpec) -> Self {
        let transport = match &spec.transport {
            TransportSpec::Stdio(stdio) => TransportLine::Stdio {
                program: stdio.program.display().to_string(),
                arguments: stdio.args.len(),
                env: stdio.env.keys().map(String::as_str).collect(),
                inherit_env: stdio.inherit_env.iter().map(String::as_str).collect(),
            },
            TransportSpec::Http(http) => TransportLine::Http {
                url: shown(&http.url),
                headers: http.headers.keys().map(String::as_str).collect(),
                egress: http.egress.iter().map(ToString::to_string).collect(),
            },
        };
        Self {
            id: spec.id.as_str(),
            name: &spec.display_name,
            enabled: spec.enabled,
            file: &spec.origin.file,
            line: spec.origin.line,
            fingerprint: spec.fingerprint().to_string(),
            transport,
        }
    }

    fn text(&self) -> String {
        let how = match &self.transport {
            TransportLine::Stdio {
                program, arguments, ..
            } => format!("stdio {program} ({arguments} arguments)"),
            TransportLine::Http { url, egress, .. } => format!("http {url}, may reach {}", egress.join(", ")),
        };
        let off = if self.enabled { "" } else { " (disabled)" };
        output::safe(&format!("{}{off}: {how}  [{}:{}]", self.id, self.file, self.line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_not_shown() {
        let url = Url::parse("https://example.com/mcp?api_key=canary").unwrap();
        assert_eq!(shown(&url), "https://example.com/mcp?…");
        assert_eq!(
            shown(&Url::parse("https://example.com/mcp").unwrap()),
            "https://example.com/mcp"
        );
    }
}
