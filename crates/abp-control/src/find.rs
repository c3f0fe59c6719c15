//! Finding a run by what a person types.

use std::path::Path;

use abp_error::{AbpError, ErrorCode};
use abp_store::{RunFilter, RunRecord, Store, path_text};
use uuid::Uuid;

use crate::{ControlPlane, Principal};

/// How many runs are searched for a prefix.
const SEARCHED: u32 = 10_000;

/// How much of an id names a run: the time of its start, to the millisecond.
const SHORT_ID: usize = 13;

/// The runs that are looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunScope {
    /// Runs whose project is this directory or contains it, as stores write paths.
    Directory(String),
    /// The runs of one principal, of all projects.
    Principal(String),
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
        let mut filter = RunFilter::default();
        match self {
            Self::Directory(directory) => filter.directory = Some(directory.clone()),
            Self::Principal(principal) => filter.principal = Some(principal.clone()),
            Self::All => {}
        }
        filter
    }

    /// The runs that an id may name: those of any project, but of no other principal.
    fn nameable(&self) -> Self {
        match self {
            Self::Principal(_) => self.clone(),
            Self::Directory(_) | Self::All => Self::All,
        }
    }

    fn is_nameable(&self, run: &RunRecord) -> bool {
        match self {
            Self::Principal(principal) => run.principal.as_ref() == Some(principal),
            Self::Directory(_) | Self::All => true,
        }
    }
}

impl ControlPlane {
    /// The run of the principal meant by an id, the beginning of one, or `last`.
    ///
    /// # Errors
    /// Fails where there is none, and where several are meant.
    pub async fn find_run(&self, principal: &Principal, text: &str) -> Result<RunRecord, AbpError> {
        let scope = match principal.visible() {
            Some(id) => RunScope::Principal(id),
            None => RunScope::All,
        };
        find_run(self.store().await?, text, &scope).await
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
        let run = store.run(run_id).await?;
        return run.filter(|run| scope.is_nameable(run)).ok_or_else(unknown);
    }
    if text == "last" {
        let mut newest = store.runs(&scope.filter(), 1).await?;
        return newest.pop().ok_or_else(unknown);
    }
    let mut runs = store.runs(&scope.nameable().filter(), SEARCHED).await?;
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

/// A name of a run that [`find_run`] resolves from any directory: the beginning of its id, or all of it
/// where other runs begin alike.
///
/// # Errors
/// Fails where the store cannot be read.
pub async fn short_run_id(store: &Store, run_id: Uuid) -> Result<String, AbpError> {
    let whole = run_id.to_string();
    let Some(short) = whole.get(..SHORT_ID) else {
        return Ok(whole);
    };
    let runs = store.runs(&RunFilter::default(), SEARCHED).await?;
    let mut alike = runs
        .iter()
        .filter(|run| run.run_id.to_string().starts_with(short));
    // A run that is too old to be searched for has no short name, either.
    let is_only = alike.next().is_some_and(|run| run.run_id == run_id) && alike.next().is_none();
    Ok(match is_only {
        true => short.to_owned(),
        false => whole,
    })
}
