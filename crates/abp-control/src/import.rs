//! Takes the receipts of an earlier version's state directory over, on request.
//!
//! Such a directory lies in a working directory, so it may have come with a clone and be anybody's. Nothing
//! of it is believed: receipts are checked for consistency with themselves, which a forgery can have too,
//! and copied aside as [`LegacyImport::destination`]. Keys, stores, stages and configuration stay where they
//! are. Every name below the directory is opened through its handle, and links are not followed.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use abp_config::LEGACY_STATE_DIR;
use abp_error::{AbpError, ErrorCode};
use abp_receipt::{LoggedReceipt, ReceiptFile, ReceiptVerdict};
use rustix::fs::{Dir, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::ControlPlane;

/// The most receipts that are taken over at once.
const MAX_RECEIPTS: usize = 10_000;
/// The most names of a directory that are read.
const MAX_NAMES: usize = 100_000;
/// The largest receipt that is taken over, in bytes.
const MAX_RECEIPT_BYTES: u64 = 64 * 1024 * 1024;
/// The longest name of a receipt, in bytes.
const MAX_NAME_BYTES: usize = 128;
/// How many names of things that are not taken over are listed.
const MAX_IGNORED: usize = 100;
/// How many digits of the digest name the copies of one directory.
const DIGEST_DIGITS: usize = 12;
/// Where the receipts of the directory are.
const RECEIPTS: &str = "receipts";
const GITIGNORE: &str = ".gitignore";

/// The outcome of an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LegacyImport {
    /// The directory, without links.
    pub source: PathBuf,
    /// Where the copies of its receipts are.
    pub destination: PathBuf,
    /// Every receipt that was looked at, by name.
    pub receipts: Vec<ImportedReceipt>,
    /// How many receipts were not looked at because there are too many.
    pub left_out: usize,
    /// Names in the directory that were not taken over, the first hundred.
    pub ignored: Vec<String>,
    /// Whether a `.gitignore` was written that keeps the directory out of commits.
    pub wrote_gitignore: bool,
}

/// A receipt of the directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImportedReceipt {
    /// Its name in the directory.
    pub file: String,
    /// Whether it is consistent with itself. Nothing proves it.
    pub verdict: ImportVerdict,
    /// The run that it claims.
    pub run_id: Option<Uuid>,
    /// The reasons why it is wrong.
    pub problems: Vec<String>,
    /// Whether there is a copy. A file that could not be read has none.
    pub is_copied: bool,
}

/// The most that can be said of a receipt without a trusted log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ImportVerdict {
    /// Its own hashes hold, which any forgery can have.
    SelfConsistent,
    /// It is no receipt, was changed, or could not be read.
    Wrong,
}

impl ControlPlane {
    /// Copies the receipts of an earlier version's state directory below the state directory, and says of
    /// each whether it is consistent with itself.
    ///
    /// # Errors
    /// Fails where the directory cannot be read, is or contains the state directory, or a copy cannot be
    /// written.
    pub fn import_legacy(&self, directory: &Path) -> Result<LegacyImport, AbpError> {
        let state_dir = &self.config().state_dir;
        let unreadable = |error| refused("read", directory, error);
        // A link could lead the `.gitignore` into a directory that is not to be hidden. A slash at the end
        // would follow it.
        let named: PathBuf = directory.components().collect();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&named, flags, Mode::empty());
        let opened = opened.map_err(|error| unreadable(error.into()))?;
        let source = named.canonicalize().map_err(unreadable)?;
        if let Ok(state) = state_dir.canonicalize()
            && (state.starts_with(&source) || source.starts_with(&state))
        {
            let message = format!(
                "{} is in use as the state directory; name the {LEGACY_STATE_DIR} of an earlier version",
                source.display()
            );
            return Err(AbpError::new(ErrorCode::ConfigInvalid, message));
        }
        let destination = state_dir.join("imported").join(digest(&source));
        let ignored = names(&opened).map_err(unreadable)?;
        let ignored = ignored.into_iter();
        let ignored = ignored.filter(|name| ![RECEIPTS, GITIGNORE].contains(&name.as_str()));
        let (receipts, left_out) = copy_receipts(&opened, &source, &destination)?;
        Ok(LegacyImport {
            receipts,
            left_out,
            ignored: ignored.take(MAX_IGNORED).collect(),
            wrote_gitignore: ignore_in_git(&opened)
                .map_err(|error| refused("write", &source.join(GITIGNORE), error))?,
            source,
            destination,
        })
    }
}

/// The directory of an earlier version in a workspace, which nothing uses.
#[must_use]
pub fn legacy_state_dir(workspace: &Path) -> Option<PathBuf> {
    let path = workspace.join(LEGACY_STATE_DIR);
    path.symlink_metadata().is_ok().then_some(path)
}

