//! What must hold of the parsers of single values on any bytes: texts with references, files of variables, names of
//! servers, and egress rules.

use std::path::Path;

use portcullis_config::{
    Document, Environment, NoEnvironment, Options, SecretString, Sources, Template, TransportSpec, normalize,
};
use portcullis_types::{EgressRule, ServerId};

/// Checks all laws on `data`.
pub(crate) fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    check_template(&text);
    check_env_file(&text);
    check_name(&text);
    check_rule(&text);
}

/// Whatever is asked for is there, and is this.
struct Given<'a>(&'a str);

impl Sources for Given<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        (name != "NO").then(|| self.0.to_owned())
    }

    fn file(&self, path: &str) -> Option<String> {
        (path != "/no").then(|| self.0.to_owned())
    }

    fn keyring(&self, service: &str, _account: &str) -> Option<SecretString> {
        (service != "no").then(|| SecretString::from(self.0))
    }
}

impl Environment for Given<'_> {
    fn is_executable(&self, _path: &Path) -> bool {
        true
    }
}

fn check_template(text: &str) {
    let template = Template::parse(text);
    assert_eq!(template.source(), text, "the text is not kept");
    for sources in [&Given("v") as &dyn Sources, &Given(text), &NoEnvironment] {
        let unresolved = template.unresolved(sources);
        assert_eq!(
            template.resolve(sources).is_ok(),
            unresolved.is_empty(),
            "{unresolved:?}"
        );
    }
    if !template.has_references() {
        use secrecy::ExposeSecret;
        let value = template.resolve(&NoEnvironment);
        assert!(
            value.is_ok_and(|value| value.expose_secret() == text),
            "a plain text changed"
        );
    }
    let named = template.variables().count() + template.files().count() + template.keyring_entries().count();
    assert!(
        named == 0 || template.has_references(),
        "references of a text that has none"
    );
    assert!(!format!("{template:?}").contains("$"), "the text is shown");
}

/// A document names a file that holds the text: each variable that comes of it can be resolved from that file.
fn check_env_file(text: &str) {
    let document = Document::new(
        "a.json",
        r#"{"mcpServers":{"a":{"command":"/x","envFile":"/f"}}}"#,
    );
    let given = Given(text);
    let normalized = normalize(&[document], &Options::default(), &given);
    for spec in &normalized.specs {
        let TransportSpec::Stdio(stdio) = &spec.transport else {
            continue;
        };
        for (name, value) in &stdio.env {
            assert!(
                name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !name.is_empty(),
                "no name of a variable: {name:?}"
            );
            assert!(
                value.resolve(&given).is_ok(),
                "{name} is set by the file, and is not found there"
            );
        }
    }
    assert!(
        !normalized.specs.is_empty() || normalized.has_errors(),
        "no server, and not a word about it"
    );
}

fn check_name(text: &str) {
    let id = ServerId::from_display_name(text);
    assert_eq!(id.as_str().parse(), Ok(id.clone()), "an id that is none");
    assert_eq!(
        ServerId::from_display_name(id.as_str()),
        id,
        "an id is not its own"
    );
}

/// A rule prints as what reads back as the same rule.
fn check_rule(text: &str) {
    let Ok(rule) = text.parse::<EgressRule>() else {
        return;
    };
    assert_eq!(
        rule.to_string().parse(),
        Ok(rule.clone()),
        "{rule} reads back as another"
    );
}
