//! `abp backup` and `abp restore`: a copy of the state directory, and putting it back.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use abp_config::load;
use abp_core::Timestamp;
use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_store::{BackupManifest, check_backup, restore_backup, write_backup};
use serde_json::json;

use crate::args::{BackupArgs, GlobalArgs, RestoreArgs};
use crate::output::Output;
use crate::session::{block_on, sources};
use crate::text::size;

pub(crate) fn run(
    args: &BackupArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let manifest = match args.check {
        true => block_on(async { Ok(check_backup(&args.directory).await?) }),
        false => {
            let state_dir = directory_with_store(global)?;
            waiting(output, "copying and verifying the store …");
            block_on(async { Ok(write_backup(&state_dir, &args.directory, now()).await?) })
        }
    };
    done(output);
    let label = if args.check { "verified" } else { "backup" };
    tell(label, &args.directory, &manifest?, output)
}

pub(crate) fn restore(
    args: &RestoreArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let state_dir = directory_with_store(global)?;
    waiting(output, "verifying the backup …");
    let manifest = block_on(async { Ok(restore_backup(&args.directory, &state_dir).await?) });
    done(output);
    tell("restored", &state_dir, &manifest?, output)
}

/// The state directory, where the store is a file in it.
fn directory_with_store(global: &GlobalArgs) -> Result<PathBuf, AbpError> {
    let config = load(&sources(global))?.config;
    if config.store.url.is_none() {
        return Ok(config.state_dir);
    }
    let message = "the store is on Postgres, and these commands copy one in a file: use pg_dump and pg_restore, \
        and keep the directory of `store.keys`";
    Err(AbpError::new(ErrorCode::ValidationFailed, message))
}

fn tell(
    label: &str,
    directory: &Path,
    manifest: &BackupManifest,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let is_secret = |name: &&String| manifest.files.get(*name).is_some_and(|file| file.is_secret);
    let secrets: Vec<&String> = manifest.files.keys().filter(is_secret).collect();
    if output.is_json() {
        output.json(&json!({
            "directory": directory,
            "created_at": manifest.created_at,
            "files": manifest.files.len(),
            "bytes": manifest.bytes(),
            "secrets": secrets,
            "origin": manifest.origin,
            "log_size": manifest.log_size,
            "checkpoint": manifest.checkpoint,
        }))?;
        return Ok(ExitStatus::Success);
    }
    output.field(label, &directory.display().to_string());
    output.field("made at", &manifest.created_at.to_string());
    let files = format!("{} files, {}", manifest.files.len(), size(manifest.bytes()));
    output.field("holds", &files);
    output.field("log", &format!("{} entries, verified", manifest.log_size));
    let names: Vec<&str> = secrets.iter().map(|name| name.as_str()).collect();
    output.field("secrets", &names.join(", "));
    Ok(ExitStatus::Success)
}

fn waiting(output: &mut Output, what: &str) {
    if output.is_watched() && !output.is_json() {
        output.status(what);
    }
}

fn done(output: &mut Output) {
    if output.is_watched() && !output.is_json() {
        output.clear_status();
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let millis = since.unwrap_or_default().as_millis();
    Timestamp::from_unix_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}
