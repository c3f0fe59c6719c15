//! The JSON form that change sets and apply journals share.
//!
//! Both are stored by one process and believed by a later one, so their form is strict: there is
//! exactly one document for a value, and every other one is refused. Reading therefore encodes the
//! value again and compares the bytes, which also finds unknown and repeated fields, other number
//! forms and white space.
//!
//! A name is text. A name that is not UTF-8 is shown in git's quoting, and its bytes stand beside it
//! in base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::Error;
use crate::dir::path_of;
use crate::manifest::{Entry, FileKind, hex};
use crate::quote::display_path;
use crate::source::{BirthTime, SourceIdentity};

/// The most bytes of a document that are read.
pub(crate) const MAX_DOCUMENT_BYTES: usize = 512 * 1024 * 1024;
/// Longer paths cannot be made component by component in any tree within the default depth.
const MAX_PATH_BYTES: usize = 256 * 256;

/// A file, link or directory without its path.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EntryForm {
    kind: String,
    mode: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target_base64: Option<String>,
}

/// The identity of a source directory.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SourceForm {
    path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path_base64: Option<String>,
    device: u64,
    inode: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    birth: Option<BirthForm>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BirthForm {
    seconds: i64,
    nanoseconds: u32,
}

impl EntryForm {
    pub(crate) fn of(entry: &Entry) -> Self {
        let (mut sha256, mut target, mut target_base64) = (None, None, None);
        match entry.kind() {
            FileKind::File => sha256 = Some(hex(entry.sha256())),
            FileKind::Symlink => {
                let (text, base64) = encode_name(entry.target_bytes());
                (target, target_base64) = (Some(text), base64);
            }
            FileKind::Directory | FileKind::Special(_) => {}
        }
        let has_size = entry.kind() == FileKind::File
            || (entry.size() > 0 && entry.kind() != FileKind::Symlink);
        Self {
            kind: entry.kind().name().to_owned(),
            mode: format!("{:o}", entry.mode()),
            size: has_size.then_some(entry.size()),
            sha256,
            target,
            target_base64,
        }
    }

    pub(crate) fn entry(&self, path: &[u8]) -> Result<Entry, String> {
        let kind = FileKind::from_name(&self.kind).ok_or("a kind of file is unknown")?;
        let mode = u32::from_str_radix(&self.mode, 8)
            .ok()
            .filter(|mode| *mode <= 0o7777)
            .ok_or("a mode is not four octal digits")?;
        match kind {
            FileKind::Symlink => {
                let target = self.target.as_deref().ok_or("a link has no target")?;
                let target = decode_name(target, self.target_base64.as_deref())?;
                Ok(Entry::symlink(path, target))
            }
            FileKind::File => {
                let sha256 = self.sha256.as_deref().and_then(hash_from_hex);
                let sha256 = sha256.ok_or("a file has no SHA-256")?;
                let size = self.size.ok_or("a file has no size")?;
                Ok(Entry::recorded(path, kind, mode, size, sha256))
            }
            FileKind::Directory | FileKind::Special(_) => {
                let size = self.size.unwrap_or_default();
                Ok(Entry::recorded(path, kind, mode, size, [0; 32]))
            }
        }
    }
}

impl SourceForm {
    pub(crate) fn of(source: &SourceIdentity) -> Self {
        let (path, path_base64) = encode_name(&source.path);
        Self {
            path,
            path_base64,
            device: source.device,
            inode: source.inode,
            birth: source.birth.map(|birth| BirthForm {
                seconds: birth.seconds,
                nanoseconds: birth.nanoseconds,
            }),
        }
    }

    pub(crate) fn identity(&self) -> Result<SourceIdentity, String> {
        let path = decode_name(&self.path, self.path_base64.as_deref())?;
        let beneath = path
            .strip_prefix(b"/")
            .ok_or("the source is not absolute")?;
        if !beneath.is_empty() && !is_normal(beneath) {
            return Err("the source is not a canonical path".to_owned());
        }
        Ok(SourceIdentity {
            path,
            device: self.device,
            inode: self.inode,
            birth: self.birth.as_ref().map(|birth| BirthTime {
                seconds: birth.seconds,
                nanoseconds: birth.nanoseconds,
            }),
        })
    }
}

pub(crate) fn encode(what: &'static str, form: &impl Serialize) -> Result<Vec<u8>, Error> {
    let encoded = serde_json::to_vec(form).map_err(|error| refused(what, error.to_string()))?;
    if encoded.len() > MAX_DOCUMENT_BYTES {
        return Err(refused(what, too_long()));
    }
    Ok(encoded)
}

/// Reads a document; `value` makes sense of its form, and `form` is the inverse.
pub(crate) fn decode<F: Serialize + DeserializeOwned, T>(
    what: &'static str,
    bytes: &[u8],
    value: impl FnOnce(F) -> Result<T, String>,
    form: impl FnOnce(&T) -> F,
) -> Result<T, Error> {
    if bytes.len() > MAX_DOCUMENT_BYTES {
        return Err(refused(what, too_long()));
    }
    let read: F =
        serde_json::from_slice(bytes).map_err(|error| refused(what, error.to_string()))?;
    let value = value(read).map_err(|reason| refused(what, reason))?;
    if encode(what, &form(&value))? != bytes {
        return Err(refused(what, "it is not in canonical form".to_owned()));
    }
    Ok(value)
}

fn too_long() -> String {
    format!("it has more than {MAX_DOCUMENT_BYTES} bytes")
}

fn refused(what: &'static str, reason: String) -> Error {
    Error::Document { what, reason }
}

/// The SHA-256 of a document, in lower-case hexadecimal.
pub(crate) fn sha256(document: &[u8]) -> String {
    hex(&Sha256::digest(document))
}

/// A name as text, with its bytes in base64 where it is not UTF-8.
pub(crate) fn encode_name(name: &[u8]) -> (String, Option<String>) {
    match std::str::from_utf8(name) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (display_path(path_of(name)), Some(STANDARD.encode(name))),
    }
}

pub(crate) fn decode_name(text: &str, base64: Option<&str>) -> Result<Vec<u8>, String> {
    let name = match base64 {
        Some(encoded) => STANDARD
            .decode(encoded)
            .map_err(|_| "a name is not base64")?,
        None => text.as_bytes().to_vec(),
    };
    if name.contains(&0) || name.len() > MAX_PATH_BYTES {
        return Err("a name has a NUL or too many bytes".to_owned());
    }
    Ok(name)
}

/// A path relative to the root of a tree.
pub(crate) fn decode_path(text: &str, base64: Option<&str>) -> Result<Vec<u8>, String> {
    let path = decode_name(text, base64)?;
    if !is_normal(&path) {
        return Err(format!("path {text:?} is not relative and normal"));
    }
    Ok(path)
}

/// Whether a relative path has only names in it: nothing empty, no `.` and no `..`.
pub(crate) fn is_normal(path: &[u8]) -> bool {
    let plain = |component: &[u8]| !matches!(component, b"" | b"." | b"..");
    path.split(|&byte| byte == b'/').all(plain)
}

pub(crate) fn is_hash(text: &str) -> bool {
    hash_from_hex(text).is_some()
}

pub(crate) fn hash_from_hex(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if text.len() != 2 * hash.len() || !text.is_ascii() {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(hash)
}
