//! The document of a change set.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{ChangeSet, ChangedPath};
use crate::Error;
use crate::document::{
    EntryForm, SourceForm, decode, decode_path, encode, encode_name, hash_from_hex, is_hash, sha256,
};
use crate::manifest::hex;

const WHAT: &str = "change set";
const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeSetForm {
    version: u32,
    staged: bool,
    source: SourceForm,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    baseline_sha256: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    final_sha256: Option<String>,
    directories: Vec<DirectoryForm>,
    changes: Vec<ChangeForm>,
    /// The SHA-256 of every image that is stored with the document, sorted.
    images: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DirectoryForm {
    path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path_base64: Option<String>,
    /// In octal.
    mode: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeForm {
    path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<EntryForm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<EntryForm>,
    ignored: bool,
}

impl ChangeSet {
    /// The document in which the change set is stored.
    ///
    /// # Errors
    /// Fails where it would be too large to be read again.
    pub fn to_document(&self) -> Result<Vec<u8>, Error> {
        encode(WHAT, &self.form())
    }

    /// Reads a stored document.
    ///
    /// # Errors
    /// [`Error::Document`] where it is not exactly a document that [`Self::to_document`] makes.
    pub fn from_document(document: &[u8]) -> Result<Self, Error> {
        decode(WHAT, document, Self::from_form, Self::form)
    }

    /// The SHA-256 of the document, in lower-case hexadecimal.
    ///
    /// # Errors
    /// As [`Self::to_document`].
    pub fn sha256(&self) -> Result<String, Error> {
        Ok(sha256(&self.to_document()?))
    }

    fn form(&self) -> ChangeSetForm {
        let directories = self.directories.iter().map(|(path, mode)| {
            let (path, path_base64) = encode_name(path);
            DirectoryForm {
                path,
                path_base64,
                mode: format!("{mode:o}"),
            }
        });
        let changes = self.changes.iter().map(|change| {
            let (path, path_base64) = encode_name(change.path_bytes());
            ChangeForm {
                path,
                path_base64,
                before: change.before.as_ref().map(EntryForm::of),
                after: change.after.as_ref().map(EntryForm::of),
                ignored: change.is_ignored,
            }
        });
        ChangeSetForm {
            version: VERSION,
            staged: self.is_staged,
            source: SourceForm::of(&self.source),
            baseline_sha256: self.baseline_sha256.clone(),
            final_sha256: self.final_sha256.clone(),
            directories: directories.collect(),
            changes: changes.collect(),
            images: self.images.iter().map(|sha256| hex(sha256)).collect(),
        }
    }

    fn from_form(form: ChangeSetForm) -> Result<Self, String> {
        if form.version != VERSION {
            return Err(format!("version {} is unknown", form.version));
        }
        let hashes = [&form.baseline_sha256, &form.final_sha256];
        let is_known = hashes.iter().any(|hash| hash.is_some());
        let is_whole = |hash: &&Option<String>| hash.as_deref().is_some_and(is_hash);
        if is_known && !hashes.iter().all(is_whole) {
            return Err("a manifest has no SHA-256".to_owned());
        }
        let mut directories = BTreeMap::new();
        for directory in form.directories {
            let path = decode_path(&directory.path, directory.path_base64.as_deref())?;
            let mode = u32::from_str_radix(&directory.mode, 8);
            let mode = mode.map_err(|_| "a mode is not octal")?;
            directories.insert(path, mode);
        }
        let mut changes: Vec<ChangedPath> = Vec::new();
        for change in form.changes {
            let path = decode_path(&change.path, change.path_base64.as_deref())?;
            let entry = |form: Option<EntryForm>| form.map(|form| form.entry(&path)).transpose();
            let change = ChangedPath {
                before: entry(change.before)?,
                after: entry(change.after)?,
                is_ignored: change.ignored,
            };
            check_change(&change, changes.last())?;
            changes.push(change);
        }
        let images = form.images.iter().map(|image| hash_from_hex(image));
        let images: Option<BTreeSet<[u8; 32]>> = images.collect();
        Ok(Self {
            images: images.ok_or("an image has no SHA-256")?,
            is_staged: form.staged,
            source: form.source.identity()?,
            baseline_sha256: form.baseline_sha256,
            final_sha256: form.final_sha256,
            directories,
            changes,
        })
    }
}

/// Refuses changes that no run makes.
fn check_change(change: &ChangedPath, last: Option<&ChangedPath>) -> Result<(), String> {
    if last.is_some_and(|last| last.path_bytes() >= change.path_bytes()) {
        return Err("the changes are not sorted".to_owned());
    }
    let is_new = change.before.is_none() && change.after.is_some();
    if change.before == change.after || (change.is_ignored && !is_new) {
        return Err("a change is impossible".to_owned());
    }
    Ok(())
}
