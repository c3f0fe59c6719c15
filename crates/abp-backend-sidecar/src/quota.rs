//! A limit on the size of a workspace.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use abp_error::{AbpError, ErrorCode};

/// How long to wait between two measurements, at least.
const PAUSE: Duration = Duration::from_secs(1);
/// Measuring may take one part in so many of the time.
const SHARE: u32 = 20;
/// The size of the blocks that files are counted in.
const BLOCK: u64 = 512;

/// Waits until the files below a directory take more than `limit` bytes; for ever where there is none.
pub async fn outgrown(root: &Path, limit: Option<u64>) -> AbpError {
    let Some(limit) = limit else {
        return std::future::pending().await;
    };
    loop {
        let started = Instant::now();
        let root = root.to_owned();
        let measured = tokio::task::spawn_blocking(move || is_larger(root, limit)).await;
        if measured.unwrap_or(false) {
            let message = format!("the workspace has more than the {limit} bytes it may have");
            return AbpError::new(ErrorCode::ExecutionWorkspaceError, message);
        }
        tokio::time::sleep(PAUSE.max(started.elapsed() * SHARE)).await;
    }
}

/// Whether the files below a directory take more than `limit` bytes of the disk. Links are not
/// followed; what goes away meanwhile counts for nothing.
fn is_larger(root: PathBuf, limit: u64) -> bool {
    let mut total = 0_u64;
    let mut directories = vec![root];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(known) = entry.metadata() else {
                continue;
            };
            total = total.saturating_add(known.blocks() * BLOCK);
            if total > limit {
                return true;
            }
            if known.is_dir() {
                directories.push(entry.path());
            }
        }
    }
    false
}
