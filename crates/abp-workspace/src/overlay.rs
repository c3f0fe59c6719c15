//! Stages that show the source instead of copying it.
//!
//! [`OverlayStage::prepare`] walks the source once without reading a file and writes the mask. The overlay
//! itself is mounted by the sandbox of the run, out of the directories that its [`Overlay`] names; the
//! host never sees it. After the run [`OverlayStage::compare`] reads the top layer and makes of it the two
//! manifests that a copy has:
//!
//! ```text
//! source   a, b, d/x      top layer   a (new content), b (whiteout), c
//! before   a (hashed now, from the source), b (the same), d/x
//! after    a (hashed), c (hashed), d/x
//! ```
//!
//! The source is live, so it is walked a second time. A file whose stamp moved is not what the run
//! started on: where the run did not touch it, it is named; where the run did, its content at the start is
//! unknown, and the change is reported as such and never applied.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use abp_glob::{GlobList, named_path};
use abp_sandbox::Overlay;
use rustix::io::Errno;

use crate::Error;
use crate::change_set::ancestors;
use crate::crew::{Purpose, failed};
use crate::dir::{Dir, FileId, path_of};
use crate::ingest::{BUFFER_BYTES, Outputs, Stopped, ingest};
use crate::layers::{FileStamp, LayerFindings};
use crate::left_out::LeftOutList;
use crate::limits::{Budget, StageLimits};
use crate::manifest::{Entry, FileKind, Manifest, SpecialKind};
use crate::mask::{MAX_MASKED, has_parent, topmost, write_mask};
use crate::pack::{PackPosition, PackWriter};
use crate::placeholder::{Placeholder, choose, make_in_mask};
use crate::prepared::{Baseline, bytes_of, split};
use crate::progress::StageProgress;
use crate::quote::display_path;
use crate::selection::Selection;
use crate::stage::{MASK, Stage, TREE, WORK};
use crate::walk::{REPOSITORY, STATE, StateDir, Walker};

/// The most paths of a live source that are named; the number of all is told.
const MAX_NAMED: usize = 20;

/// A stage over a live source.
#[derive(Debug)]
pub(crate) struct OverlayStage {
    pub(crate) mount: Overlay,
    pub(crate) source: Dir,
    pub(crate) mask: Dir,
    stages: FileId,
    /// The files of the start.
    stamps: HashMap<Vec<u8>, FileStamp>,
    hidden_rules: GlobList,
    /// The names that the policy hid at the start.
    hidden: HashSet<Vec<u8>>,
    /// Ignored directories that the overlay shows all the same.
    pub(crate) lent: BTreeSet<Vec<u8>>,
}

/// A surveyed source.
pub(crate) struct Surveyed {
    pub(crate) overlay: OverlayStage,
    pub(crate) manifest: Manifest,
    pub(crate) selection: Selection,
    pub(crate) left_out: LeftOutList,
    pub(crate) hidden: Vec<u64>,
}

/// The two sides of a run on an overlay.
pub(crate) struct Compared {
    pub(crate) before: Baseline,
    pub(crate) after: Manifest,
    pub(crate) notes: Vec<String>,
}

/// The bounds of a survey.
pub(crate) struct SurveyLimits {
    pub(crate) limits: StageLimits,
    pub(crate) progress: Arc<StageProgress>,
    /// Names of ignored directories that are lent.
    pub(crate) lend: BTreeSet<String>,
    /// Names that must not be created.
    pub(crate) placeholders: Vec<Placeholder>,
}

impl OverlayStage {
    /// Surveys a source and writes the mask over it.
    ///
    /// # Errors
    /// [`Error::NoOverlay`] where only a copy can be made of the source.
    pub(crate) fn prepare(
        stage: &Stage,
        source: &Dir,
        source_path: &Path,
        selection: Selection,
        hidden: &GlobList,
        bounds: SurveyLimits,
    ) -> Result<Surveyed, Error> {
        if selection.has_includes() {
            let reason = "only included files belong to the workspace".to_owned();
            return Err(Error::NoOverlay { reason });
        }
        let stages = stage.stages_id()?;
        let budget = Budget::new(bounds.limits, 0, bounds.progress);
        let walked = Walker::new(source, StateDir::Own)
            .select(selection.clone())
            .skip(stages)
            .hide(hidden.clone())
            .lend(bounds.lend)
            .survey(Purpose::Survey, budget)?;
        let LayerFindings {
            stamps,
            lent,
            masked,
            hidden: hidden_names,
            dressed,
            ..
        } = walked.layers;
        let mut masked: BTreeSet<Vec<u8>> = masked.into_iter().collect();
        masked.extend(absent_names(source, hidden));
        let masked = topmost(&masked);
        if masked.len() > MAX_MASKED {
            let reason = format!(
                "{} names are left out, more than {MAX_MASKED}",
                masked.len()
            );
            return Err(Error::NoOverlay { reason });
        }
        stage.create_dir(WORK)?;
        let mask = stage.create_dir(MASK)?;
        let entries = walked.entries.into_iter().map(|(entry, _)| entry);
        let manifest = Manifest::of_overlay(entries.collect());
        let chosen = choose(&bounds.placeholders, &manifest);
        // The directories above them are shown as those of the source.
        let above = chosen.keys().map(|path| split(path).0.to_vec());
        let shown: Vec<Vec<u8>> = dressed
            .into_iter()
            .chain(above.filter(|path| !path.is_empty()))
            .collect();
        write_mask(&mask, source, &masked, &shown)
            .and_then(|()| make_in_mask(&mask, &masked, &chosen))
            .map_err(|error| no_mask(stage, error))?;
        let overlay = Self {
            mount: Overlay {
                target: stage.path.join(TREE),
                lower: vec![stage.path.join(MASK), source_path.to_owned()],
                upper: stage.path.join(TREE),
                work: stage.path.join(WORK),
            },
            source: source.open_dir(b".").map_err(|error| stage.failed(error))?,
            mask,
            stages,
            stamps,
            hidden_rules: hidden.clone(),
            hidden: hidden_names.into_iter().collect(),
            lent: lent.into_iter().collect(),
        };
        Ok(Surveyed {
            overlay,
            manifest,
            selection: walked.selection.unwrap_or(selection).frozen(),
            left_out: walked.left_out,
            hidden: walked.hidden,
        })
    }

