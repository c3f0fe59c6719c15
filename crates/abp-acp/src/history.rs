//! Sessions in the store: which runs belong to one, and what was said in them.
//!
//! A run of a session has the idempotency key `acp/SESSION/NUMBER`, with which two clients of one session cannot
//! start the same turn. A run that was started otherwise, such as by `abp run`, is the first turn of the session
//! with its own id, so an editor can go on with it.

use std::path::PathBuf;

use abp_control::{ControlPlane, EarlierSession, Principal, RunFilter, RunRecord};
use abp_core::{AgentEvent, WorkOrder};
use abp_error::{AbpError, ErrorCode};
use uuid::Uuid;

/// The number of runs that are looked at for one page of sessions.
const PAGE: u32 = 50;
/// The number of events that are read at a time.
const EVENTS: u32 = 256;
/// The most characters of a title.
const MAX_TITLE: usize = 80;

/// The key of a turn.
pub(crate) fn turn_key(session: Uuid, number: usize) -> String {
    format!("acp/{session}/{number}")
}

/// The session and the number of the turn that a run is.
fn turn_of(run: &RunRecord) -> (Uuid, usize) {
    let parsed = run.idempotency_key.as_deref().and_then(|key| {
        let (session, number) = key.strip_prefix("acp/")?.split_once('/')?;
        Some((session.parse().ok()?, number.parse().ok()?))
    });
    parsed.unwrap_or((run.run_id, 0))
}

/// A session as a list shows it.
#[derive(Debug)]
pub(crate) struct StoredSession {
    pub(crate) id: Uuid,
    pub(crate) directory: PathBuf,
    pub(crate) title: String,
    pub(crate) updated_at: String,
}

/// The turns of a session, oldest first; none where the store does not know it.
///
/// # Errors
/// Fails where the store cannot be read.
pub(crate) async fn turns(plane: &ControlPlane, session: Uuid) -> Result<Vec<RunRecord>, AbpError> {
    let store = plane.store().await?;
    let first = match store.run_of_request(&turn_key(session, 0)).await? {
        Some(run) => Some(run),
        None => store.run(session).await?,
    };
    let mut turns: Vec<RunRecord> = first.into_iter().collect();
    while !turns.is_empty() {
        let key = turn_key(session, turns.len());
        match store.run_of_request(&key).await? {
            Some(run) => turns.push(run),
            None => break,
        }
    }
    Ok(turns)
}

/// A page of sessions, newest first, and the cursor of the next one.
///
/// # Errors
/// Fails where the store cannot be read.
pub(crate) async fn list(
    plane: &ControlPlane,
    principal: &Principal,
    directory: Option<&str>,
    before: Option<i64>,
) -> Result<(Vec<StoredSession>, Option<i64>), AbpError> {
    let filter = RunFilter {
        directory: directory.map(str::to_owned),
        before,
        ..RunFilter::default()
    };
    let page = plane.runs(principal, &filter, PAGE).await?;
    let mut sessions = Vec::new();
    for run in page.runs {
        let Some(project) = run.project.clone() else {
            continue;
        };
        // The filter also lets runs of directories above pass.
        let is_elsewhere = directory.is_some_and(|directory| directory != project.path);
        let (id, number) = turn_of(&run);
        if is_elsewhere || number > 0 {
            continue;
        }
        let turns = turns(plane, id).await?;
        let last = turns.last().unwrap_or(&run);
        sessions.push(StoredSession {
            id,
            directory: PathBuf::from(project.path),
            title: title(&order_of(&run)?.task),
            updated_at: last.ended_at.unwrap_or(last.accepted_at).to_string(),
        });
    }
    Ok((sessions, page.next))
}

/// The order of a run, without its secrets.
///
/// # Errors
/// Fails where it is not readable.
pub(crate) fn order_of(run: &RunRecord) -> Result<WorkOrder, AbpError> {
    serde_json::from_str(&run.order_json).map_err(|error| {
        let message = format!("the order of run {} cannot be read", run.run_id);
        AbpError::new(ErrorCode::Internal, message).with_source(error)
    })
}

/// The events of a run that are stored by now.
///
/// # Errors
/// Fails where the store cannot be read, or holds what is no event.
pub(crate) async fn events(
    plane: &ControlPlane,
    run_id: Uuid,
    from: u64,
) -> Result<Vec<(u64, AgentEvent)>, AbpError> {
    let page = plane.store().await?.events(run_id, from, EVENTS).await?;
    let events = page.into_iter().map(|record| {
        let event = serde_json::from_str(&record.json).map_err(|error| {
            let message = format!("event {} of run {run_id} cannot be read", record.seq);
            AbpError::new(ErrorCode::Internal, message).with_source(error)
        });
        Ok((record.seq, event?))
    });
    events.collect()
}

/// The newest session of an agent among the turns, and the run it belongs to.
pub(crate) async fn agent_session(
    plane: &ControlPlane,
    turns: &[RunRecord],
) -> Option<(Uuid, EarlierSession)> {
    for turn in turns.iter().rev().filter(|turn| turn.ended_at.is_some()) {
        if let Ok(earlier) = EarlierSession::of(plane, turn.run_id).await {
            return Some((turn.run_id, earlier));
        }
    }
    None
}

/// The first line of a task, shortened.
fn title(task: &str) -> String {
    let line = task.trim().lines().next().unwrap_or_default();
    let mut title: String = line.chars().take(MAX_TITLE).collect();
    if line.chars().count() > MAX_TITLE {
        title.push('…');
    }
    title
}
