//! Writes patches in git's extended unified format.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline, group_diff_ops};

use crate::binary;
use crate::changes::ContentChange;
use crate::manifest::{Entry, FileKind};
use crate::quote::diff_name;

/// Lines of context around a change.
const CONTEXT_LINES: usize = 3;
/// Above either of these, the differing part is replaced as a whole instead of being compared.
const MAX_COMPARED_BYTES: usize = 1024 * 1024;
const MAX_COMPARED_LINES: usize = 50_000;
/// The time for comparing one file, and all of them; later the comparison gets coarser.
const FILE_TIME: Duration = Duration::from_millis(500);
const TOTAL_TIME: Duration = Duration::from_secs(20);
/// The most that all contents in one diff may take; beyond it they are only named.
const MAX_DIFF_BYTES: usize = 64 * 1024 * 1024;

/// One side of a comparison, as git sees it.
pub(crate) struct Side {
    mode: &'static str,
    is_link: bool,
    /// None where the content is too large to be shown.
    bytes: Option<Vec<u8>>,
}

impl Side {
    /// A file with its content, or a link; none for kinds that git does not store.
    pub(crate) fn of(entry: &Entry, content: Option<Vec<u8>>) -> Option<Self> {
        let (mode, bytes) = match entry.kind() {
            FileKind::File if entry.mode() & 0o100 == 0 => ("100644", content),
            FileKind::File => ("100755", content),
            FileKind::Symlink => ("120000", Some(entry.target_bytes().to_vec())),
            FileKind::Directory | FileKind::Special(_) => return None,
        };
        Some(Self {
            mode,
            is_link: entry.kind() == FileKind::Symlink,
            bytes,
        })
    }
}

/// A diff being written.
pub(crate) struct DiffWriter {
    text: String,
    started: Instant,
}

impl DiffWriter {
    pub(crate) fn new() -> Self {
        Self {
            text: String::new(),
            started: Instant::now(),
        }
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }

    /// Writes the patch of one path.
    pub(crate) fn write(
        &mut self,
        path: &[u8],
        old: Option<&Side>,
        new: Option<&Side>,
    ) -> ContentChange {
        match (old, new) {
            // Git takes a change of type for a removal and an addition.
            (Some(left), Some(right)) if left.is_link != right.is_link => {
                let removed = self.patch(path, Some(left), None);
                let added = self.patch(path, None, Some(right));
                joined(removed, added)
            }
            (None, None) => ContentChange::None,
            _ => self.patch(path, old, new),
        }
    }

    fn patch(&mut self, path: &[u8], old: Option<&Side>, new: Option<&Side>) -> ContentChange {
        let (old_bytes, new_bytes) = (content_of(old), content_of(new));
        let same = old.is_some() && new.is_some() && old_bytes.is_some() && old_bytes == new_bytes;
        if same && old.map(|side| side.mode) == new.map(|side| side.mode) {
            return ContentChange::None;
        }
        let names = Names {
            old: diff_name("a/", path),
            new: diff_name("b/", path),
        };
        let _ = writeln!(self.text, "diff --git {} {}", names.old, names.new);
        match (old, new) {
            (Some(old), Some(new)) if old.mode != new.mode => {
                let _ = write!(self.text, "old mode {}\nnew mode {}\n", old.mode, new.mode);
            }
            (Some(_), Some(_)) | (None, None) => {}
            (None, Some(new)) => {
                let _ = writeln!(self.text, "new file mode {}", new.mode);
            }
            (Some(old), None) => {
                let _ = writeln!(self.text, "deleted file mode {}", old.mode);
            }
        }
        if same {
            return ContentChange::None;
        }
        let names = names.for_sides(old, new);
        let (Some(old_bytes), Some(new_bytes)) = (old_bytes, new_bytes) else {
            return self.omit(&names);
        };
        if self.text.len() + old_bytes.len() + new_bytes.len() > MAX_DIFF_BYTES {
            return self.omit(&names);
        }
        match (text_of(old_bytes), text_of(new_bytes)) {
            (Some(old_text), Some(new_text)) => self.write_text(&names, old_text, new_text),
            _ => {
                let patch = binary::patch(old.map(|_| old_bytes), new.map(|_| new_bytes));
                self.text.push_str(&patch);
                ContentChange::Binary
            }
        }
    }

    fn omit(&mut self, names: &Names) -> ContentChange {
        let _ = writeln!(
            self.text,
            "Binary files {} and {} differ",
            names.old, names.new
        );
        ContentChange::Omitted
    }

    fn write_text(&mut self, names: &Names, old: &str, new: &str) -> ContentChange {
        let old_lines: Vec<&str> = old.split_inclusive('\n').collect();
        let new_lines: Vec<&str> = new.split_inclusive('\n').collect();
        let mut counts = (0, 0);
        let operations = self.compare(&old_lines, &new_lines, old.len().max(new.len()));
        let hunks = group_diff_ops(operations, CONTEXT_LINES);
        if !hunks.is_empty() {
            let _ = write!(
                self.text,
                "--- {}\n+++ {}\n",
                names.marked_old(),
                names.marked_new()
            );
        }
        for hunk in hunks {
            self.write_hunk(&hunk, &old_lines, &new_lines, &mut counts);
        }
        ContentChange::Text {
            insertions: counts.0,
            deletions: counts.1,
        }
    }