/// Copies every receipt; the number of those that are too many comes second.
fn copy_receipts(
    directory: &OwnedFd,
    source: &Path,
    destination: &Path,
) -> Result<(Vec<ImportedReceipt>, usize), AbpError> {
    let path = source.join(RECEIPTS);
    let receipts = match open_beneath(directory, RECEIPTS, OFlags::DIRECTORY) {
        Ok(receipts) => receipts,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        Err(error) => return Err(refused("read", &path, error)),
    };
    let mut files = names(&receipts).map_err(|error| refused("read", &path, error))?;
    files.retain(|name| name.ends_with(".json"));
    let left_out = files.len().saturating_sub(MAX_RECEIPTS);
    files.truncate(MAX_RECEIPTS);
    if files.is_empty() {
        return Ok((Vec::new(), 0));
    }
    let copies = private_directory(destination).map_err(|error| unwritable(destination, error))?;
    let mut imported = Vec::new();
    for name in files {
        let read = match is_plain(&name) {
            true => read_receipt(&receipts, &name).map_err(|error| error.to_string()),
            false => Err("its name is not one of a receipt".to_owned()),
        };
        imported.push(match read {
            Ok(bytes) => {
                write_copy(&copies, &name, &bytes)
                    .map_err(|error| unwritable(&destination.join(&name), error))?;
                judged(name, &bytes)
            }
            Err(problem) => ImportedReceipt {
                file: name,
                verdict: ImportVerdict::Wrong,
                run_id: None,
                problems: vec![problem],
                is_copied: false,
            },
        });
    }
    Ok((imported, left_out))
}

/// A log or a key that came with the directory proves nothing, so neither is asked.
fn judged(file: String, bytes: &[u8]) -> ImportedReceipt {
    let verdict = match ReceiptFile::read(bytes) {
        Ok(receipt) => receipt.judge(None, LoggedReceipt::NoLog),
        Err(verdict) => verdict,
    };
    let run_id = verdict.run_id();
    let (verdict, problems) = match verdict {
        ReceiptVerdict::Proven { .. } | ReceiptVerdict::SelfConsistent { .. } => {
            (ImportVerdict::SelfConsistent, Vec::new())
        }
        ReceiptVerdict::Wrong { problems, .. } => (ImportVerdict::Wrong, problems),
    };
    let problems = problems.into_iter().map(|problem| problem.problem);
    ImportedReceipt {
        file,
        verdict,
        run_id,
        problems: problems.collect(),
        is_copied: true,
    }
}

fn read_receipt(receipts: &OwnedFd, name: &str) -> io::Result<Vec<u8>> {
    // A pipe must not be waited for.
    let file = File::from(open_beneath(receipts, name, OFlags::NONBLOCK)?);
    let known = file.metadata()?;
    if !known.is_file() {
        return Err(io::Error::other("it is not a plain file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_RECEIPT_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_RECEIPT_BYTES {
        let problem = format!("it is larger than {MAX_RECEIPT_BYTES} bytes");
        return Err(io::Error::other(problem));
    }
    Ok(bytes)
}

/// The copies replace those of an earlier import, each as a whole.
fn write_copy(copies: &OwnedFd, name: &str, bytes: &[u8]) -> io::Result<()> {
    let unfinished = format!(".{name}.{}", std::process::id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = rustix::fs::openat(copies, &unfinished, flags | OFlags::CLOEXEC, mode)?;
    let mut file = File::from(file);
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(rustix::fs::renameat(copies, &unfinished, copies, name)?)
}

/// Writes a `.gitignore` of everything where there is none; whether it did.
fn ignore_in_git(directory: &OwnedFd) -> io::Result<bool> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(directory, GITIGNORE, flags, Mode::from_raw_mode(0o644)) {
        Ok(file) => {
            File::from(file).write_all(b"*\n")?;
            Ok(true)
        }
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn private_directory(path: &Path) -> io::Result<OwnedFd> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens a name for reading; a link on the way is an error.
fn open_beneath(directory: &OwnedFd, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(
        directory,
        name,
        flags,
        Mode::empty(),
        resolve,
    )?)
}

/// The names in a directory, sorted.
fn names(directory: &OwnedFd) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory.as_fd())?.take(MAX_NAMES) {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Whether a name can be given to a copy: that of a file, and nothing that a terminal or a shell minds.
fn is_plain(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let begins_well = name.starts_with(|first: char| first.is_ascii_alphanumeric());
    begins_well && name.len() <= MAX_NAME_BYTES && name.bytes().all(allowed)
}

fn digest(path: &Path) -> String {
    let digest = Sha256::digest(path.as_os_str().as_encoded_bytes());
    let mut digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.truncate(DIGEST_DIGITS);
    digits
}

fn refused(verb: &str, path: &Path, error: io::Error) -> AbpError {
    let message = format!("cannot {verb} {}", path.display());
    AbpError::new(ErrorCode::ConfigInvalid, message).with_source(error)
}

fn unwritable(path: &Path, error: io::Error) -> AbpError {
    let message = format!("cannot write {}", path.display());
    AbpError::new(ErrorCode::ReceiptStoreFailed, message).with_source(error)
}
