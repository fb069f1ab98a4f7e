use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    path::Path,
};

use portcullis_types::Hash;

use super::{ServerSpec, TransportSpec};
use crate::Template;

impl ServerSpec {
    /// blake3 over the canonical form of all that matters to a running server. Two specs with one fingerprint
    /// need no restart. Where it was written and what is said for people do not count.
    #[must_use]
    pub fn fingerprint(&self) -> Hash {
        let mut canonical = Canonical::default();
        canonical.field("id", self.id.as_str());
        canonical.transport(&self.transport);
        canonical.field("timeouts", format!("{:?}", self.timeouts));
        canonical.field("protocol", format!("{:?}", self.protocol));
        canonical.field("enabled", self.enabled.to_string());
        for tool in &self.disabled_tools {
            canonical.field("disabled-tool", tool);
        }
        for tool in &self.disabled_auto_approve_tools {
            canonical.field("disabled-auto-approve", tool);
        }
        canonical.field("isolation", format!("{:?}", self.isolation));
        canonical.field("limits", format!("{:?}", self.limits));
        canonical.field("profile", format!("{:?}", self.profile));
        canonical.finish()
    }

    /// blake3 over what is started or reached alone: two specs of one launch fingerprint are the same server,
    /// whatever they are called.
    #[must_use]
    pub fn launch_fingerprint(&self) -> Hash {
        let mut canonical = Canonical::default();
        canonical.transport(&self.transport);
        canonical.finish()
    }
}

/// The canonical form, as it is hashed.
#[derive(Default)]
struct Canonical(blake3::Hasher);

impl Canonical {
    /// Lengths keep two fields from running into each other.
    fn field(&mut self, name: &str, value: impl AsRef<OsStr>) {
        let value = value.as_ref().as_encoded_bytes();
        let head = format!("{name}:{}:", value.len());
        for part in [head.as_bytes(), value, b";"] {
            self.0.update(part);
        }
    }

    /// A text that is taken word for word is another one than the reference that is written the same.
    fn template(&mut self, name: &str, value: &Template) {
        self.field(name, value.source());
        if !value.has_references() && value.source().contains("${") {
            self.field("word-for-word", name);
        }
    }

    fn transport(&mut self, transport: &TransportSpec) {
        match transport {
            TransportSpec::Stdio(stdio) => {
                self.field("program", &stdio.program);
                for arg in &stdio.args {
                    self.template("arg", arg);
                }
                for (name, value) in &stdio.env {
                    self.field("env-name", name);
                    self.template("env-value", value);
                }
                // What is set as well is not inherited.
                for name in stdio
                    .inherit_env
                    .iter()
                    .filter(|name| !stdio.env.contains_key(*name))
                {
                    self.field("inherit", name);
                }
                self.field("cwd", stdio.cwd.as_deref().unwrap_or(Path::new("")));
            }
            TransportSpec::Http(http) => {
                self.field("url", http.url.as_str());
                // RFC 9110, section 5.1: names of headers are the same in other letters.
                let headers = http.headers.iter();
                let headers: BTreeMap<_, _> = headers
                    .map(|(name, value)| (name.to_ascii_lowercase(), value))
                    .collect();
                for (name, value) in headers {
                    self.field("header-name", name);
                    self.template("header-value", value);
                }
                if let Some(digest) = http.egress.digest() {
                    self.field("egress", digest.to_string());
                }
                if let Some(proxy) = &http.proxy {
                    self.field("proxy", proxy.url.as_str());
                    for (name, login) in [("username", &proxy.username), ("password", &proxy.password)] {
                        match login {
                            Some(login) => self.template(name, login),
                            None => self.field(name, ""),
                        }
                    }
                }
                for path in http.root_certificates.iter().collect::<BTreeSet<_>>() {
                    self.field("root-certificate", path);
                }
            }
        }
    }

    fn finish(self) -> Hash {
        Hash::from_bytes(*self.0.finalize().as_bytes())
    }
}
