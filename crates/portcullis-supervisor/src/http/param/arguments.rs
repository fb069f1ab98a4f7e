//! The arguments of a call, read once for all headers that they become.

use std::{borrow::Cow, fmt};

use http::{HeaderMap, HeaderValue};
use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::ParamHeaders;

/// The headers that `text`, the JSON text of a call's arguments, becomes.
pub(super) fn headers(wanted: &ParamHeaders, text: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let walk = Members {
        wanted,
        headers: &mut headers,
    };
    match walk.deserialize(&mut serde_json::Deserializer::from_str(text)) {
        Ok(()) => headers,
        // What cannot be read to its end says nothing for sure.
        Err(_) => HeaderMap::new(),
    }
}

/// A value some of whose members are wanted.
struct Members<'w, 'h> {
    wanted: &'w ParamHeaders,
    headers: &'h mut HeaderMap,
}

impl<'de> DeserializeSeed<'de> for Members<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Members<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("arguments")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(wanted) = map.next_key_seed(Key(self.wanted))? {
            match wanted {
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
                Some(ParamHeaders {
                    header: Some(header), ..
                }) => {
                    // As it stands there: what was decided on is what a header says, so nothing is rounded, and no
                    // member is taken for the text in it.
                    let value = map.next_value::<&RawValue>()?;
                    if let Some(value) = header_value(value.get()) {
                        self.headers.insert(header, value);
                    }
                }
                Some(wanted) => map.next_value_seed(Members {
                    wanted,
                    headers: self.headers,
                })?,
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    // Whatever else stands there has no members.

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

/// The name of a member: what of it is wanted.
struct Key<'w>(&'w ParamHeaders);

impl<'de, 'w> DeserializeSeed<'de> for Key<'w> {
    type Value = Option<&'w ParamHeaders>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de, 'w> Visitor<'de> for Key<'w> {
    type Value = Option<&'w ParamHeaders>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.below.get(name))
    }
}

/// A primitive value, JSON text, as a header: as it is, or in base64 where a header could not carry it unchanged.
fn header_value(raw: &str) -> Option<HeaderValue> {
    let text: Cow<'_, str> = match raw.as_bytes().first()? {
        b'"' => serde_json::from_str::<String>(raw).ok()?.into(),
        b'{' | b'[' | b'n' => return None,
        _ => raw.into(),
    };
    let printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let padded = text.starts_with(' ') || text.ends_with(' ');
    // What looks as if it were in base64 would be decoded at the other end.
    let marked = text.starts_with("=?base64?") && text.ends_with("?=");
    let plain = printable && !(padded || marked);
    let text = if plain {
        text
    } else {
        format!(
            "=?base64?{}?=",
            base64_simd::STANDARD.encode_to_string(text.as_bytes())
        )
        .into()
    };
    HeaderValue::from_str(&text).ok()
}
