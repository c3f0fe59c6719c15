//! Work on much, where no other request waits for it.
//!
//! A connection shares its thread with others. Reading or translating a body of many megabytes takes as long
//! as a thousand small exchanges, so it is done on a thread of its own.

use abp_error::{AbpError, ErrorCode};

/// The size from which a body counts as much.
const LARGE: usize = 256 * 1024;

pub(crate) fn is_large(body: &[u8]) -> bool {
    body.len() > LARGE
}

/// Does the work on another thread.
pub(crate) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, AbpError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))
}
