use std::fmt;

/// Why a reply cannot be used, or a request not be read. The text says what the peer sent; the code is stable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unusable {
    /// The line is not UTF-8.
    BadUtf8 {
        /// The first byte that is wrong, counted from 0 at the start of the message.
        at: usize,
    },
    /// The line is not JSON.
    NotJson {
        /// The first byte that is wrong, counted from 0 at the start of the line.
        at: usize,
        /// What the parser missed there.
        why: String,
        /// The text from there on, cut.
        near: String,
    },
    /// The line ends inside the message: a raw newline stands in it, or the rest never came.
    BrokenOff,
    /// Nested deeper than the limit, the envelope counted.
    TooDeep {
        /// The limit, in levels.
        limit: usize,
    },
    /// There is a result and no `id`.
    NoId,
    /// There is a result and the `id` is null.
    NullId,
    /// The `id` is neither a string nor a whole number of 64 bits.
    BadId {
        /// The raw JSON text of the id, cut.
        id: String,
    },
    /// A member stands twice, with two values.
    Duplicate {
        /// Its name.
        member: &'static str,
    },
    /// Both `result` and `error` are there.
    ResultAndError,
    /// Neither `result` nor `error` nor `method` is there.
    NoResultNorError,
    /// A `method` stands beside `result` or `error`.
    MethodInReply,
    /// The `method` of a request is not a string.
    BadMethod {
        /// Its raw JSON text, cut.
        method: String,
    },
    /// The `error` is not an object.
    BadError {
        /// Its raw JSON text, cut.
        error: String,
    },
    /// The `code` of the `error` is missing or not a whole number.
    BadErrorCode {
        /// Its raw JSON text, cut; none where it is missing.
        code: Option<String>,
        /// The error's message, cut; empty where there is none.
        message: String,
    },
    /// More messages on one line than are taken apart; the rest of the line is lost.
    TooManyMessages {
        /// The limit.
        limit: usize,
    },
}

impl Unusable {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::BadUtf8 { .. } => "bad_utf8",
            Self::NotJson { .. } => "not_json",
            Self::BrokenOff => "broken_off",
            Self::TooDeep { .. } => "too_deep",
            Self::NoId => "no_id",
            Self::NullId => "null_id",
            Self::BadId { .. } => "bad_id",
            Self::Duplicate { .. } => "duplicate_member",
            Self::ResultAndError => "result_and_error",
            Self::NoResultNorError => "no_result_nor_error",
            Self::MethodInReply => "method_in_reply",
            Self::BadMethod { .. } => "bad_method",
            Self::BadError { .. } => "bad_error",
            Self::BadErrorCode { .. } => "bad_error_code",
            Self::TooManyMessages { .. } => "too_many_messages",
        }
    }
}

impl Unusable {
    /// Whether the text itself is wrong, and not only what it says (JSON-RPC 2.0, section 5.1: a parse error).
    #[must_use]
    pub fn is_parse_error(&self) -> bool {
        matches!(
            self,
            Self::BadUtf8 { .. } | Self::NotJson { .. } | Self::BrokenOff
        )
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadUtf8 { at } => write!(f, "the message is not UTF-8: byte {at} is wrong"),
            Self::NotJson { at, why, near } => {
                write!(f, "the message is not JSON: {why} at byte {at}, near `{near}`")
            }
            Self::BrokenOff => f.write_str(
                "the reply is broken off at the end of its line: a raw newline stands in it, or the rest never came",
            ),
            Self::TooDeep { limit } => write!(f, "the message is nested deeper than {limit} levels"),
            Self::NoId => f.write_str("the reply has no `id`"),
            Self::NullId => f.write_str("the `id` of the reply is null"),
            Self::BadId { id } => {
                write!(f, "the `id` of the reply is `{id}`, neither a string nor a whole number of 64 bits")
            }
            Self::Duplicate { member } => write!(f, "`{member}` stands twice in the message, with two values"),
            Self::ResultAndError => f.write_str("the reply has both `result` and `error`"),
            Self::NoResultNorError => f.write_str("the reply has neither `result` nor `error`"),
            Self::MethodInReply => f.write_str("the reply has a `method`, as only a request may"),
            Self::BadMethod { method } => write!(f, "the `method` of the request is `{method}`, not a string"),
            Self::BadError { error } => write!(f, "the `error` of the reply is `{error}`, not an object"),
            Self::BadErrorCode { code, message } => {
                match code {
                    Some(code) => write!(f, "the error `code` of the reply is `{code}`, not a whole number")?,
                    None => f.write_str("the `error` of the reply has no `code`")?,
                }
                if message.is_empty() { Ok(()) } else { write!(f, "; its message is `{message}`") }
            }
            Self::TooManyMessages { limit } => {
                write!(f, "the line holds more than {limit} messages; the rest of it was dropped")
            }
        }
    }
}
