//! The reasons why a change of a run cannot be made in the source.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use crate::quote::display_path;

/// A path that changed both in the run and in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conflict {
    /// The path relative to the root.
    pub path: PathBuf,
    /// The reason why the two changes do not go together.
    pub reason: ConflictReason,
}

/// The reason why two changes do not go together.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConflictReason {
    /// Both changed the same lines, or lines beside each other.
    Lines {
        /// The lines, in the source as it is now.
        lines: Vec<LineRange>,
    },
    /// Both changed the content, which cannot be merged by lines: it is not text, or too large.
    Content,
    /// Both changed the permission bits.
    Mode,
    /// The source no longer has it.
    Missing,
    /// The source has something else there by now.
    Appeared,
    /// The source has it in another form than the run started with.
    Changed,
    /// A directory above it became something else in the source.
    Parent,
    /// The directory it replaces also holds files that were never staged.
    NotStaged,
    /// On a file system that folds case it would be repository metadata.
    Repository,
}

/// Lines of a text, counted from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LineRange {
    /// The first line.
    pub first: u64,
    /// The last line; the first one again where all there was is gone.
    pub last: u64,
}

impl LineRange {
    pub(crate) fn of(lines: Range<usize>) -> Self {
        let first = lines.start as u64 + 1;
        Self {
            first,
            last: first.max(lines.end as u64),
        }
    }
}

impl fmt::Display for LineRange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(out, "{}", self.first)
        } else {
            write!(out, "{}-{}", self.first, self.last)
        }
    }
}

impl fmt::Display for ConflictReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Lines { lines } => {
                let lines: Vec<String> = lines.iter().map(LineRange::to_string).collect();
                let noun = if matches!(lines.as_slice(), [_]) {
                    "line"
                } else {
                    "lines"
                };
                return write!(out, "both changed {noun} {}", lines.join(", "));
            }
            Self::Content => "both changed the content, which is not text or too large to merge",
            Self::Mode => "both changed the permissions",
            Self::Missing => "the source no longer has it",
            Self::Appeared => "the source has another one by now",
            Self::Changed => "the source changed it",
            Self::Parent => "a directory above it changed in the source",
            Self::NotStaged => "the directory also holds files that were never staged",
            Self::Repository => "it could pass for repository metadata",
        };
        out.write_str(text)
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({})", display_path(&self.path), self.reason)
    }
}
