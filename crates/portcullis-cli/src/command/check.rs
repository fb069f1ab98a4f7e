use std::{collections::HashMap, path::PathBuf};

use clap::Args;
use portcullis::{
    Diagnostic, ServerSpec,
    config::{FieldReport, TransportSpec, normalize},
};
use serde::Serialize;

use crate::{
    ExitStatus,
    arguments::Format,
    findings::{self, ReadArguments},
    host::Host,
    output,
};

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// Configuration files: Portcullis' own, or a client's
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) read: ReadArguments,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
}

/// What a server came to. Values of variables, headers and arguments may be secrets: names and counts stand for
/// them.
#[derive(Serialize)]
struct ServerLine<'a> {
    id: &'a str,
    name: &'a str,
    enabled: bool,
    file: &'a str,
    line: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    plugin: Option<&'a str>,
    fingerprint: String,
    #[serde(flatten)]
    transport: TransportLine<'a>,
    /// What became of each field of its entry, and where it stands.
    fields: Vec<&'a FieldReport>,
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
        #[serde(skip_serializing_if = "Option::is_none")]
        proxy: Option<&'a str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        root_certificates: Vec<String>,
    },
}

/// Prints the normalised servers and everything that was found; fails where something is wrong.
pub(crate) fn run(arguments: &CheckArguments) -> ExitStatus {
    let (documents, options) = match arguments.read.read(&arguments.files) {
        Ok(read) => read,
        Err(error) => {
            output::error(&error.to_string());
            return (&error).into();
        }
    };
    let normalized = normalize(&documents, &options, &Host::capture());
    let mut fields: HashMap<_, Vec<&FieldReport>> = HashMap::new();
    for field in &normalized.fields {
        let server = field.server.as_deref().unwrap_or_default();
        fields
            .entry((field.file.as_str(), server, field.server_line))
            .or_default()
            .push(field);
    }
    let servers: Vec<_> = normalized
        .specs
        .iter()
        .map(|spec| {
            let entry = (
                spec.origin.file.as_str(),
                spec.display_name.as_str(),
                spec.origin.line,
            );
            ServerLine::of(spec, fields.remove(&entry).unwrap_or_default())
        })
        .collect();
    match arguments.format {
        Format::Json => print_json(&servers, &normalized.diagnostics),
        Format::Text => {
            servers.iter().for_each(|server| output::line(&server.text()));
            findings::print(&documents, &normalized.diagnostics, &options);
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

impl<'a> ServerLine<'a> {
    fn of(spec: &'a ServerSpec, fields: Vec<&'a FieldReport>) -> Self {
        let transport = match &spec.transport {
            TransportSpec::Stdio(stdio) => TransportLine::Stdio {
                program: stdio.program.display().to_string(),
                arguments: stdio.args.len(),
                env: stdio.env.keys().map(String::as_str).collect(),
                inherit_env: stdio.inherit_env.iter().map(String::as_str).collect(),
            },
            TransportSpec::Http(http) => TransportLine::Http {
                url: http.shown_url(),
                headers: http.headers.keys().map(String::as_str).collect(),
                egress: http.egress.iter().map(ToString::to_string).collect(),
                proxy: http.proxy.as_ref().map(|proxy| proxy.url.as_str()),
                root_certificates: http
                    .root_certificates
                    .iter()
                    .map(|path| path.display().to_string())
                    .collect(),
            },
        };
        Self {
            id: spec.id.as_str(),
            name: &spec.display_name,
            enabled: spec.enabled,
            file: &spec.origin.file,
            line: spec.origin.line,
            plugin: spec.origin.plugin.as_deref(),
            fingerprint: spec.fingerprint().to_string(),
            transport,
            fields,
        }
    }

    fn text(&self) -> String {
        let how = match &self.transport {
            TransportLine::Stdio {
                program, arguments, ..
            } => format!("stdio {program} ({arguments} arguments)"),
            TransportLine::Http {
                url, egress, proxy, ..
            } => {
                let through = proxy
                    .map(|proxy| format!(", through {proxy}"))
                    .unwrap_or_default();
                format!("http {url}{through}, may reach {}", egress.join(", "))
            }
        };
        let off = if self.enabled { "" } else { " (disabled)" };
        output::safe(&format!("{}{off}: {how}  [{}:{}]", self.id, self.file, self.line))
    }
}
