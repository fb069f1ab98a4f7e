use std::{fmt, sync::Arc};

use portcullis_types::{EgressRule, Hash};

/// Where an HTTP server may connect: what its document allows all its servers, and what its own entry adds.
///
/// The document's rules are held once, however many servers it has.
///
/// ```
/// use portcullis_config::Egress;
///
/// let egress = Egress::from(vec!["example.com".parse()?, "*.example.org".parse()?]);
/// let rules: Vec<_> = egress.iter().map(ToString::to_string).collect();
/// assert_eq!(rules, ["https://example.com:443/", "https://*.example.org:443/"]);
/// # Ok::<(), portcullis_types::ParseError>(())
/// ```
#[derive(Clone, Default)]
pub struct Egress {
    shared: Arc<Shared>,
    own: Vec<EgressRule>,
}

#[derive(Default)]
struct Shared {
    rules: Vec<EgressRule>,
    /// INVARIANT: over `rules`, so that a fingerprint need not read them for each server anew; `None` where there
    /// are none.
    digest: Option<Hash>,
}

impl Egress {
    /// The rules that all servers of a document share.
    pub(crate) fn shared(rules: Vec<EgressRule>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for rule in &rules {
            let rule = rule.to_string();
            hasher.update(format!("{}:{rule};", rule.len()).as_bytes());
        }
        let digest = (!rules.is_empty()).then(|| Hash::from_bytes(*hasher.finalize().as_bytes()));
        Self {
            shared: Arc::new(Shared { rules, digest }),
            own: Vec::new(),
        }
    }

    /// The same, with one server's own rules behind them.
    pub(crate) fn with(&self, own: Vec<EgressRule>) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            own,
        }
    }

    /// All rules, the document's first.
    pub fn iter(&self) -> impl Iterator<Item = &EgressRule> {
        self.shared.rules.iter().chain(&self.own)
    }

    /// Whether there is no rule, so that nothing may be reached.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.rules.is_empty() && self.own.is_empty()
    }

    /// All rules, copied out.
    #[must_use]
    pub fn to_vec(&self) -> Vec<EgressRule> {
        self.iter().cloned().collect()
    }

    /// What stands for the rules in a fingerprint.
    pub(crate) fn canonical(&self) -> impl Iterator<Item = String> {
        let digest = self.shared.digest.iter().map(ToString::to_string);
        digest.chain(self.own.iter().map(ToString::to_string))
    }
}

impl From<Vec<EgressRule>> for Egress {
    fn from(own: Vec<EgressRule>) -> Self {
        Self {
            own,
            ..Self::default()
        }
    }
}

impl PartialEq for Egress {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Egress {}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_documents_rules_stand_before_a_servers_own_and_are_held_once() {
        let rule = |text: &str| text.parse::<EgressRule>().unwrap();
        let document = Egress::shared(vec![rule("a.example"), rule("b.example")]);
        let (one, two) = (document.with(vec![rule("c.example")]), document.with(Vec::new()));
        assert!(Arc::ptr_eq(&one.shared, &two.shared));
        assert_eq!(
            one.to_vec(),
            [rule("a.example"), rule("b.example"), rule("c.example")]
        );
        assert_eq!(two, Egress::from(vec![rule("a.example"), rule("b.example")]));
        assert!(!two.is_empty() && Egress::shared(Vec::new()).is_empty());
        let canonical = |egress: &Egress| egress.canonical().collect::<Vec<_>>();
        let other = Egress::shared(vec![rule("a.example"), rule("c.example")]);
        assert_ne!(canonical(&document), canonical(&other));
        assert_ne!(canonical(&document), canonical(&one));
        assert!(canonical(&Egress::default()).is_empty());
    }
}
