//! The journal of an application, from which recovery works after a crash.
//!
//! The caller makes it durable before each step that needs it. In the phase `preparing` it names the
//! holding directory, so that half a preparation can be found and removed. In the phase
//! `committing` it has the image of every path before and after, so that recovery can tell by the
//! content alone how far the application came.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::Error;
use crate::dir::path_of;
use crate::document::{EntryForm, SourceForm, decode, decode_path, encode, encode_name};
use crate::manifest::{Entry, FileKind};
use crate::source::SourceIdentity;

const WHAT: &str = "apply journal";
const VERSION: u32 = 1;
const HOLDING_PREFIX: &str = ".abp-apply-";

/// The progress of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ApplyPhase {
    /// New contents are being copied into the holding directory; no name of the source changes.
    Preparing,
    /// Names are being changed.
    Committing,
    /// Every name is changed; only the holding directory is left.
    Finished,
}

/// The journal of one application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyJournal {
    pub(crate) source: SourceIdentity,
    /// The name of the holding directory in the root of the source.
    pub(crate) holding: String,
    pub(crate) phase: ApplyPhase,
    pub(crate) steps: Vec<JournalStep>,
}

/// The change of one path: its image before, and its image after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JournalStep {
    pub(crate) path: Vec<u8>,
    pub(crate) before: Option<Entry>,
    pub(crate) after: Option<Entry>,
    /// The user and the group of a directory, which is made again when its removal is undone.
    pub(crate) owner: Option<Owner>,
}

/// The user and the group of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Owner {
    pub(crate) user: u32,
    pub(crate) group: u32,
}

/// The way a step is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A file or link takes the place of another, by exchanging the two names.
    Replace,
    /// A file or link gets a free name.
    Create,
    /// A file or link goes to the holding directory.
    Delete,
    /// The permission bits of a file change.
    ChangeFileMode,
    /// The permission bits of a directory change.
    ChangeDirectoryMode,
    MakeDirectory,
    /// A directory is removed where it is empty.
    RemoveDirectory,
    /// A file or link goes to the holding directory, and a directory gets its name.
    FileToDirectory,
    /// A directory is removed, and a file or link gets its name.
    DirectoryToFile,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JournalForm {
    version: u32,
    source: SourceForm,
    holding: String,
    phase: ApplyPhase,
    steps: Vec<StepForm>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepForm {
    path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<EntryForm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<EntryForm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<Owner>,
}

impl ApplyJournal {
    pub(crate) fn new(source: SourceIdentity) -> Self {
        Self {
            source,
            holding: format!("{HOLDING_PREFIX}{}", Uuid::new_v4().simple()),
            phase: ApplyPhase::Preparing,
            steps: Vec::new(),
        }
    }

    /// The progress of the application.
    #[must_use]
    pub const fn phase(&self) -> ApplyPhase {
        self.phase
    }

    /// The source that is written to.
    #[must_use]
    pub fn source(&self) -> &Path {
        self.source.path()
    }

    /// The paths whose names or modes change, sorted; none in the phase `preparing`.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        let paths = self.steps.iter().map(|step| path_of(&step.path));
        paths.map(Path::to_owned).collect()
    }

    /// The document in which the journal is stored.
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

    fn form(&self) -> JournalForm {
        let steps = self.steps.iter().map(|step| {
            let (path, path_base64) = encode_name(&step.path);
            StepForm {
                path,
                path_base64,
                before: step.before.as_ref().map(EntryForm::of),
                after: step.after.as_ref().map(EntryForm::of),
                owner: step.owner,
            }
        });
        JournalForm {
            version: VERSION,
            source: SourceForm::of(&self.source),
            holding: self.holding.clone(),
            phase: self.phase,
            steps: steps.collect(),
        }
    }

    fn from_form(form: JournalForm) -> Result<Self, String> {
        if form.version != VERSION {
            return Err(format!("version {} is unknown", form.version));
        }
        // The directory of this name is emptied, so it must be one that `new` makes up.
        let id = form.holding.strip_prefix(HOLDING_PREFIX);
        let is_id = |id: &str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !id.is_some_and(is_id) {
            return Err("the holding directory has an impossible name".to_owned());
        }
        let mut steps: Vec<JournalStep> = Vec::new();
        for step in form.steps {
            let path = decode_path(&step.path, step.path_base64.as_deref())?;
            if steps.last().is_some_and(|last| last.path >= path) {
                return Err("the steps are not sorted".to_owned());
            }
            let entry = |form: Option<EntryForm>| form.map(|form| form.entry(&path)).transpose();
            let step = JournalStep {
                before: entry(step.before)?,
                after: entry(step.after)?,
                owner: step.owner,
                path,
            };
            if step.operation().is_none() {
                return Err("a step is impossible".to_owned());
            }
            steps.push(step);
        }
        Ok(Self {
            source: form.source.identity()?,
            holding: form.holding,
            phase: form.phase,
            steps,
        })
    }
}

impl JournalStep {
    /// The way the step is made; none for a step that no plan has.
    pub(crate) fn operation(&self) -> Option<Operation> {
        use FileKind::{Directory, File, Symlink};
        let kind = |entry: &Option<Entry>| entry.as_ref().map(Entry::kind);
        let same_content = match (&self.before, &self.after) {
            (Some(before), Some(after)) => before.has_content_of(after),
            _ => false,
        };
        Some(match (kind(&self.before), kind(&self.after)) {
            (Some(File), Some(File)) if same_content => Operation::ChangeFileMode,
            (Some(File | Symlink), Some(File | Symlink)) => Operation::Replace,
            (Some(Directory), Some(Directory)) => Operation::ChangeDirectoryMode,
            (None, Some(File | Symlink)) => Operation::Create,
            (None, Some(Directory)) => Operation::MakeDirectory,
            (Some(File | Symlink), None) => Operation::Delete,
            (Some(Directory), None) => Operation::RemoveDirectory,
            (Some(File | Symlink), Some(Directory)) => Operation::FileToDirectory,
            (Some(Directory), Some(File | Symlink)) => Operation::DirectoryToFile,
            _ => return None,
        })
    }

    /// Whether a directory gets the owner's write permission that it does not have yet; it then
    /// comes before everything in the directory.
    pub(crate) fn widens_directory(&self) -> bool {
        let is_writable = |entry: &Entry| entry.mode() & 0o200 != 0;
        self.operation() == Some(Operation::ChangeDirectoryMode)
            && self
                .before
                .as_ref()
                .is_some_and(|before| !is_writable(before))
            && self.after.as_ref().is_some_and(is_writable)
    }
}
