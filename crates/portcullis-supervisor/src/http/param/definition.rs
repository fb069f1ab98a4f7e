//! What the definition of a tool says of headers, read as it stands: no tree is made of what a server wrote.

use std::{collections::HashSet, fmt};

use http::HeaderName;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::ParamHeaders;
use crate::said::excerpt;

pub(super) const ANNOTATION: &str = "x-mcp-header";
const PREFIX: &str = "mcp-param-";

/// How many headers the arguments of one tool may become: each is looked for in each call.
pub(super) const MOST: usize = 64;

/// What the definition of a tool, JSON text, says of headers.
///
/// # Errors
/// What breaks the rules: a name that is no token or stands twice, a property that is not primitive, an annotation
/// anywhere but on a property that is reached through `properties` alone, more of them than a tool may have.
pub(crate) fn param_headers(definition: &str) -> Result<ParamHeaders, String> {
    #[derive(Deserialize)]
    struct Shape<'a> {
        #[serde(borrow, default, rename = "inputSchema")]
        input_schema: Option<&'a RawValue>,
    }
    // Nearly every tool has none, and needs no second parsing.
    if !definition.contains(ANNOTATION) {
        return Ok(ParamHeaders::default());
    }
    let shape: Shape<'_> = serde_json::from_str(definition).map_err(|error| error.to_string())?;
    let Some(schema) = shape.input_schema else {
        return Ok(ParamHeaders::default());
    };
    let mut found = Found::default();
    let walk = Walk {
        place: Place::Schema,
        reached: true,
        found: &mut found,
    };
    let walked = walk.deserialize(&mut serde_json::Deserializer::from_str(schema.get()));
    walked.map_err(|error| found.wrong.unwrap_or_else(|| error.to_string()))
}

/// What one walk found up to now.
#[derive(Default)]
struct Found {
    /// The names from the arguments' root to the property at hand.
    path: Vec<String>,
    names: HashSet<HeaderName>,
    /// The rule that is broken: the walk ends there.
    wrong: Option<String>,
}

/// What stands where the walk is.
#[derive(Clone, Copy)]
enum Place {
    /// A schema, or a list of schemas.
    Schema,
    /// A map from names to schemas.
    Named,
}

struct Walk<'f> {
    place: Place,
    /// Whether only `properties` led here.
    reached: bool,
    found: &'f mut Found,
}

impl Walk<'_> {
    fn at(&mut self, place: Place, reached: bool) -> Walk<'_> {
        Walk {
            place,
            reached,
            found: self.found,
        }
    }

    fn schema<'de, A: MapAccess<'de>>(mut self, mut map: A) -> Result<ParamHeaders, A::Error> {
        let (mut here, mut annotation, mut kind) = (ParamHeaders::default(), None, None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                ANNOTATION => annotation = Some(map.next_value::<&RawValue>()?),
                "type" => kind = Some(map.next_value::<&RawValue>()?),
                "properties" => here = map.next_value_seed(self.at(Place::Named, self.reached))?,
                "$defs" | "definitions" | "dependencies" | "dependentSchemas" | "patternProperties" => {
                    map.next_value_seed(self.at(Place::Named, false))?;
                }
                // Data and names, not schemas.
                "default" | "const" | "enum" | "examples" | "dependentRequired" => {
                    map.next_value::<IgnoredAny>()?;
                }
                _ => {
                    map.next_value_seed(self.at(Place::Schema, false))?;
                }
            }
        }
        if let Some(annotation) = annotation {
            let header = self
                .header(annotation, kind, &here)
                .map_err(|wrong| self.refuse(wrong))?;
            here.header = Some(header);
        }
        Ok(here)
    }

    fn named<'de, A: MapAccess<'de>>(mut self, mut map: A) -> Result<ParamHeaders, A::Error> {
        let mut here = ParamHeaders::default();
        while let Some(name) = map.next_key::<String>()? {
            self.found.path.push(name);
            let below = map.next_value_seed(self.at(Place::Schema, self.reached))?;
            let name = self.found.path.pop().unwrap_or_default();
            if !below.is_empty() {
                here.below.insert(name, below);
            }
        }
        Ok(here)
    }

    /// The header that the property at hand becomes.
    fn header(
        &mut self,
        annotation: &RawValue,
        kind: Option<&RawValue>,
        here: &ParamHeaders,
    ) -> Result<HeaderName, String> {
        if !self.reached || self.found.path.is_empty() {
            return Err(format!("`{ANNOTATION}` stands where no property of the input is"));
        }
        if self.found.names.len() >= MOST {
            return Err(format!(
                "`{ANNOTATION}` stands at more of its properties than the {MOST} that may have it"
            ));
        }
        let text = |raw: &RawValue| serde_json::from_str::<String>(raw.get()).ok();
        let primitive = matches!(
            kind.and_then(text).as_deref(),
            Some("string" | "integer" | "boolean")
        );
        if !primitive || !here.below.is_empty() {
            return Err(format!(
                "its property `{}` has an `{ANNOTATION}` and is no string, integer or boolean",
                self.property()
            ));
        }
        let name = text(annotation)
            .filter(|name| !name.is_empty())
            .and_then(|name| HeaderName::from_bytes(format!("{PREFIX}{name}").as_bytes()).ok())
            .ok_or_else(|| {
                format!(
                    "the `{ANNOTATION}` of its property `{}` is no name of a header",
                    self.property()
                )
            })?;
        if !self.found.names.insert(name.clone()) {
            return Err(format!(
                "two of its properties have one `{ANNOTATION}`, `{}`",
                excerpt(name.as_str())
            ));
        }
        Ok(name)
    }

    /// The property at hand, for people.
    fn property(&self) -> String {
        excerpt(&self.found.path.join("."))
    }

    fn refuse<E: Error>(&mut self, wrong: String) -> E {
        self.found.wrong = Some(wrong);
        E::custom("a rule of headers is broken")
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ParamHeaders;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ParamHeaders, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ParamHeaders;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a schema")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ParamHeaders, A::Error> {
        match self.place {
            Place::Schema => self.schema(map),
            Place::Named => self.named(map),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<ParamHeaders, A::Error> {
        match self.place {
            Place::Schema => while seq.next_element_seed(self.at(Place::Schema, false))?.is_some() {},
            Place::Named => while seq.next_element::<IgnoredAny>()?.is_some() {},
        }
        Ok(ParamHeaders::default())
    }

    // Whatever else stands there holds no schema.

    fn visit_unit<E: Error>(self) -> Result<ParamHeaders, E> {
        Ok(ParamHeaders::default())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<ParamHeaders, E> {
        Ok(ParamHeaders::default())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<ParamHeaders, E> {
        Ok(ParamHeaders::default())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<ParamHeaders, E> {
        Ok(ParamHeaders::default())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<ParamHeaders, E> {
        Ok(ParamHeaders::default())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<ParamHeaders, E> {
        Ok(ParamHeaders::default())
    }
}
