//! The arguments of a call, read once for all headers that they become.

use std::{borrow::Cow, fmt};

use http::{HeaderMap, HeaderValue};
use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::ParamHeaders;

/// The headers that `text`, the JSON text of a call's arguments, becomes.
pub(super) fn headers(wanted: &ParamHeaders, text: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    match walk(wanted, text, &mut headers) {
        Ok(()) => headers,
        // What cannot be read to its end says nothing for sure.
        Err(_) => HeaderMap::new(),
    }
}

/// Goes through the members of `text`, JSON text. Whatever is no object has none.
fn walk(wanted: &ParamHeaders, text: &str, headers: &mut HeaderMap) -> serde_json::Result<()> {
    if !text.trim_start().starts_with('{') {
        return Ok(());
    }
    serde_json::Deserializer::from_str(text).deserialize_map(Members { wanted, headers })
}

/// Of two members with one name the later one counts, also where it becomes no header.
fn clear(wanted: &ParamHeaders, headers: &mut HeaderMap) {
    if let Some(header) = &wanted.header {
        headers.remove(header);
    }
    for below in wanted.below.values() {
        clear(below, headers);
    }
}

/// A value some of whose members are wanted.
struct Members<'w, 'h> {
    wanted: &'w ParamHeaders,
    headers: &'h mut HeaderMap,
}

impl<'de> Visitor<'de> for Members<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("arguments")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(wanted) = map.next_key_seed(Key(self.wanted))? {
            let Some(wanted) = wanted else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            // As it stands there: what was decided on is what a header says, so nothing is rounded, no member is taken for
            // the text in it, and a number that fits nowhere costs no other header.
            let value = map.next_value::<&RawValue>()?.get();
            clear(wanted, self.headers);
            let Some(header) = &wanted.header else {
                walk(wanted, value, self.headers).map_err(A::Error::custom)?;
                continue;
            };
            if let Some(value) = header_value(value) {
                self.headers.insert(header, value);
            }
        }
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
