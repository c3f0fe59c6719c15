//! The operator's key: the one that may do everything.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use abp_config::Config;
use abp_error::{AbpError, ErrorCode};
use rustix::fs::OFlags;
use secrecy::{ExposeSecret as _, SecretString};

/// How much of a key file is read.
const MAX_KEY_FILE: u64 = 4096;

/// The operator's key: read from its file, which is made, for its owner alone, where there is none.
///
/// # Errors
/// Fails where the file cannot be made or read, and where others than its owner can read it.
pub fn operator_key(file: &Path) -> Result<SecretString, AbpError> {
    match create_key(file) {
        Ok(key) => Ok(key),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => read_key(file),
        Err(error) => Err(key_problem(file, &error)),
    }
}

/// Where the operator's key is when nothing else is said.
#[must_use]
pub fn operator_key_file(config: &Config) -> PathBuf {
    config.state_dir.join("gateway.key")
}

/// A new key.
///
/// # Errors
/// Fails where the system has no randomness.
pub fn new_key() -> Result<SecretString, AbpError> {
    let mut random = [0_u8; 24];
    getrandom::fill(&mut random)
        .map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))?;
    let text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(SecretString::from(format!("abp_{text}")))
}

fn create_key(file: &Path) -> std::io::Result<SecretString> {
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let mut made = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)?;
    let key = new_key().map_err(|error| std::io::Error::other(error.to_string()))?;
    made.write_all(key.expose_secret().as_bytes())?;
    made.write_all(b"\n")?;
    made.sync_all()?;
    Ok(key)
}

fn read_key(file: &Path) -> Result<SecretString, AbpError> {
    let problem = |problem: &dyn std::fmt::Display| key_problem(file, problem);
    // Everything is asked of the file that was opened: its name may mean another one by then.
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
        .open(file)
        .map_err(|error| problem(&error))?;
    let known = opened.metadata().map_err(|error| problem(&error))?;
    if !known.is_file() {
        return Err(problem(&"it is not a plain file"));
    }
    if known.uid() != rustix::process::geteuid().as_raw() {
        return Err(problem(&"somebody else owns it"));
    }
    if known.mode() & 0o077 != 0 {
        return Err(problem(&"others than its owner can read it; chmod 600"));
    }
    let mut text = String::new();
    let read = opened.take(MAX_KEY_FILE).read_to_string(&mut text);
    read.map_err(|error| problem(&error))?;
    let key = text.trim();
    if key.len() < 16 {
        return Err(problem(&"it has fewer than 16 characters"));
    }
    Ok(SecretString::from(key))
}

fn key_problem(file: &Path, problem: &dyn std::fmt::Display) -> AbpError {
    let message = format!("the key file {}: {problem}", file.display());
    AbpError::new(ErrorCode::ConfigInvalid, message)
}
