//! The repository a stage starts with, because agents expect one.
//!
//! It is made after the copy and before the agent runs, and never read again by the host: from then
//! on it is the agent's. It is no part of the workspace: changes in it are not reported, changes to the
//! files beside it always are.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Seek as _};
use std::path::Path;
use std::time::{Duration, Instant};

use abp_git::{BaselineStream, FileMode, Git};

use crate::dir::Dir;
use crate::manifest::{FileKind, Manifest};

/// Whether a stage started as a git repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitBaseline {
    /// It did, with everything in one commit.
    Made,
    /// It did not.
    Skipped {
        /// Why.
        reason: String,
    },
}

/// Up to which size a stage starts as a git repository. Making one takes several times as long as
/// the copy, so large trees start without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GitLimits {
    /// Files and links.
    pub max_files: u64,
    /// Bytes in all of them.
    pub max_bytes: u64,
    /// The time after which git is ended.
    pub max_time: Duration,
}

impl Default for GitLimits {
    fn default() -> Self {
        Self {
            max_files: 2_000,
            max_bytes: 32 << 20,
            max_time: Duration::from_secs(5),
        }
    }
}

/// Makes a just filled tree a repository where that is quick.
pub(crate) fn make_baseline(limits: GitLimits, manifest: &Manifest, tree: &Path) -> GitBaseline {
    baseline(limits, manifest, |git| {
        git.ensure_git_repo(tree, limits.max_time)
    })
}

/// Makes the empty top layer of an overlay a repository of the files of its source, where that is quick.
/// `stream` is a file of the host's own, for the files on their way to git.
pub(crate) fn import_baseline(
    limits: GitLimits,
    manifest: &Manifest,
    source: &Dir,
    tree: &Path,
    stream: impl FnOnce() -> io::Result<File>,
) -> GitBaseline {
    baseline(limits, manifest, |git| {
        let written = stream().and_then(|stream| write_stream(manifest, source, stream));
        let stream = written.map_err(|source| abp_git::Error::Run {
            step: "fast-import",
            source,
        })?;
        git.import_baseline(tree, stream, limits.max_time)
    })
}

fn write_stream(manifest: &Manifest, source: &Dir, stream: File) -> io::Result<File> {
    let mut commit = BaselineStream::begin(BufWriter::new(stream))?;
    for entry in manifest.entries() {
        match entry.kind() {
            FileKind::File => {
                let path = entry.path_bytes();
                let opened = source.open_parent(path);
                let (file, _) = opened.and_then(|(dir, name)| dir.open_file(name))?;
                let mut content = Vec::new();
                // The source is live; a file that grew without end is not read without end.
                file.take(entry.size()).read_to_end(&mut content)?;
                let mode = match entry.mode() & 0o100 {
                    0 => FileMode::Plain,
                    _ => FileMode::Executable,
                };
                commit.add(path, mode, &content)?;
            }
            FileKind::Symlink => {
                commit.add(entry.path_bytes(), FileMode::Link, entry.target_bytes())?;
            }
            FileKind::Directory | FileKind::Special(_) => {}
        }
    }
    let mut stream = commit.finish()?.into_inner().map_err(io::Error::other)?;
    stream.rewind()?;
    Ok(stream)
}

fn baseline(
    limits: GitLimits,
    manifest: &Manifest,
    make: impl FnOnce(Git) -> Result<(), abp_git::Error>,
) -> GitBaseline {
    let started = Instant::now();
    let (files, bytes) = (manifest.files(), manifest.bytes());
    let made = if files > limits.max_files {
        Err(format!("{files} files are more than {}", limits.max_files))
    } else if bytes > limits.max_bytes {
        Err(format!("{bytes} bytes are more than {}", limits.max_bytes))
    } else {
        Git::find()
            .and_then(make)
            .map_err(|error| error.to_string())
    };
    let took_ms = started.elapsed().as_millis();
    match made {
        Ok(()) => {
            tracing::debug!(target: "abp.workspace", files, bytes, took_ms, "stage is a repository");
            GitBaseline::Made
        }
        Err(reason) => {
            tracing::debug!(target: "abp.workspace", files, bytes, took_ms, reason, "stage is no repository");
            GitBaseline::Skipped { reason }
        }
    }
}
