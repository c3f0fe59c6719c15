//! The findings of a walk, put together from all its threads.

use std::collections::HashSet;

use crate::Error;
use crate::crew::{ReaderResult, failed};
use crate::dir::Dir;
use crate::layers::LayerFindings;
use crate::left_out::{LeftOutList, Omissions};
use crate::manifest::{Entry, FileKind};
use crate::notes::Notes;
use crate::pack::{PackPosition, PackWriter};
use crate::prepared::split;
use crate::selection::Selection;
use crate::walk::WalkRules;

/// The findings of a walk.
#[derive(Debug)]
pub(crate) struct Walked {
    /// Entries, sorted, each with the place of its bytes in the packs.
    pub(crate) entries: Vec<(Entry, Option<PackPosition>)>,
    pub(crate) left_out: LeftOutList,
    /// The rules, with every `.gitignore` that was met.
    pub(crate) selection: Option<Selection>,
    pub(crate) packs: Vec<PackWriter>,
    /// For each hidden pattern, the names it left out.
    pub(crate) hidden: Vec<u64>,
    pub(crate) layers: LayerFindings,
}

impl Walked {
    /// Puts the findings of all threads together, and completes the copy where there is one.
    pub(crate) fn new(
        rules: WalkRules,
        read: Vec<ReaderResult>,
        copy: Option<&Dir>,
    ) -> Result<Self, Error> {
        let (mut entries, mut left_out, mut packs) = (Vec::new(), Vec::new(), Vec::new());
        let mut notes = Notes::default();
        let mut layers = LayerFindings::default();
        for (found, pack) in read {
            entries.extend(found.entries);
            left_out.push(found.left_out);
            notes.absorb(found.notes);
            layers.absorb(found.layers);
            packs.extend(pack);
        }
        entries.sort_unstable_by(|(left, _), (right, _)| left.path_bytes().cmp(right.path_bytes()));
        let mut left_out = Omissions::merged(left_out);
        for (path, reason) in notes.into_list() {
            left_out.add(&path, reason);
        }
        let mut walked = Self {
            entries,
            left_out,
            selection: rules.selection,
            packs,
            hidden: rules.hidden,
            layers,
        };
        if walked
            .selection
            .as_ref()
            .is_some_and(Selection::has_includes)
        {
            walked.leave_empty_directories(copy)?;
        }
        if let Some(copy) = copy {
            walked.set_directory_modes(copy)?;
        }
        Ok(walked)
    }

    /// Takes out directories that were only entered because an include pattern might match beneath
    /// them.
    fn leave_empty_directories(&mut self, copy: Option<&Dir>) -> Result<(), Error> {
        let (mut kept, mut needed) = (Vec::new(), HashSet::new());
        for (entry, place) in std::mem::take(&mut self.entries).into_iter().rev() {
            let path = entry.path_bytes();
            if entry.kind() != FileKind::Directory || needed.contains(path) {
                needed.insert(split(path).0.to_vec());
                kept.push((entry, place));
            } else if let Some(copy) = copy {
                copy.open_parent(path)
                    .and_then(|(parent, name)| parent.remove_dir(name))
                    .map_err(|error| failed("copy", path, error))?;
            }
        }
        kept.reverse();
        self.entries = kept;
        Ok(())
    }

    /// Gives the copied directories the modes of the source, now that their content is complete;
    /// the deepest first, as one that may not be searched closes the way.
    fn set_directory_modes(&self, copy: &Dir) -> Result<(), Error> {
        for (entry, _) in self.entries.iter().rev() {
            if entry.kind() == FileKind::Directory {
                copy.open_dir(entry.path_bytes())
                    .and_then(|dir| dir.set_mode(entry.mode()))
                    .map_err(|error| failed("copy", entry.path_bytes(), error))?;
            }
        }
        Ok(())
    }
}
