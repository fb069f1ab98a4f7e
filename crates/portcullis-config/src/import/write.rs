//! Writes drafts as YAML of the own format.

use portcullis_types::EgressRule;

use crate::{
    Dialect, Document, Isolation, Profile, Protocol,
    draft::{Draft, DraftDocument, HubDraft, TimeoutsDraft},
    fields::Pair,
    network::{NetworkDraft, ProxyDraft},
    value::Spanned,
};

/// The whole document.
pub(super) fn document(
    document: &Document,
    dialect: Dialect,
    read: &DraftDocument,
    servers: &[(Draft, Vec<EgressRule>)],
) -> String {
    let mut out = Yaml::default();
    let file: String = document.name.chars().filter(|c| !c.is_control()).collect();
    out.line(0, &format!("# Imported from {file} ({dialect})."));
    out.line(0, "mcp:");
    if read.profile == Profile::Strict {
        out.line(1, "profile: strict");
    }
    hub(&read.hub, &mut out);
    if servers.is_empty() {
        out.line(1, "servers: []");
        return out.text;
    }
    out.line(1, "servers:");
    for (draft, egress) in servers {
        server(draft, egress, &mut out);
    }
    out.text
}

fn hub(hub: &HubDraft, out: &mut Yaml) {
    out.text(
        1,
        "policies",
        hub.policies.as_ref().map(|text| text.value.as_str()),
    );
    out.text(1, "tier", hub.tier.as_ref().map(|tier| tier.value.as_str()));
    out.number(1, "timeoutMs", hub.timeout.as_ref());
    let hosts: Vec<_> = hub
        .allowed_hosts
        .iter()
        .map(|rule| rule.value.to_string())
        .collect();
    out.list(1, "allowedHosts", hosts.iter().map(String::as_str));
    network(1, &hub.network, out);
    if let Some(agents) = hub.agents.as_ref().filter(|agents| !agents.value.is_empty()) {
        out.line(1, "agents:");
        for (agent, profile) in &agents.value {
            out.line(
                2,
                &format!("{}: {}", scalar(agent.as_str()), scalar(profile.as_str())),
            );
        }
    }
    let number =
        |name, value: &Option<Spanned<u64>>| value.as_ref().map(|it| format!("{name}: {}", it.value));
    let results = &hub.results;
    let oversize = results.oversize.as_ref();
    let durability = results.durability.as_ref();
    out.section(
        "results",
        [
            number("maxReplyBytes", &results.max_reply_bytes),
            oversize.map(|word| format!("oversize: {}", word.value.name())),
            number("dataUrlMinBytes", &results.data_url_min_bytes),
        ],
    );
    out.section(
        "blobs",
        [
            durability.map(|word| format!("durability: {}", word.value.name())),
            number("quotaBytes", &results.quota_bytes),
            number("maxBlobBytes", &results.max_blob_bytes),
            number("retentionSeconds", &results.retention_seconds),
            number("sessionSeconds", &results.session_seconds),
        ],
    );
}

fn server(draft: &Draft, egress: &[EgressRule], out: &mut Yaml) {
    out.line(2, &format!("- name: {}", scalar(&draft.name.value)));
    let value = |text: &'_ Option<Spanned<String>>| text.as_ref().map(|text| text.value.clone());
    out.text(3, "description", draft.description.as_deref());
    if draft.has_command {
        out.text(3, "command", value(&draft.command).as_deref());
        out.list(3, "args", draft.args.iter().map(|arg| arg.value.as_str()));
        out.pairs("env", &draft.env);
        out.text(3, "envFile", value(&draft.env_file).as_deref());
        out.list(
            3,
            "inheritEnv",
            draft.inherit_env.iter().map(|name| name.value.as_str()),
        );
        out.text(3, "cwd", value(&draft.cwd).as_deref());
    } else {
        out.text(3, "url", value(&draft.url).as_deref());
        out.pairs("headers", &draft.headers);
        let rules: Vec<_> = egress.iter().map(ToString::to_string).collect();
        out.list(3, "egress", rules.iter().map(String::as_str));
        network(3, &draft.network, out);
    }
    timeouts(&draft.timeouts, out);
    match draft.protocol {
        Protocol::Auto => {}
        Protocol::Modern => out.line(3, "protocol: \"2026-07-28\""),
        Protocol::Initialize => out.line(3, "protocol: initialize"),
    }
    if draft.isolation == Isolation::PerSession {
        out.line(3, "isolation: per_session");
    }
    let limits = [
        ("callsInFlight", &draft.limits.calls_in_flight),
        ("callsWaiting", &draft.limits.calls_waiting),
        ("tools", &draft.limits.tools),
        ("memoryBytes", &draft.limits.memory_bytes),
        ("openFiles", &draft.limits.open_files),
        ("processes", &draft.limits.processes),
        ("cpuSeconds", &draft.limits.cpu_seconds),
        ("fileBytes", &draft.limits.file_bytes),
    ];
    out.numbers("limits", &limits);
    if !draft.enabled {
        out.line(3, "enabled: false");
    }
    out.list(
        3,
        "disabledTools",
        draft.disabled_tools.iter().map(String::as_str),
    );
    let asks = draft.disabled_auto_approve_tools.iter().map(String::as_str);
    out.list(3, "disabledAutoApproveTools", asks);
}

