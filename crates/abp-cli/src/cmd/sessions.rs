//! `abp sessions`: the sessions of agents, here or on a remote server.

use abp_control::{RunFilter, SessionRecord};
use abp_control_http::api::{SessionView, session_view};
use abp_error::{AbpError, ExitStatus};
use serde_json::json;

use super::remote;
use crate::args::{GlobalArgs, SessionsArgs};
use crate::output::{DIM, Output};
use crate::prompt::operator;
use crate::session::{Session, block_on};
use crate::text::one_line;

pub(crate) fn run(
    args: &SessionsArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &[], output)?;
    let found = block_on(async {
        // Looking creates nothing.
        if session.plane.runtime().existing_store().await?.is_none() {
            return Ok(Vec::new());
        }
        let (principal, filter) = (operator(), RunFilter::default());
        let page = session.plane.sessions(&principal, &filter, args.limit);
        let page: Vec<SessionRecord> = page.await?.sessions;
        Ok::<_, AbpError>(page.iter().map(session_view).collect())
    })?;
    tell(&found, output)
}

/// The same on the remote server.
pub(crate) fn run_remote(
    args: &SessionsArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let remote = remote::connect(global)?;
    let page = block_on(remote.sessions(args.limit))?;
    tell(&page.sessions, output)
}

fn tell(sessions: &[SessionView], output: &mut Output) -> Result<ExitStatus, AbpError> {
    if output.is_json() {
        output.json(&json!({ "sessions": sessions }))?;
        return Ok(ExitStatus::Success);
    }
    for session in sessions {
        let end = match session.is_resumable {
            true => format!("abp run --continue {}", session.run_id),
            false => "cannot be continued".to_owned(),
        };
        output.line(&format!(
            "{}  {}  {}  {}  {DIM}{end}{DIM:#}",
            one_line(&session.session_id),
            one_line(&session.backend),
            session.accepted_at,
            one_line(&session.task),
        ));
    }
    Ok(ExitStatus::Success)
}
