//! Reading contract documents from bytes.

use abp_error::ErrorCode;
use abp_json::{CanonicalError, JsonError, Kind, Limits, Tape, pointer};
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

/// Why a document cannot be read or hashed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContractError {
    /// Not JSON, or beyond the limits.
    #[error("not valid JSON at line {line}, column {column}: {error}")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// Column in bytes, from 1.
        column: usize,
        /// What is wrong.
        error: JsonError,
    },
    /// An object names the same key twice, so that two readers may see two documents.
    #[error("duplicate key at {pointer}")]
    DuplicateKey {
        /// The second of the two.
        pointer: String,
    },
    /// Valid JSON of another shape.
    #[error("at {}: {problem}", display_pointer(pointer))]
    Schema {
        /// Where.
        pointer: String,
        /// What was expected.
        problem: String,
    },
    /// Something canonical JSON cannot carry.
    #[error(transparent)]
    Canonical(#[from] CanonicalError),
    /// A number that JSON has no form for.
    #[error("{field} is not a finite number")]
    NonFinite {
        /// The field.
        field: &'static str,
    },
}

impl ContractError {
    /// The error's code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Syntax { .. }
            | Self::DuplicateKey { .. }
            | Self::Schema { .. }
            | Self::Canonical(_)
            | Self::NonFinite { .. } => ErrorCode::ContractSchemaViolation,
        }
    }
}

/// Reads a document strictly as JSON (bounded, no duplicate keys) and tolerantly as a type
/// (unknown fields are ignored).
///
/// # Errors
/// Names the line and column of a syntax error, or the JSON pointer of a wrong value.
pub fn read_document<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ContractError> {
    read_tape(&parse_strictly(bytes)?)
}

pub(crate) fn parse_strictly(bytes: &[u8]) -> Result<Tape<'_>, ContractError> {
    let tape = Tape::parse(bytes, &Limits::default()).map_err(|error| {
        let (line, column) = error.line_column(bytes);
        ContractError::Syntax {
            line,
            column,
            error,
        }
    })?;
    let duplicate = tape
        .duplicates()
        .first()
        .and_then(|duplicate| tape.view(duplicate.key));
    match duplicate {
        Some(key) => Err(ContractError::DuplicateKey {
            pointer: key.pointer(),
        }),
        None => Ok(tape),
    }
}

pub(crate) fn read_tape<T: DeserializeOwned>(tape: &Tape<'_>) -> Result<T, ContractError> {
    // Serde would read an array as a struct, field by field.
    if tape.root().kind() != Kind::Object {
        return Err(ContractError::Schema {
            pointer: String::new(),
            problem: "expected an object".to_owned(),
        });
    }
    let mut deserializer = serde_json::Deserializer::from_str(tape.source());
    serde_path_to_error::deserialize(&mut deserializer).map_err(|error| ContractError::Schema {
        pointer: to_pointer(error.path()),
        problem: without_position(&error.into_inner()),
    })
}

fn to_pointer(path: &serde_path_to_error::Path) -> String {
    let mut result = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => pointer::push(&mut result, &index.to_string()),
            Segment::Map { key } => pointer::push(&mut result, key),
            // A variant or an unknown step has no place of its own in the document.
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    result
}

/// serde_json appends a position that is wrong for parts read through a buffer; the pointer tells it.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text.get(..end).unwrap_or(&text).to_owned(),
        None => text,
    }
}

fn display_pointer(pointer: &str) -> &str {
    if pointer.is_empty() {
        "the top level"
    } else {
        pointer
    }
}
