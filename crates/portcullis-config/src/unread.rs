/// What holds for the servers of all documents, and may have stood in one that cannot be read as it was meant.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Unread {
    /// Limits for the whole hub.
    pub(crate) limits: bool,
    /// Anything of what decides on calls in the whole hub: policies, tier or agents.
    pub(crate) deciding: bool,
    /// Agents' profiles.
    pub(crate) agents: bool,
    /// The tier.
    pub(crate) tier: bool,
}

impl Unread {
    /// Of a document that may be one of Portcullis' own, and of which nothing is known.
    pub(crate) const ALL: Self = Self {
        limits: true,
        deciding: true,
        agents: true,
        tier: true,
    };
}
