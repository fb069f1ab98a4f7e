use serde::{Deserialize, Serialize};

/// A reply that is not as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BadReply {
    /// The number `NaN` in the result.
    NotANumber,
    /// The number `1e999` in the result.
    HugeNumber,
    /// The lone surrogate `\ud800` in a text.
    LoneSurrogate,
    /// Arrays nested so deep.
    Nesting(u64),
    /// A byte in a text that is not UTF-8.
    BadUtf8,
    /// The reply as the only element of a batch.
    Batch,
    /// No `jsonrpc` member.
    NoJsonrpc,
    /// An error whose code is a string.
    StringErrorCode,
    /// Both `result` and `error`.
    ResultAndError,
    /// Neither `result` nor `error`.
    NeitherResultNorError,
    /// A number as id comes back as a string, a string as an array.
    WrongIdType,
    /// An id that was never used.
    UnknownId,
    /// The id `null`.
    NullId,
    /// No id.
    NoId,
    /// A result that is no object.
    ResultNoObject,
    /// Text that is no JSON.
    NotJson,
    /// Half the reply and then a newline.
    Truncated,
    /// Two replies to the same call.
    Twice,
    /// A raw newline inside a text, which makes two lines.
    EmbeddedNewline,
    /// Two messages on one line.
    TwoOnALine,
    /// A line of that many bytes that has no end; after it nothing is sent any more.
    EndlessLine(u64),
    /// A good reply with a byte order mark in front and a carriage return at its end.
    BomAndCrLf,
}

impl BadReply {
    /// One of each kind after which a server still serves: all but [`Self::EndlessLine`], which is the last thing
    /// that it sends. A client's test goes through them all, so that a new kind is tried wherever the old ones are.
    ///
    /// ```
    /// use portcullis_testkit::{BadReply, Behaviour, Script, Tool};
    ///
    /// let script = BadReply::KINDS.iter().fold(Script::new("bad"), |script, kind| {
    ///     script.tool(Tool::new(&kind.name(), Behaviour::BadReply(*kind)))
    /// });
    /// assert_eq!(script.tools.len(), BadReply::KINDS.len());
    /// assert_eq!(BadReply::NotANumber.name(), "not_a_number");
    /// ```
    pub const KINDS: &[Self] = &[
        Self::NotANumber,
        Self::HugeNumber,
        Self::LoneSurrogate,
        Self::Nesting(200),
        Self::Nesting(100_000),
        Self::BadUtf8,
        Self::Batch,
        Self::NoJsonrpc,
        Self::StringErrorCode,
        Self::ResultAndError,
        Self::NeitherResultNorError,
        Self::WrongIdType,
        Self::UnknownId,
        Self::NullId,
        Self::NoId,
        Self::ResultNoObject,
        Self::NotJson,
        Self::Truncated,
        Self::Twice,
        Self::EmbeddedNewline,
        Self::TwoOnALine,
        Self::BomAndCrLf,
    ];

    /// What a script calls it, with its number behind a dash: `bad_utf8`, `nesting-200`.
    #[must_use]
    pub fn name(self) -> String {
        let name = |value: &serde_json::Value| match value {
            serde_json::Value::String(name) => name.clone(),
            serde_json::Value::Object(fields) => {
                let mut parts = fields.iter().map(|(name, number)| format!("{name}-{number}"));
                parts.next().unwrap_or_default()
            }
            _ => String::new(),
        };
        // A kind holds names and numbers only, which always serialise.
        serde_json::to_value(self).map_or_else(|_| String::new(), |value| name(&value))
    }

    /// Whether the line says whose reply it is, in some way: then a client can end that call even while others wait.
    #[must_use]
    pub fn names_its_call(self) -> bool {
        !matches!(self, Self::UnknownId | Self::NullId | Self::NoId | Self::NotJson)
    }
}
