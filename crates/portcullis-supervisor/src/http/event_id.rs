use rmcp::model::RequestId;

/// The id of an event with the request whose stream brought it, as the SDK has it. The SDK hands it back to go on after
/// that event, and says not of which stream it was: a server is to use each id once in a session (MCP 2025-11-25,
/// transports, resumability), and some count anew on each stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EventId {
    /// The request that the stream answers; none where it answers none.
    pub(super) asked: Option<RequestId>,
    /// The id that the server gave.
    pub(super) id: String,
}

impl EventId {
    /// The text that stands for it in the SDK.
    pub(super) fn to_sdk(&self) -> String {
        serde_json::json!([self.asked, self.id]).to_string()
    }

    /// What such a text stands for. One that is none of these is a server's own.
    pub(super) fn from_sdk(text: String) -> Self {
        match serde_json::from_str(&text) {
            Ok((asked, id)) => Self { asked, id },
            Err(_) => Self {
                asked: None,
                id: text,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_sdk_hands_back_is_what_it_was_given() {
        for asked in [
            None,
            Some(RequestId::Number(-7)),
            Some(RequestId::String("7".into())),
        ] {
            for id in ["", "7", "[7,\"a\"]", "a\"b,] ä"] {
                let event = EventId {
                    asked: asked.clone(),
                    id: id.to_owned(),
                };
                assert_eq!(EventId::from_sdk(event.to_sdk()), event);
            }
        }
        let plain = EventId {
            asked: None,
            id: "[7".to_owned(),
        };
        assert_eq!(EventId::from_sdk("[7".to_owned()), plain);
    }
}