    /// Compares the top layer with the source.
    pub(crate) fn compare(
        &self,
        upper: Walker<'_>,
        baseline: &Baseline,
        limits: StageLimits,
        pack: PackWriter,
    ) -> Result<Compared, Error> {
        let budget = Budget::new(limits, 0, Arc::default());
        let walked = upper.of_upper_layer().verify(budget)?;
        let top: HashMap<Vec<u8>, Entry> = walked
            .entries
            .into_iter()
            .map(|(entry, _)| (entry.path_bytes().to_vec(), entry))
            .collect();
        let removed = Removed::of(&top, walked.layers.whiteouts, walked.layers.opaque);
        let mut images = BeforeImages {
            overlay: self,
            pack,
            buffer: vec![0; BUFFER_BYTES],
            budget: Budget::new(UNLIMITED, u64::MAX, Arc::default()),
            lost: Vec::new(),
        };
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for entry in baseline.manifest.entries() {
            let is_removed = removed.contains(entry.path_bytes());
            let is_touched = is_removed || top.contains_key(entry.path_bytes());
            before.push(match entry.kind() {
                FileKind::File if is_touched => images.take(entry)?,
                _ => (entry.clone(), None),
            });
            if !is_touched {
                after.push(entry.clone());
            }
        }
        after.extend(top.into_values());
        let notes = self.notes(baseline, &images.lost)?;
        let pack = images.pack.finish().map_err(|source| Error::Scan {
            action: "keep",
            path: PathBuf::from("."),
            source,
        })?;
        let (entries, packed_at) = before.into_iter().unzip();
        Ok(Compared {
            before: Baseline {
                manifest: Manifest::of_overlay(entries),
                packed_at,
                packs: vec![pack],
                selection: baseline.selection.clone(),
            },
            after: Manifest::of_overlay(after),
            notes,
        })
    }

    /// Walks the source again, and tells what became different while the run saw it.
    fn notes(&self, baseline: &Baseline, lost: &[Vec<u8>]) -> Result<Vec<String>, Error> {
        let budget = Budget::new(UNLIMITED, 0, Arc::default());
        let now = Walker::new(&self.source, StateDir::Own)
            .select(baseline.selection.clone())
            .skip(self.stages)
            .hide(self.hidden_rules.clone())
            .survey(Purpose::SurveyAgain, budget)?
            .layers;
        let mut changed: BTreeSet<&[u8]> = BTreeSet::new();
        let is_same = |path: &[u8], stamp| self.stamps.get(path) == Some(stamp);
        let new = now
            .stamps
            .iter()
            .filter(|(path, stamp)| !is_same(path, stamp));
        changed.extend(new.map(|(path, _)| path.as_slice()));
        let gone = self
            .stamps
            .keys()
            .filter(|path| !now.stamps.contains_key(*path));
        changed.extend(gone.map(Vec::as_slice));
        let appeared = now
            .hidden
            .iter()
            .filter(|path| !self.hidden.contains(*path));
        let lists = [
            (
                "the source was changed during the run, which may have seen either content",
                changed.into_iter().collect::<Vec<_>>(),
            ),
            (
                "changed in the source and by the run, so that the content at the start is unknown; not applied",
                lost.iter().map(Vec::as_slice).collect(),
            ),
            (
                "matches deny_read, appeared in the source during the run and could be read there",
                appeared.map(Vec::as_slice).collect(),
            ),
        ];
        let notes = lists.into_iter().filter(|(_, paths)| !paths.is_empty());
        Ok(notes.map(|(note, paths)| listed(note, &paths)).collect())
    }
}

