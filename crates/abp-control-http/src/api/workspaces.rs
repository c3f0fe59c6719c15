//! Uploaded workspaces.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The files of a workspace, by their content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceManifest {
    /// Every file and link; directories follow from the paths.
    pub entries: Vec<ManifestEntry>,
}

/// A file or link of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ManifestEntry {
    /// A file.
    File {
        /// The path below the root of the workspace, with `/` between names.
        path: String,
        /// The SHA-256 of its bytes, in hexadecimal.
        sha256: String,
        /// Its size in bytes.
        size: u64,
        /// Whether it may be executed.
        #[serde(default)]
        executable: bool,
    },
    /// A symbolic link that stays inside the workspace.
    Link {
        /// The path below the root of the workspace.
        path: String,
        /// Its target.
        target: String,
    },
}

impl ManifestEntry {
    /// The path below the root of the workspace.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::File { path, .. } | Self::Link { path, .. } => path,
        }
    }
}

/// A workspace, and what is missing of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceView {
    /// Its id, which follows from the manifest. Submissions name it.
    pub workspace_id: String,
    /// The hashes that have to be uploaded before a run can use it, each once.
    pub missing: Vec<String>,
    /// How many bytes these have in all.
    pub missing_bytes: u64,
}

/// A blob that is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlobStored {
    /// Its SHA-256, in hexadecimal.
    pub sha256: String,
    /// Its size in bytes.
    pub size: u64,
}

/// The most bytes of a blob of a bundle. Larger ones are uploaded by themselves.
pub const MAX_BUNDLED_BLOB: usize = 1 << 20;

/// The blobs of a bundle, which are stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlobsStored {
    /// How many there were.
    pub count: u64,
    /// How many bytes they had.
    pub bytes: u64,
}
