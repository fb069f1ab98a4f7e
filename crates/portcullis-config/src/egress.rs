use std::{
    fmt,
    sync::{Arc, OnceLock},
};

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
    /// See [`digest`](Self::digest). Made when it is asked for, and once.
    digest: OnceLock<Option<Hash>>,
}

#[derive(Default)]
struct Shared {
    rules: Vec<EgressRule>,
    /// INVARIANT: of each rule, in order and once, so that a server's digest need not read their texts anew.
    hashes: Vec<Hash>,
}

impl Egress {
    /// The rules that all servers of a document share.
    pub(crate) fn shared(rules: Vec<EgressRule>) -> Self {
        let hashes = hashes(&rules);
        Self {
            shared: Arc::new(Shared { rules, hashes }),
            own: Vec::new(),
            digest: OnceLock::new(),
        }
    }

    /// The same, with one server's own rules behind them.
    pub(crate) fn with(&self, own: Vec<EgressRule>) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            own,
            digest: OnceLock::new(),
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

    /// What stands for the rules in a fingerprint: a hash of what they allow together, whoever of the two has them, in
    /// whatever order and how often. `None` where there are none.
    pub(crate) fn digest(&self) -> Option<Hash> {
        *self.digest.get_or_init(|| {
            let shared = &self.shared.hashes;
            let own = hashes(&self.own).into_iter();
            let mut all = shared.clone();
            all.extend(own.filter(|hash| shared.binary_search(hash).is_err()));
            // Two runs that are in order each: this sort makes one of them in one pass.
            all.sort();
            let bytes: Vec<u8> = all.iter().flat_map(Hash::as_bytes).copied().collect();
            (!all.is_empty()).then(|| Hash::of(&bytes))
        })
    }
}

/// Of each rule once, in order.
fn hashes(rules: &[EgressRule]) -> Vec<Hash> {
    let mut hashes: Vec<_> = rules
        .iter()
        .map(|rule| Hash::of(rule.to_string().as_bytes()))
        .collect();
    hashes.sort_unstable();
    hashes.dedup();
    hashes
}

impl From<Vec<EgressRule>> for Egress {
    fn from(own: Vec<EgressRule>) -> Self {
        Self::default().with(own)
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
    }

    #[test]
    fn the_digest_is_of_what_is_allowed_and_not_of_where_it_is_said() {
        let rules =
            |names: &[&str]| -> Vec<EgressRule> { names.iter().map(|name| name.parse().unwrap()).collect() };
        let of = |shared: &[&str], own: &[&str]| Egress::shared(rules(shared)).with(rules(own)).digest();
        let both = of(&["a.example", "b.example"], &[]);
        for (shared, own) in [
            (&["b.example", "a.example", "a.example"][..], &[][..]),
            (&["a.example"], &["b.example"]),
            (&["b.example"], &["a.example", "b.example", "a.example"]),
            (&["a.example", "b.example"], &["https://A.example:443/"]),
            (&[], &["b.example", "a.example"]),
        ] {
            assert_eq!(of(shared, own), both, "{shared:?} {own:?}");
        }
        assert_eq!(Egress::shared(rules(&["b.example", "a.example"])).digest(), both);
        assert_eq!(Egress::from(rules(&["a.example", "b.example"])).digest(), both);
        for (shared, own) in [
            (&["a.example"][..], &[][..]),
            (&["a.example"], &["c.example"]),
            (&["a.example", "b.example"], &["c.example"]),
            (&["a.example"], &["http://b.example"]),
            (&["a.example"], &["GET b.example"]),
        ] {
            assert_ne!(of(shared, own), both, "{shared:?} {own:?}");
        }
        assert_eq!(of(&[], &[]), None);
    }
}
