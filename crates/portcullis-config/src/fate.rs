use serde::Serialize;

/// What became of one field of a document, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldReport {
    /// The server that it belongs to, by the name that the document has for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The line on which that server's entry starts, counted from 1; 0 outside of servers.
    pub server_line: usize,
    /// Its name, with dots before what stands deeper: `env.LOG_LEVEL`. It never holds a value.
    pub field: String,
    /// The document's name.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// What became of it.
    #[serde(flatten)]
    pub fate: Fate,
}

/// What became of a field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "fate", rename_all = "lowercase")]
pub enum Fate {
    /// It says the same in Portcullis' own format.
    Carried {
        /// The field of the own format.
        to: String,
    },
    /// It says the same in another form.
    Converted {
        /// The field of the own format.
        to: String,
        /// What was done to it.
        how: String,
    },
    /// It is not in the servers.
    Dropped {
        /// The reason.
        why: String,
    },
}

impl Fate {
    pub(crate) fn carried(to: impl Into<String>) -> Self {
        Self::Carried { to: to.into() }
    }

    pub(crate) fn dropped(why: impl Into<String>) -> Self {
        Self::Dropped { why: why.into() }
    }
}
