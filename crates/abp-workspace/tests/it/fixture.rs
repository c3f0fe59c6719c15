//! A source, a place for stages, and small ways to build and compare trees.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use abp_core::{PolicyProfile, WorkspaceMode, WorkspaceSpec};
use abp_glob::GlobList;
use abp_policy::PolicyEngine;
use abp_workspace::{
    Application, ApplyJournal, ApplyPhase, BeforeImage, ChangeSet, Changes, Error, GitLimits,
    PreparedWorkspace, WorkspaceManager, WriteKind,
};
use tempfile::TempDir;
use uuid::Uuid;

pub(crate) struct Fixture {
    temp: TempDir,
    pub(crate) manager: WorkspaceManager,
    pub(crate) spec: WorkspaceSpec,
    pub(crate) hidden: GlobList,
}

impl Fixture {
    /// A source with files (`name`, content) and links (`name`, `-> target`).
    pub(crate) fn new(entries: &[(&str, &str)]) -> Self {
        Self::within(&std::env::temp_dir(), entries)
    }

    /// As [`Self::new`], in memory where that is possible, so that a disk does not slow it down.
    pub(crate) fn in_memory(entries: &[(&str, &str)]) -> Self {
        let memory = Path::new("/dev/shm");
        if tempfile::tempdir_in(memory).is_ok() {
            Self::within(memory, entries)
        } else {
            Self::new(entries)
        }
    }

    fn within(place: &Path, entries: &[(&str, &str)]) -> Self {
        let temp = tempfile::tempdir_in(place).expect("a temporary directory");
        let source = temp.path().join("source");
        fs::create_dir(&source).expect("source");
        build(&source, entries);
        Self {
            manager: WorkspaceManager::new(temp.path().join("stages")).without_git_baseline(),
            spec: WorkspaceSpec {
                root: source.to_str().expect("utf-8").to_owned(),
                ..WorkspaceSpec::default()
            },
            hidden: globs(&[]),
            temp,
        }
    }

    /// With stages that start as repositories.
    pub(crate) fn with_git(mut self) -> Self {
        self.manager = self.manager.with_git_limits(GitLimits::default());
        self
    }

    pub(crate) fn in_place(mut self) -> Self {
        self.spec.mode = WorkspaceMode::PassThrough;
        self
    }

    pub(crate) fn source(&self) -> PathBuf {
        self.temp.path().join("source")
    }

    /// A place beside the source that no run may reach.
    pub(crate) fn outside(&self) -> PathBuf {
        self.temp.path().join("outside")
    }

    /// The stages that exist.
    pub(crate) fn stages(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.stages_dir()).into_iter().flatten();
        let paths = entries.map(|entry| entry.expect("entry").path());
        let is_trash = |path: &PathBuf| path.ends_with(".trash");
        paths.filter(|path| !is_trash(path)).collect()
    }

    /// The names in the trash.
    pub(crate) fn trash(&self) -> usize {
        let trash = fs::read_dir(self.stages_dir().join(".trash"));
        trash.into_iter().flatten().count()
    }

    pub(crate) fn stages_dir(&self) -> PathBuf {
        self.temp.path().join("stages")
    }

    pub(crate) fn try_prepare(&self) -> Result<PreparedWorkspace, Error> {
        self.prepare_run(Uuid::new_v4())
    }

    pub(crate) fn prepare_run(&self, run_id: Uuid) -> Result<PreparedWorkspace, Error> {
        self.manager.prepare(&self.spec, run_id, &self.hidden)
    }

    pub(crate) fn prepare(&self) -> PreparedWorkspace {
        self.try_prepare().expect("workspace")
    }
}

pub(crate) fn globs(patterns: &[&str]) -> GlobList {
    let patterns: Vec<String> = patterns.iter().map(|text| (*text).to_owned()).collect();
    GlobList::for_paths(&patterns).expect("patterns")
}

/// The change set as a later process gets it: through its document.
pub(crate) fn stored_change_set(
    workspace: &PreparedWorkspace,
    changes: &Changes,
) -> Result<(ChangeSet, Vec<BeforeImage>), Error> {
    let (set, images) = workspace.change_set(changes)?;
    let read = ChangeSet::from_document(&set.to_document()?)?;
    assert_eq!(read, set, "a change set survives its document");
    Ok((set, images))
}

/// Finds the image of a hash.
pub(crate) fn image_of(images: &[BeforeImage]) -> impl Fn(&[u8; 32]) -> Option<Vec<u8>> {
    |hash| {
        let found = images.iter().find(|image| image.sha256 == *hash)?;
        Some(found.bytes.clone())
    }
}

