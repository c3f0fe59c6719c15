//! Finding a run by what a person types.

use abp_error::{AbpError, ErrorCode};
use abp_store::{RunFilter, RunRecord, Store};
use uuid::Uuid;

/// How many runs are searched for a prefix.
const SEARCHED: u32 = 10_000;

/// The run meant by an id, the beginning of one, or `last`.
///
/// # Errors
/// Fails where there is none, and where several are meant.
pub async fn find_run(store: &Store, text: &str) -> Result<RunRecord, AbpError> {
    let unknown = || {
        let message = format!("no run is {text:?}; `abp runs list` shows them");
        AbpError::new(ErrorCode::ValidationFailed, message)
    };
    if let Ok(run_id) = text.parse::<Uuid>() {
        return store.run(run_id).await?.ok_or_else(unknown);
    }
    let mut runs = store.runs(&RunFilter::default(), SEARCHED).await?;
    if text == "last" {
        runs.truncate(1);
    } else {
        runs.retain(|run| run.run_id.to_string().starts_with(&text.to_lowercase()));
    }
    match runs.len() {
        0 => Err(unknown()),
        1 => runs.pop().ok_or_else(unknown),
        several => Err(AbpError::new(
            ErrorCode::ValidationFailed,
            format!("{several} runs begin with {text:?}; give more of the id"),
        )),
    }
}