    fn compare(&self, old: &[&str], new: &[&str], bytes: usize) -> Vec<DiffOp> {
        let shorter = old.len().min(new.len());
        let prefix = old
            .iter()
            .zip(new)
            .take_while(|(left, right)| left == right)
            .count();
        let ends = old
            .iter()
            .rev()
            .zip(new.iter().rev())
            .take(shorter - prefix);
        let suffix = ends.take_while(|(left, right)| left == right).count();
        let old_middle = old.get(prefix..old.len() - suffix).unwrap_or_default();
        let new_middle = new.get(prefix..new.len() - suffix).unwrap_or_default();
        let lines = old_middle.len() + new_middle.len();
        let coarse = bytes > MAX_COMPARED_BYTES
            || lines > MAX_COMPARED_LINES
            || self.started.elapsed() > TOTAL_TIME;
        let middle = if coarse {
            vec![DiffOp::Replace {
                old_index: 0,
                old_len: old_middle.len(),
                new_index: 0,
                new_len: new_middle.len(),
            }]
        } else {
            let deadline = Instant::now() + FILE_TIME;
            capture_diff_slices_deadline(Algorithm::Myers, old_middle, new_middle, Some(deadline))
        };
        let equal = |old_index, new_index, len| DiffOp::Equal {
            old_index,
            new_index,
            len,
        };
        let mut operations = vec![equal(0, 0, prefix)];
        operations.extend(
            middle
                .into_iter()
                .map(|operation| shifted(operation, prefix)),
        );
        operations.push(equal(old.len() - suffix, new.len() - suffix, suffix));
        operations.retain(|operation| {
            !(operation.old_range().is_empty() && operation.new_range().is_empty())
        });
        operations
    }

    fn write_hunk(&mut self, hunk: &[DiffOp], old: &[&str], new: &[&str], counts: &mut (u64, u64)) {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else {
            return;
        };
        let old_range = first.old_range().start..last.old_range().end;
        let new_range = first.new_range().start..last.new_range().end;
        let _ = writeln!(
            self.text,
            "@@ -{} +{} @@",
            place(&old_range),
            place(&new_range)
        );
        for operation in hunk {
            let removed = old.get(operation.old_range()).unwrap_or_default();
            let added = new.get(operation.new_range()).unwrap_or_default();
            if let DiffOp::Equal { .. } = operation {
                self.write_lines(' ', removed);
                continue;
            }
            counts.1 += removed.len() as u64;
            counts.0 += added.len() as u64;
            self.write_lines('-', removed);
            self.write_lines('+', added);
        }
    }

    fn write_lines(&mut self, mark: char, lines: &[&str]) {
        for line in lines {
            self.text.push(mark);
            self.text.push_str(line);
            if !line.ends_with('\n') {
                self.text.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
}

struct Names {
    old: String,
    new: String,
}

impl Names {
    fn for_sides(mut self, old: Option<&Side>, new: Option<&Side>) -> Self {
        if old.is_none() {
            "/dev/null".clone_into(&mut self.old);
        }
        if new.is_none() {
            "/dev/null".clone_into(&mut self.new);
        }
        self
    }

    fn marked_old(&self) -> String {
        marked(&self.old)
    }

    fn marked_new(&self) -> String {
        marked(&self.new)
    }
}

/// A side that does not exist has no content; one that is too large has content that is not here.
fn content_of(side: Option<&Side>) -> Option<&[u8]> {
    side.map_or(Some(&[]), |side| side.bytes.as_deref())
}

/// Git ends a name with a space in it by a tab, so that a reader knows where it ends.
fn marked(name: &str) -> String {
    if name.contains(' ') && !name.starts_with('"') {
        format!("{name}\t")
    } else {
        name.to_owned()
    }
}

/// Text is UTF-8 without NUL; everything else travels as a binary patch, since a diff is text.
fn text_of(bytes: &[u8]) -> Option<&str> {
    if bytes.contains(&0) {
        return None;
    }
    std::str::from_utf8(bytes).ok()
}

fn shifted(operation: DiffOp, by: usize) -> DiffOp {
    match operation {
        DiffOp::Equal {
            old_index,
            new_index,
            len,
        } => DiffOp::Equal {
            old_index: old_index + by,
            new_index: new_index + by,
            len,
        },
        DiffOp::Delete {
            old_index,
            old_len,
            new_index,
        } => DiffOp::Delete {
            old_index: old_index + by,
            old_len,
            new_index: new_index + by,
        },
        DiffOp::Insert {
            old_index,
            new_index,
            new_len,
        } => DiffOp::Insert {
            old_index: old_index + by,
            new_index: new_index + by,
            new_len,
        },
        DiffOp::Replace {
            old_index,
            old_len,
            new_index,
            new_len,
        } => DiffOp::Replace {
            old_index: old_index + by,
            old_len,
            new_index: new_index + by,
            new_len,
        },
    }
}

/// Lines count from one; an empty range is placed behind the line before it.
fn place(range: &std::ops::Range<usize>) -> String {
    match range.len() {
        0 => format!("{},0", range.start),
        1 => format!("{}", range.start + 1),
        length => format!("{},{length}", range.start + 1),
    }
}

fn joined(left: ContentChange, right: ContentChange) -> ContentChange {
    use ContentChange::{Binary, None, Omitted, Text};
    match (left, right) {
        (Omitted, _) | (_, Omitted) => Omitted,
        (Binary, _) | (_, Binary) => Binary,
        (None, other) | (other, None) => other,
        (
            Text {
                insertions,
                deletions,
            },
            Text {
                insertions: more_insertions,
                deletions: more_deletions,
            },
        ) => Text {
            insertions: insertions + more_insertions,
            deletions: deletions + more_deletions,
        },
    }
}
