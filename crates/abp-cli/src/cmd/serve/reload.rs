//! Taking over changed settings while the server goes on.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use abp_config::{Loaded, Sources, load, render};
use abp_control::{GatewayReloader, ReloadReport};
use abp_error::{AbpError, ErrorCode};
use tokio::signal::unix::{SignalKind, signal};

use crate::output::Output;

/// The interval at which files are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// The state of a file, as far as a change shows.
type FileStamp = Option<(SystemTime, u64)>;

/// Follows SIGHUP and, where asked to, changes of the files that settings come from.
///
/// # Errors
/// Fails where signals cannot be heard.
pub(super) fn follow(
    mut reloader: GatewayReloader,
    sources: Sources,
    watch: bool,
) -> Result<impl Future<Output = ()>, AbpError> {
    let mut hangups = signal(SignalKind::hangup()).map_err(|error| {
        AbpError::new(ErrorCode::Internal, "signals cannot be heard").with_source(error)
    })?;
    Ok(async move {
        let mut files = config_files(&sources);
        files.extend(load(&sources).iter().flat_map(key_files));
        let mut known = stamps(&files);
        loop {
            let is_told = match watch {
                true => {
                    let looked = tokio::time::timeout(LOOK, hangups.recv());
                    looked.await.is_ok()
                }
                false => hangups.recv().await.is_some(),
            };
            let now = stamps(&files);
            if !is_told && now == known {
                continue;
            }
            let loaded = load(&sources);
            tell(&reload(&mut reloader, &loaded));
            files = config_files(&sources);
            files.extend(loaded.iter().flat_map(key_files));
            known = stamps(&files);
        }
    })
}

/// The message about a reload: where it failed, with file and line.
fn reload(
    reloader: &mut GatewayReloader,
    loaded: &Result<Loaded, abp_config::ConfigErrors>,
) -> Result<ReloadReport, String> {
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(errors) => return Err(render(&errors.diagnostics, false)),
    };
    let reloaded = reloader.reload(&loaded.config);
    reloaded.map_err(|error| error.message().to_owned())
}

fn tell(reloaded: &Result<ReloadReport, String>) {
    let mut output = Output::new(false);
    match reloaded {
        Err(problem) => {
            output.diagnostics(problem);
            output.warn("the settings were not taken over; the server goes on with those it has");
        }
        Ok(report) => {
            let parts = [
                ("added", &report.added),
                ("changed", &report.changed),
                ("removed", &report.removed),
            ];
            let parts: Vec<String> = parts
                .into_iter()
                .filter(|(_, names)| !names.is_empty())
                .map(|(word, names)| format!("{word} {}", names.join(", ")))
                .collect();
            let changes = match parts.is_empty() {
                true => "no upstream changed".to_owned(),
                false => parts.join("; "),
            };
            output.note(&format!("settings taken over: {changes}"));
            if !report.need_restart.is_empty() {
                let names = report.need_restart.join(", ");
                output.warn(&format!("these settings need another start: {names}"));
            }
        }
    }
}

fn config_files(sources: &Sources) -> Vec<PathBuf> {
    let files = [&sources.user, &sources.project, &sources.operator];
    files.into_iter().flatten().cloned().collect()
}

/// The files that hold keys of upstreams: a vendor's key changes, too.
fn key_files(loaded: &Loaded) -> Vec<PathBuf> {
    let upstreams = loaded.config.upstreams.values();
    let files = upstreams.filter_map(|upstream| upstream.api_key_file.clone());
    files.collect()
}

fn stamps(files: &[PathBuf]) -> Vec<FileStamp> {
    let stamp = |file: &PathBuf| {
        let known = std::fs::metadata(file).ok()?;
        Some((known.modified().ok()?, known.len()))
    };
    files.iter().map(stamp).collect()
}
