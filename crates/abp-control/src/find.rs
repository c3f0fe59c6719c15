//! Finding a run by what a person types.

use std::path::Path;

use abp_error::{AbpError, ErrorCode};
use abp_store::{RunFilter, RunRecord, Store, path_text};
use uuid::Uuid;

/// How many runs are searched for a prefix.
const SEARCHED: u32 = 10_000;

/// The runs that are looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunScope {
    /// Runs whose project is this directory or contains it, as stores write paths.
    Directory(String),
    /// The runs of all projects.
    All,
}

impl RunScope {
    /// The runs of the project that a directory belongs to; all runs where the directory is gone.
    #[must_use]
    pub fn of_directory(directory: &Path) -> Self {
        match directory.canonicalize() {
            Ok(canonical) => Self::Directory(path_text(&canonical)),
            Err(_) => Self::All,
        }
    }

    /// The runs, as a filter of the store.
    #[must_use]
    pub fn filter(&self) -> RunFilter {
        let directory = match self {
            Self::Directory(directory) => Some(directory.clone()),
            Self::All => None,
        };
        RunFilter {
            directory,
            ..RunFilter::default()
        }
    }
}

/// The run meant by an id, the beginning of one, or `last`. An id names a run of any project; `last` is
/// the newest of the scope.
///
/// # Errors
/// Fails where there is none, and where several are meant.
pub async fn find_run(store: &Store, text: &str, scope: &RunScope) -> Result<RunRecord, AbpError> {
    let unknown = || {
        let where_to_look = match scope {
            RunScope::Directory(_) if text == "last" => {
                "this project has no runs yet; `abp runs list --all` shows those of others"
            }
            _ => "`abp runs list --all` shows all runs",
        };
        let message = format!("no run is {text:?}; {where_to_look}");
        AbpError::new(ErrorCode::ValidationFailed, message)
    };
    if let Ok(run_id) = text.parse::<Uuid>() {
        return store.run(run_id).await?.ok_or_else(unknown);
    }
    if text == "last" {
        let mut newest = store.runs(&scope.filter(), 1).await?;
        return newest.pop().ok_or_else(unknown);
    }
    let mut runs = store.runs(&RunFilter::default(), SEARCHED).await?;
    runs.retain(|run| run.run_id.to_string().starts_with(&text.to_lowercase()));
    match runs.len() {
        0 => Err(unknown()),
        1 => runs.pop().ok_or_else(unknown),
        several => Err(AbpError::new(
            ErrorCode::ValidationFailed,
            format!("{several} runs begin with {text:?}; give more of the id"),
        )),
    }
}