fn network(depth: usize, network: &NetworkDraft, out: &mut Yaml) {
    match &network.proxy {
        None => {}
        Some(ProxyDraft::Direct) => out.line(depth, "proxy: none"),
        Some(ProxyDraft::Through(through)) if through.username.is_none() && through.password.is_none() => {
            out.text(depth, "proxy", Some(&through.url.value));
        }
        Some(ProxyDraft::Through(through)) => {
            out.line(depth, "proxy:");
            let value = |text: &'_ Option<Spanned<String>>| text.as_ref().map(|text| text.value.clone());
            out.text(depth + 1, "url", Some(&through.url.value));
            out.text(depth + 1, "username", value(&through.username).as_deref());
            out.text(depth + 1, "password", value(&through.password).as_deref());
        }
    }
    let paths = network.root_certificates.iter().map(|path| path.value.as_str());
    out.list(depth, "rootCertificates", paths);
}

fn timeouts(timeouts: &TimeoutsDraft, out: &mut Yaml) {
    out.number(3, "timeoutMs", timeouts.each.as_ref());
    let each = [
        ("connectMs", &timeouts.connect),
        ("listMs", &timeouts.list),
        ("callMs", &timeouts.call),
        ("callMaxMs", &timeouts.call_max),
    ];
    out.numbers("timeouts", &each);
    if timeouts.long_running {
        out.line(3, "longRunning: true");
    }
}

#[derive(Default)]
struct Yaml {
    text: String,
}

impl Yaml {
    fn line(&mut self, depth: usize, text: &str) {
        self.text.push_str(&"  ".repeat(depth));
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn text(&mut self, depth: usize, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.line(depth, &format!("{name}: {}", scalar(value)));
        }
    }

    fn number(&mut self, depth: usize, name: &str, value: Option<&Spanned<u64>>) {
        if let Some(value) = value {
            self.line(depth, &format!("{name}: {}", value.value));
        }
    }

    fn numbers(&mut self, name: &str, values: &[(&str, &Option<Spanned<u64>>)]) {
        let given: Vec<_> = values
            .iter()
            .filter_map(|(name, value)| Some(format!("{name}: {}", value.as_ref()?.value)))
            .collect();
        if !given.is_empty() {
            self.line(3, &format!("{name}: {{{}}}", given.join(", ")));
        }
    }

    /// What the document says for the hub under one name, where it says something.
    fn section(&mut self, name: &str, lines: impl IntoIterator<Item = Option<String>>) {
        let mut lines = lines.into_iter().flatten().peekable();
        if lines.peek().is_some() {
            self.line(1, &format!("{name}:"));
        }
        lines.for_each(|line| self.line(2, &line));
    }

    fn list<'a>(&mut self, depth: usize, name: &str, items: impl Iterator<Item = &'a str>) {
        let items: Vec<_> = items.map(scalar).collect();
        if !items.is_empty() {
            self.line(depth, &format!("{name}: [{}]", items.join(", ")));
        }
    }

    fn pairs(&mut self, name: &str, pairs: &[Pair]) {
        if pairs.is_empty() {
            return;
        }
        self.line(3, &format!("{name}:"));
        for pair in pairs {
            let (name, value) = (scalar(&pair.name.value), scalar(&pair.value.value));
            self.line(4, &format!("{name}: {value}"));
        }
    }
}

/// A text as YAML: bare where it is a plain word that means nothing else, in double quotes otherwise.
fn scalar(text: &str) -> String {
    const WORDS: [&str; 10] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan"];
    let bare = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-./".contains(&b))
        && !WORDS.contains(&text.to_ascii_lowercase().as_str());
    // A simple key of more than 1,024 characters is none; quoted or not, so is a long name.
    if bare {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if u32::from(c) > 0xffff => quoted.push(c),
            c if c.is_control() || crate::source::is_hidden(c) || !is_plain(c) => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// What YAML lets stand in a text, line breaks of all kinds excepted.
fn is_plain(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
}
