//! A machine that no test depends on: its variables, files and programs are written here.

use std::path::Path;

use portcullis_config::{
    Environment, Isolation, Limits, Normalized, ServerSpec, Sources, Template, TransportSpec,
};
use secrecy::SecretString;

pub(crate) struct Machine {
    pub(crate) variables: Vec<(&'static str, &'static str)>,
    pub(crate) programs: Vec<&'static str>,
    pub(crate) files: Vec<(&'static str, &'static str)>,
    /// Service, account and secret.
    pub(crate) keyring: Vec<(&'static str, &'static str, &'static str)>,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            variables: vec![
                ("PATH", "/usr/local/bin:/usr/bin"),
                ("HOME", "/home/ada"),
                ("DOMAIN", "example.com"),
                ("HTTPS_PROXY", ""),
                ("GITHUB_TOKEN", "canary"),
                ("DOCS_TOKEN", "canary"),
                ("FILES_TOKEN", "canary"),
            ],
            programs: vec![
                "/usr/bin/node",
                "/usr/bin/npx",
                "/usr/bin/docker",
                "/usr/local/bin/uvx",
                "/opt/tools/bin/tool",
                "/home/ada/bin/mine",
                // Never to be found: a relative part of a PATH means the working directory.
                "relative/bin/tool",
                "tool",
            ],
            files: vec![
                ("/run/secrets/docs", "canary\n"),
                (
                    "/etc/ssl/corp.pem",
                    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
                ),
                (
                    "/home/ada/own.pem",
                    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
                ),
                ("/run/two-lines", "a\nb\n"),
                ("/run/nul", "a\0b"),
                ("/home/ada/vars.env", "TOKEN=canary\nexport MODE=read\n"),
                ("/w/app/.env", "# values\nPASSWORD=\"canary\"\nnot a line\n"),
            ],
            keyring: vec![("docs", "ada", "canary")],
        }
    }
}

impl Sources for Machine {
    fn variable(&self, name: &str) -> Option<String> {
        self.variables
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| (*value).to_owned())
    }

    fn file(&self, path: &str) -> Option<String> {
        self.files
            .iter()
            .find(|(known, _)| *known == path)
            .map(|(_, text)| (*text).to_owned())
    }

    fn has_keyring(&self) -> bool {
        true
    }

    fn keyring(&self, service: &str, account: &str) -> Option<SecretString> {
        let entry = (service, account);
        self.keyring
            .iter()
            .find(|(service, account, _)| entry == (*service, *account))
            .map(|(_, _, secret)| SecretString::from(*secret))
    }
}

impl Environment for Machine {
    fn is_executable(&self, path: &Path) -> bool {
        self.programs.iter().any(|program| Path::new(program) == path)
    }
}

/// All of it as text; templates by their source, so only for documents without secrets that matter.
pub(crate) fn render(normalized: &Normalized) -> String {
    let mut text: String = normalized.specs.iter().map(server).collect();
    if let Some(policies) = &normalized.settings.policies {
        text += &format!(
            "policies: {} (line {})\n",
            policies.value.display(),
            policies.origin.line
        );
    }
    if let Some(tier) = &normalized.settings.tier {
        text += &format!("tier: {} (line {})\n", tier.value, tier.origin.line);
    }
    if let Some(agents) = &normalized.settings.agents {
        text += &format!("agents: {:?} (line {})\n", agents.value, agents.origin.line);
    }
    for diagnostic in &normalized.diagnostics {
        let server = diagnostic
            .server
            .as_ref()
            .map(|server| format!("  server: {server}\n"))
            .unwrap_or_default();
        text += &format!("{diagnostic}\n{server}");
    }
    text
}

fn server(spec: &ServerSpec) -> String {
    let mut lines = vec![format!(
        "{} ({:?}, line {})",
        spec.id, spec.display_name, spec.origin.line
    )];
    match &spec.transport {
        TransportSpec::Stdio(stdio) => {
            lines.push(format!("program: {}", stdio.program.display()));
            lines.extend(stdio.args.iter().map(|arg| format!("arg: {:?}", arg.source())));
            lines.extend(
                stdio
                    .env
                    .iter()
                    .map(|(name, value)| format!("env: {name}={:?}", value.source())),
            );
            lines.extend(stdio.inherit_env.iter().map(|name| format!("inherits: {name}")));
            lines.extend(stdio.cwd.iter().map(|cwd| format!("cwd: {}", cwd.display())));
        }
        TransportSpec::Http(http) => {
            lines.push(format!("url: {}", http.url));
            lines.extend(
                http.headers
                    .iter()
                    .map(|(name, value)| format!("header: {name}: {:?}", value.source())),
            );
            lines.extend(http.egress.iter().map(|rule| format!("egress: {rule}")));
            lines.extend(http.proxy.iter().map(|proxy| {
                let login =
                    [&proxy.username, &proxy.password].map(|text| text.as_ref().map(Template::source));
                format!("proxy: {} {login:?}", proxy.url)
            }));
            lines.extend(
                http.root_certificates
                    .iter()
                    .map(|path| format!("roots: {}", path.display())),
            );
        }
    }
    let t = &spec.timeouts;
    lines.push(format!(
        "timeouts: connect {:?}, list {:?}, call {:?}, at most {:?}",
        t.connect, t.list, t.call, t.call_max
    ));
    lines.push(format!(
        "protocol: {:?}, enabled: {}",
        spec.protocol, spec.enabled
    ));
    if spec.isolation != Isolation::default() || spec.limits != Limits::default() {
        lines.push(format!("{:?}, {:?}", spec.isolation, spec.limits));
    }
    lines.extend(
        spec.origin
            .plugin
            .iter()
            .map(|plugin| format!("plugin: {plugin}")),
    );
    lines.extend(spec.description.iter().map(|text| format!("description: {text}")));
    lines.extend(
        spec.disabled_tools
            .iter()
            .map(|tool| format!("disabled tool: {tool}")),
    );
    lines.extend(
        spec.disabled_auto_approve_tools
            .iter()
            .map(|tool| format!("always asks: {tool}")),
    );
    lines.join("\n  ") + "\n"
}

/// Holds a generated text against the file that is committed; writes it there where `PORTCULLIS_WRITE` is set.
pub(crate) fn committed(path: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    #[expect(clippy::disallowed_methods, reason = "a test is told so by who runs it")]
    if std::env::var_os("PORTCULLIS_WRITE").is_some() {
        std::fs::write(&file, text).unwrap();
    }
    let known = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        known == text,
        "`{path}` is not what is generated: run `PORTCULLIS_WRITE=1 cargo test -p portcullis-config` and look at the \
         difference"
    );
}
