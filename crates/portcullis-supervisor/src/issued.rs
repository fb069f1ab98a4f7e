use rmcp::model::RequestId;

/// The ids that requests of one connection have had. The SDK counts its requests from 0 (`RequestIdProvider` in rmcp), one
/// counter for the handshake and all that comes after it, so the highest tells of all of them, however long ago. One whose
/// request was overtaken on its way here counts before it is sent: no server can answer it yet.
#[derive(Debug, Default)]
pub(crate) struct Issued {
    highest: Option<i64>,
}

impl Issued {
    pub(crate) fn note(&mut self, id: &RequestId) {
        if let RequestId::Number(number) = id {
            self.highest = self.highest.max(Some(*number));
        }
    }

    /// Whether a request has had `id`. A number's text is for the caller to read: servers answer with it.
    pub(crate) fn holds(&self, id: &RequestId) -> bool {
        match (id, self.highest) {
            (RequestId::Number(number), Some(highest)) => (0..=highest).contains(number),
            _ => false,
        }
    }
}