const UNLIMITED: StageLimits = StageLimits {
    max_files: u64::MAX,
    max_bytes: u64::MAX,
    max_depth: u32::MAX,
};

/// Names that a rule of the policy gives in full, and the repository and state of the root: they are masked
/// even where they are not there yet, as they may appear in the live source.
fn absent_names(source: &Dir, hidden: &GlobList) -> Vec<Vec<u8>> {
    let named = hidden
        .patterns()
        .iter()
        .filter_map(|pattern| named_path(pattern));
    let named = named.map(|path| bytes_of(Path::new(&path)).to_vec());
    let own = [REPOSITORY, STATE].map(<[u8]>::to_vec);
    let names = named.chain(own).filter(|path| !path.is_empty());
    names.filter(|path| has_parent(source, path)).collect()
}

fn listed(note: &str, paths: &[&[u8]]) -> String {
    let shown = paths
        .iter()
        .take(MAX_NAMED)
        .map(|path| display_path(path_of(path)));
    let mut shown: Vec<String> = shown.collect();
    if paths.len() > MAX_NAMED {
        shown.push(format!("and {} more", paths.len() - MAX_NAMED));
    }
    format!("{note}: {}", shown.join(", "))
}

fn no_mask(stage: &Stage, error: Errno) -> Error {
    match error {
        Errno::NOSPC | Errno::DQUOT => stage.failed(error),
        // A file system without whiteouts, or a source that changed meanwhile.
        error => Error::NoOverlay {
            reason: format!("names cannot be masked: {error}"),
        },
    }
}

/// The names of the source that the top layer takes away.
struct Removed {
    /// Removed with everything beneath them.
    whole: HashSet<Vec<u8>>,
    /// Replaced by a directory or another file: only names beneath them are removed.
    beneath: HashSet<Vec<u8>>,
}

impl Removed {
    fn of(top: &HashMap<Vec<u8>, Entry>, whiteouts: Vec<Vec<u8>>, opaque: Vec<Vec<u8>>) -> Self {
        let others = top.values().filter(|entry| !entry.is_directory());
        let others = others.map(|entry| entry.path_bytes().to_vec());
        Self {
            whole: whiteouts.into_iter().collect(),
            beneath: opaque.into_iter().chain(others).collect(),
        }
    }

    fn contains(&self, path: &[u8]) -> bool {
        let is_covered = |above: &[u8]| self.whole.contains(above) || self.beneath.contains(above);
        self.whole.contains(path) || ancestors(path).any(is_covered)
    }
}

/// Reads the content that touched files had at the start.
struct BeforeImages<'a> {
    overlay: &'a OverlayStage,
    pack: PackWriter,
    buffer: Vec<u8>,
    budget: Budget,
    /// Files whose content at the start is unknown.
    lost: Vec<Vec<u8>>,
}

impl BeforeImages<'_> {
    fn take(&mut self, entry: &Entry) -> Result<(Entry, Option<PackPosition>), Error> {
        let path = entry.path_bytes();
        let stamp = self.overlay.stamps.get(path);
        let opened = self.overlay.source.open_parent(path);
        let opened = opened.and_then(|(dir, name)| dir.open_file(name));
        let (file, stat) = match opened {
            Ok(opened) => opened,
            Err(error) if crate::crew::is_exhausted(error) => {
                return Err(failed("open", path, error));
            }
            Err(_) => return Ok(self.lose(path)),
        };
        let is_same = |stat| stamp == Some(&FileStamp::of(stat));
        if !is_same(&stat) {
            return Ok(self.lose(path));
        }
        let outputs = Outputs {
            copy: None,
            pack: Some(&mut self.pack),
        };
        let read = ingest(&file, &stat, outputs, &self.budget, &mut self.buffer);
        let ingested = match read {
            Ok(ingested) => ingested,
            Err(Stopped::Unreadable(_)) => return Ok(self.lose(path)),
            Err(Stopped::Io(source)) => return Err(scan_error(path, source)),
            Err(Stopped::Exceeded(exceeded)) => {
                return Err(scan_error(path, io::Error::other(exceeded.limit)));
            }
        };
        // It may have been changed while it was read.
        let stat = rustix::fs::fstat(&file).map_err(|error| failed("read", path, error))?;
        if !is_same(&stat) {
            return Ok(self.lose(path));
        }
        let known = Entry::file(path, entry.mode(), ingested.size, ingested.sha256);
        Ok((known, ingested.packed_at))
    }

    fn lose(&mut self, path: &[u8]) -> (Entry, Option<PackPosition>) {
        self.lost.push(path.to_vec());
        (Entry::special(path, SpecialKind::ChangedInSource), None)
    }
}

fn scan_error(path: &[u8], source: io::Error) -> Error {
    Error::Scan {
        action: "read",
        path: path_of(path).to_owned(),
        source,
    }
}
