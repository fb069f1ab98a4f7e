use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::MAX_MESSAGES_PER_LINE;

/// The members of a JSON object that JSON-RPC knows, each as raw text.
#[derive(Debug, Default)]
pub(super) struct Envelope<'a> {
    pub(super) jsonrpc: Option<&'a RawValue>,
    pub(super) id: Option<&'a RawValue>,
    pub(super) method: Option<&'a RawValue>,
    pub(super) params: Option<&'a RawValue>,
    pub(super) result: Option<&'a RawValue>,
    pub(super) error: Option<&'a RawValue>,
    /// Whether there are members that JSON-RPC does not know.
    pub(super) others: bool,
    /// A member that stands twice with two values; `id` where that is one of several.
    pub(super) duplicate: Option<&'static str>,
}

/// The members of a JSON array, no more than are taken apart.
#[derive(Debug, Default)]
pub(super) struct Batch<'a> {
    pub(super) members: Vec<&'a RawValue>,
    pub(super) more: bool,
}

/// A member's name.
#[derive(Debug, Clone, Copy)]
pub(super) enum Member {
    Jsonrpc,
    Id,
    Method,
    Params,
    Result,
    Error,
    Other,
}

impl Member {
    pub(super) fn named(name: &[u8]) -> Self {
        match name {
            b"jsonrpc" => Self::Jsonrpc,
            b"id" => Self::Id,
            b"method" => Self::Method,
            b"params" => Self::Params,
            b"result" => Self::Result,
            b"error" => Self::Error,
            _ => Self::Other,
        }
    }

    /// The member whose name is written as `raw`. Names are taken as raw text, which the parser has checked, since a
    /// lone surrogate in some other name must not cost the message.
    fn written(raw: &RawValue) -> Self {
        match raw
            .get()
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'))
        {
            Some(plain) if !plain.contains('\\') => Self::named(plain.as_bytes()),
            _ => serde_json::from_str(raw.get())
                .map_or(Self::Other, |name: String| Self::named(name.as_bytes())),
        }
    }
}

impl<'de> Deserialize<'de> for Envelope<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Envelope<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Envelope<'de>, A::Error> {
                let mut envelope = Envelope::default();
                while let Some(name) = map.next_key()? {
                    envelope.set(Member::written(name), map.next_value()?);
                }
                Ok(envelope)
            }
        }

        deserializer.deserialize_map(Members)
    }
}

impl<'a> Envelope<'a> {
    fn set(&mut self, member: Member, value: &'a RawValue) {
        let (slot, name) = match member {
            Member::Jsonrpc => (&mut self.jsonrpc, "jsonrpc"),
            Member::Id => (&mut self.id, "id"),
            Member::Method => (&mut self.method, "method"),
            Member::Params => (&mut self.params, "params"),
            Member::Result => (&mut self.result, "result"),
            Member::Error => (&mut self.error, "error"),
            Member::Other => {
                self.others = true;
                return;
            }
        };
        match slot {
            Some(first) if first.get() != value.get() => {
                // Which request it belongs to is in doubt then, and what else is wrong does not matter.
                if self.duplicate != Some("id") {
                    self.duplicate = Some(name);
                }
            }
            _ => *slot = Some(value),
        }
    }
}

impl<'de> Deserialize<'de> for Batch<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Batch<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Batch<'de>, A::Error> {
                let mut batch = Batch::default();
                while batch.members.len() < MAX_MESSAGES_PER_LINE {
                    let Some(member) = seq.next_element()? else {
                        return Ok(batch);
                    };
                    batch.members.push(member);
                }
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    batch.more = true;
                }
                Ok(batch)
            }
        }

        deserializer.deserialize_seq(Members)
    }
}
