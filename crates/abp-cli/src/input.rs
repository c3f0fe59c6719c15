//! Reading files that people wrote: one clear error with the place, nothing half understood.

use std::fs::File;
use std::io::{Read, stdin};
use std::path::Path;

use abp_core::{ContractError, PolicyProfile, read_document};
use abp_error::{AbpError, ErrorCode};
use abp_json::{Kind, Limits, Tape, View, pointer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The largest file read.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Reads a file, or standard input for `-`.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, AbpError> {
    let mut bytes = Vec::new();
    let result = if path == Path::new("-") {
        stdin().lock().take(MAX_BYTES + 1).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
    };
    match result {
        Err(error) => Err(AbpError::new(
            ErrorCode::ConfigInvalid,
            format!("cannot read {}", path.display()),
        )
        .with_source(error)),
        Ok(size) if size as u64 > MAX_BYTES => Err(AbpError::new(
            ErrorCode::ValidationFailed,
            format!("{} is larger than {MAX_BYTES} bytes", path.display()),
        )),
        Ok(_) => Ok(bytes),
    }
}

/// Opens a file, or standard input for `-`, to be read piece by piece.
pub(crate) fn open(path: &Path) -> Result<Box<dyn Read>, AbpError> {
    if path == Path::new("-") {
        return Ok(Box::new(stdin()));
    }
    match File::open(path) {
        Ok(file) => Ok(Box::new(file)),
        Err(error) => Err(AbpError::new(
            ErrorCode::ConfigInvalid,
            format!("cannot read {}", path.display()),
        )
        .with_source(error)),
    }
}

/// Reads a document of the contract from a file.
pub(crate) fn document<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T, AbpError> {
    read_document(bytes).map_err(|error| at(path, &error))
}

/// A contract error with the file it came from.
pub(crate) fn at(path: &Path, error: &ContractError) -> AbpError {
    AbpError::new(error.code(), format!("{}: {error}", path.display()))
        .with_context("file", path.display().to_string())
}

/// Reads an operator's file: unknown keys are errors, because they are almost always typing errors.
pub(crate) fn strict<T: DeserializeOwned + Serialize>(
    path: &Path,
    code: ErrorCode,
) -> Result<T, AbpError> {
    let bytes = read(path)?;
    let value: T = read_document(&bytes)
        .map_err(|error| AbpError::new(code, format!("{}: {error}", path.display())))?;
    match unknown_fields(&bytes, &value).first() {
        None => Ok(value),
        Some(unknown) => Err(AbpError::new(
            code,
            format!("{}: {}", path.display(), unknown.describe()),
        )),
    }
}

/// Reads a policy profile.
pub(crate) fn policy(path: &Path) -> Result<PolicyProfile, AbpError> {
    strict(path, ErrorCode::PolicyInvalid)
}

/// A key of a document that its type does not know.
#[derive(Debug, Serialize)]
pub(crate) struct UnknownField {
    /// Where it is.
    pub(crate) pointer: String,
    /// What was probably meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) did_you_mean: Option<String>,
}

impl UnknownField {
    pub(crate) fn describe(&self) -> String {
        match &self.did_you_mean {
            Some(known) => format!("unknown key at {}; did you mean {known:?}?", self.pointer),
            None => format!("unknown key at {}", self.pointer),
        }
    }
}

/// The keys of a document that were not understood.
///
/// The contract writes complete documents, so a key that is not written back was not read.
pub(crate) fn unknown_fields(document: &[u8], understood: &impl Serialize) -> Vec<UnknownField> {
    let limits = Limits::default();
    let (Ok(tape), Ok(understood)) = (
        Tape::parse(document, &limits),
        serde_json::to_value(understood),
    ) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    compare(tape.root(), &understood, &mut String::new(), &mut found);
    found
}

fn compare(view: View<'_>, understood: &Value, place: &mut String, found: &mut Vec<UnknownField>) {
    let length = place.len();
    match (view.kind(), understood) {
        (Kind::Object, Value::Object(known)) => {
            for (key, member) in view.entries() {
                let Some(key) = key.as_str() else { continue };
                pointer::push(place, &key);
                match known.get(key.as_ref()) {
                    Some(value) => compare(member, value, place, found),
                    None => found.push(UnknownField {
                        pointer: place.clone(),
                        did_you_mean: closest(&key, known.keys().map(String::as_str))
                            .map(str::to_owned),
                    }),
                }
                place.truncate(length);
            }
        }
        (Kind::Array, Value::Array(known)) => {
            for (index, (item, value)) in view.items().zip(known).enumerate() {
                pointer::push(place, &index.to_string());
                compare(item, value, place, found);
                place.truncate(length);
            }
        }
        _ => {}
    }
}

/// The candidate that is most like a mistyped word.
pub(crate) fn closest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| {
            (
                strsim::jaro_winkler(&word.to_lowercase(), &candidate.to_lowercase()),
                candidate,
            )
        })
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
