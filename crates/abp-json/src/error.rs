//! What can go wrong: reading a document ([`JsonError`]) and writing it canonically
//! ([`CanonicalError`]).

use std::borrow::Cow;

/// How many characters of foreign text a message shows.
const SHOWN: usize = 96;

/// The reason a document could not be read, with the byte it concerns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// The text breaks the grammar of RFC 8259.
    #[error("{what} at byte {offset}")]
    Syntax {
        /// Where the text stops being JSON.
        offset: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// The text ends before the document does.
    #[error("unexpected end of the document at byte {offset}")]
    UnexpectedEnd {
        /// The length of the text.
        offset: usize,
    },
    /// The bytes are not UTF-8.
    #[error("invalid UTF-8 at byte {offset}")]
    InvalidUtf8 {
        /// The first byte that does not belong to a character.
        offset: usize,
    },
    /// Containers are nested deeper than the limit.
    #[error("nested deeper than {limit} levels at byte {offset}")]
    TooDeep {
        /// The container that is one too deep.
        offset: usize,
        /// The limit in force.
        limit: usize,
    },
    /// The document has more bytes than the limit.
    #[error("document of {size} bytes exceeds the limit of {limit}")]
    TooLarge {
        /// The size of the document.
        size: usize,
        /// The limit in force.
        limit: usize,
    },
    /// The document has more keys and values than the limit.
    #[error("more than {limit} keys and values at byte {offset}")]
    TooManyNodes {
        /// The key or value that is one too many.
        offset: usize,
        /// The limit in force.
        limit: usize,
    },
    /// A string holds half of a surrogate pair, so it is not Unicode text.
    #[error("string with a lone surrogate at byte {offset}")]
    LoneSurrogate {
        /// The opening quote of the string.
        offset: usize,
    },
    /// A number is too large for a double.
    #[error("number out of range at byte {offset}")]
    NumberOutOfRange {
        /// The first byte of the number.
        offset: usize,
    },
}

/// The reason a document has no canonical form, with the JSON pointer of the culprit.
///
/// Pointers are whole; messages show the beginning of a long one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CanonicalError {
    /// An integer lies outside ±(2^53−1), where doubles can no longer tell neighbours apart.
    #[error("integer {text} at `{}` is outside ±(2^53−1)", shorten(pointer))]
    UnsafeInteger {
        /// The place of the number.
        pointer: String,
        /// Its spelling, shortened.
        text: String,
    },
    /// A number has no finite double.
    #[error("number {text} at `{}` is not finite", shorten(pointer))]
    NotFinite {
        /// The place of the number.
        pointer: String,
        /// Its spelling, shortened.
        text: String,
    },
    /// A number beyond ±(2^53−1) is not the decimal its double stands for.
    #[error("number {text} at `{}` cannot be carried exactly", shorten(pointer))]
    Imprecise {
        /// The place of the number.
        pointer: String,
        /// Its spelling, shortened.
        text: String,
    },
    /// An object has a key twice.
    #[error("duplicate key at `{}`", shorten(pointer))]
    DuplicateKey {
        /// The place of the member, its key included.
        pointer: String,
    },
    /// A string or a key holds half of a surrogate pair.
    #[error("lone surrogate at `{}`", shorten(pointer))]
    LoneSurrogate {
        /// The place of the string, or of the member whose key it is.
        pointer: String,
    },
    /// A document whose root member is to be replaced is not an object.
    #[error("the root of the document is not an object")]
    RootNotObject,
    /// The text is not a document.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// A value could not be serialised.
    #[error("cannot serialise the value")]
    Serialize(#[source] serde_json::Error),
}

impl JsonError {
    /// Returns the byte the error concerns; for [`JsonError::TooLarge`], the first beyond the limit.
    pub fn offset(&self) -> usize {
        match *self {
            Self::Syntax { offset, .. }
            | Self::UnexpectedEnd { offset }
            | Self::InvalidUtf8 { offset }
            | Self::TooDeep { offset, .. }
            | Self::TooManyNodes { offset, .. }
            | Self::LoneSurrogate { offset }
            | Self::NumberOutOfRange { offset } => offset,
            Self::TooLarge { limit, .. } => limit,
        }
    }

    /// Returns the line and the column of the error in `source`, both counted from 1.
    ///
    /// Columns count characters; a byte that belongs to no character counts as one.
    pub fn line_column(&self, source: &[u8]) -> (usize, usize) {
        let before = source.get(..self.offset()).unwrap_or(source);
        let line_start = before
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |at| at + 1);
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        let tail = before.get(line_start..).unwrap_or_default();
        (line, 1 + String::from_utf8_lossy(tail).chars().count())
    }
}

impl CanonicalError {
    /// Returns the JSON pointer of the culprit, where there is one.
    pub fn pointer(&self) -> Option<&str> {
        match self {
            Self::UnsafeInteger { pointer, .. }
            | Self::NotFinite { pointer, .. }
            | Self::Imprecise { pointer, .. }
            | Self::DuplicateKey { pointer }
            | Self::LoneSurrogate { pointer } => Some(pointer),
            Self::RootNotObject | Self::Json(_) | Self::Serialize(_) => None,
        }
    }
}

/// Cuts foreign text to a length that fits a message.
pub(crate) fn shorten(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => Cow::Owned(format!("{}…", text.get(..end).unwrap_or_default())),
        None => Cow::Borrowed(text),
    }
}