/// Applies changes the way a caller does: step by step, with a journal that survives its document.
pub(crate) fn apply_changes(
    workspace: &PreparedWorkspace,
    changes: &Changes,
    selected: &[&str],
) -> Result<Vec<PathBuf>, Error> {
    let (set, images) = stored_change_set(workspace, changes)?;
    apply_set(workspace.root(), &set, selected, &images)
}

pub(crate) fn apply_set(
    tree: &Path,
    set: &ChangeSet,
    selected: &[&str],
    images: &[BeforeImage],
) -> Result<Vec<PathBuf>, Error> {
    let selected: Vec<PathBuf> = selected.iter().map(PathBuf::from).collect();
    let application = Application::begin(tree, set, &selected, image_of(images))?;
    check_journal(application.journal(), ApplyPhase::Preparing);
    let application = application.stage_contents()?;
    check_journal(application.journal(), ApplyPhase::Committing);
    let application = application.commit()?;
    check_journal(application.journal(), ApplyPhase::Finished);
    let paths = application.paths().to_vec();
    application.clean_up()?;
    Ok(paths)
}

fn check_journal(journal: &ApplyJournal, phase: ApplyPhase) {
    let document = journal.to_document().expect("document");
    let read = ApplyJournal::from_document(&document).expect("journal");
    assert_eq!((&read, read.phase()), (journal, phase));
}

pub(crate) fn build(root: &Path, entries: &[(&str, &str)]) {
    for (name, content) in entries {
        let path = root.join(name);
        fs::create_dir_all(path.parent().expect("parent")).expect("directories");
        match content.strip_prefix("-> ") {
            Some(target) => symlink(target, &path).expect("link"),
            None if name.ends_with('/') => fs::create_dir_all(&path).expect("directory"),
            None => fs::write(&path, content).expect("file"),
        }
    }
}

pub(crate) fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

pub(crate) fn fifo(path: &Path) {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let at = rustix::fs::CWD;
    rustix::fs::mknodat(at, path, rustix::fs::FileType::Fifo, mode, 0).expect("fifo");
}

/// Everything in a tree, as text: `path` to `kind mode content`.
pub(crate) fn snapshot(root: &Path) -> BTreeMap<Vec<u8>, String> {
    fn visit(root: &Path, dir: &Path, found: &mut BTreeMap<Vec<u8>, String>) {
        for entry in fs::read_dir(dir).expect("directory") {
            let path = entry.expect("entry").path();
            let stat = fs::symlink_metadata(&path).expect("metadata");
            let mode = stat.mode() & 0o7777;
            let kind = stat.file_type();
            let shown = if kind.is_symlink() {
                format!("link {}", fs::read_link(&path).expect("link").display())
            } else if kind.is_dir() {
                visit(root, &path, found);
                format!("dir {mode:o}")
            } else if kind.is_fifo() {
                "fifo".to_owned()
            } else {
                let bytes = fs::read(&path).expect("content");
                format!("file {mode:o} {}", bytes.escape_ascii())
            };
            let relative = path.strip_prefix(root).expect("beneath").as_os_str();
            found.insert(relative.as_bytes().to_vec(), shown);
        }
    }
    let mut found = BTreeMap::new();
    visit(root, root, &mut found);
    found
}

pub(crate) fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Writes the way a tool does: resolved, approved, written.
pub(crate) fn tool_write(
    workspace: &PreparedWorkspace,
    path: &str,
    content: &str,
) -> Result<WriteKind, Error> {
    let engine = PolicyEngine::new(&PolicyProfile::default()).expect("policy");
    let resolved = workspace.resolve(path)?;
    let approved = engine.approve_write(&resolved).expect("approved");
    workspace.write(&approved, content.as_bytes())
}

/// Reads the way a tool does.
pub(crate) fn tool_read(
    workspace: &PreparedWorkspace,
    path: &str,
    max_bytes: u64,
) -> Result<Vec<u8>, Error> {
    let engine = PolicyEngine::new(&PolicyProfile::default()).expect("policy");
    let resolved = workspace.resolve(path)?;
    let approved = engine.approve_read(&resolved).expect("approved");
    workspace.read(&approved, max_bytes)
}

/// A small file system of its own.
pub(crate) struct Mount(PathBuf);

impl Mount {
    pub(crate) fn new(path: &Path, options: &str) -> Option<Self> {
        fs::create_dir_all(path).expect("directory");
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(path);
        let output = mount.output().ok()?;
        output.status.success().then(|| Self(path.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(&self.0).output());
    }
}
