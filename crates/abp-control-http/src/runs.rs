//! Runs: listing, looking, cancelling, deciding, deleting.

use std::path::PathBuf;

use abp_control::{
    ApplyOutcome, CancelOutcome, CancelRequest, DecisionProgress, DiscardOutcome, ProposedChanges,
};
use abp_error::ErrorCode;
use abp_gateway::Refusal;
use abp_gateway_http::HttpReply;
use abp_runtime::{ApplyRequest, Decider, HostFiles};
use abp_store::{KeyScope, RunFilter};
use bytes::Bytes;
use http::{Method, StatusCode};
use uuid::Uuid;

use crate::api::{
    ApplyReport, ApplyRequestBody, CancelRequestBody, ChangeProgress, ChangesView, DeletedRun,
    DiscardReport, RunList, RunView, RunsQuery, SessionPage, SessionsQuery, run_view, session_view,
};
use crate::call::{Call, json_reply, media};
use crate::caller::Caller;
use crate::keys::wrong_cursor;
use crate::query::NoQuery;
use crate::summaries;
use crate::table::{RequestDoc, RouteRow, schema_of, text_schema};

/// How many runs a page has where nothing is said.
const PAGE: u32 = 50;

pub(crate) fn rows() -> Vec<RouteRow> {
    vec![
        RouteRow::get(
            "/runs",
            KeyScope::RunsRead,
            "list_runs",
            "Lists runs, newest first.",
            list,
        ),
        RouteRow::get(
            "/runs/{run_id}",
            KeyScope::RunsRead,
            "get_run",
            "Returns a run and its state.",
            get,
        ),
        RouteRow::get(
            "/sessions",
            KeyScope::RunsRead,
            "list_sessions",
            "Lists the sessions that agents had in runs, newest first.",
            sessions,
        ),
        RouteRow::delete(
            "/runs/{run_id}",
            KeyScope::RunsWrite,
            "delete_run",
            "Deletes the events, order, changes and files of a run that has ended. Its receipt and its \
             entries of the log stay.",
            delete,
        ),
        RouteRow::post(
            "/runs/{run_id}/cancel",
            KeyScope::RunsWrite,
            "cancel_run",
            "Asks a run to end. A run that has ended, or was asked before, stays as it is.",
            cancel,
        ),
        RouteRow::raw(
            Method::GET,
            "/runs/{run_id}/diff",
            KeyScope::RunsRead,
            "get_run_diff",
            "Returns the undecided changes of a run; as a patch where text/x-diff is accepted.",
            diff,
        )
        .answers_json::<ChangesView>(StatusCode::OK, "the changes")
        .answers(StatusCode::OK, "the changes", "text/x-diff", text_schema),
        RouteRow::post(
            "/runs/{run_id}/apply",
            KeyScope::Apply,
            "apply_run",
            "Applies undecided changes of a run to its source on the server, all of them or none.",
            apply,
        ),
        RouteRow::raw(
            Method::POST,
            "/runs/{run_id}/discard",
            KeyScope::Apply,
            "discard_run",
            "Throws the undecided changes of a run away.",
            discard,
        )
        .takes(RequestDoc::Json(schema_of::<NoQuery>))
        .answers_json::<DiscardReport>(StatusCode::OK, "the end of the changes"),
    ]
}

async fn list(call: Call, query: RunsQuery) -> Result<RunList, Refusal> {
    let caller = &call.caller;
    if let Some(asked) = &query.principal
        && !caller.owns(asked)
    {
        let message = "runs of other principals need the scope admin";
        return Err(Refusal::new(ErrorCode::PolicyDenied, message).at("principal"));
    }
    let before = before(&call, query.cursor.as_deref()).await?;
    let filter = RunFilter {
        ended: query.ended,
        backend: query.backend,
        state: query.state.map(Into::into),
        principal: query.principal,
        before,
        ..RunFilter::default()
    };
    let limit = query.limit.unwrap_or(PAGE);
    let page = call.face.plane().runs(caller.principal(), &filter, limit);
    let page = page.await?;
    let next = page.next_run().map(|run_id| run_id.to_string());
    let mut runs: Vec<RunView> = page.runs.iter().map(run_view).collect();
    summaries::add(call.face.store().await?, &mut runs).await?;
    Ok(RunList { runs, next })
}

/// The place of a cursor: the last run of a page. One that the caller cannot see is none of its cursors.
async fn before(call: &Call, cursor: Option<&str>) -> Result<Option<i64>, Refusal> {
    let Some(text) = cursor else {
        return Ok(None);
    };
    let id: Uuid = text.parse().map_err(|_| wrong_cursor())?;
    let run = call.face.run_of(&call.caller, id).await;
    Ok(Some(run.map_err(|_| wrong_cursor())?.number))
}

async fn sessions(call: Call, query: SessionsQuery) -> Result<SessionPage, Refusal> {
    let filter = RunFilter {
        before: before(&call, query.cursor.as_deref()).await?,
        ..RunFilter::default()
    };
    let limit = query.limit.unwrap_or(PAGE);
    let plane = call.face.plane();
    let page = plane.sessions(call.caller.principal(), &filter, limit);
    let page = page.await?;
    Ok(SessionPage {
        sessions: page.sessions.iter().map(session_view).collect(),
        next: page.next.map(|run_id| run_id.to_string()),
    })
}

async fn get(call: Call, _: NoQuery) -> Result<RunView, Refusal> {
    let run = call.face.run_of(&call.caller, call.run_id()?).await?;
    let mut run = run_view(&run);
    summaries::add(call.face.store().await?, std::slice::from_mut(&mut run)).await?;
    Ok(run)
}

async fn delete(call: Call, _: NoQuery) -> Result<DeletedRun, Refusal> {
    let run = call.face.run_of(&call.caller, call.run_id()?).await?;
    let deleted = call.face.plane();
    let deleted = deleted.delete_run(call.caller.principal(), run.run_id);
    Ok(DeletedRun {
        run_id: run.run_id,
        is_changed: deleted.await?,
    })
}

async fn cancel(call: Call, request: CancelRequestBody) -> Result<RunView, Refusal> {
    let run_id = call.run_id()?;
    call.face.run_of(&call.caller, run_id).await?;
    let request = CancelRequest {
        reason: request.reason,
    };
    let plane = call.face.plane();
    let outcome = plane
        .cancel(call.caller.principal(), run_id, request)
        .await?;
    let (CancelOutcome::Requested(run)
    | CancelOutcome::AlreadyRequested(run)
    | CancelOutcome::AlreadyEnded(run)) = outcome;
    Ok(run_view(&run))
}

async fn diff(call: Call) -> Result<HttpReply, Refusal> {
    call.query::<NoQuery>()?;
    let run = call.face.run_of(&call.caller, call.run_id()?).await?;
    if !run.state.is_final() {
        return Err(crate::receipts::not_ended(run.run_id));
    }
    let changes = call.face.plane().changes(run.run_id).await?;
    if call.accept().contains("text/x-diff") {
        let headers = media("text/x-diff; charset=utf-8");
        let body = Bytes::from(changes.diff);
        return Ok(HttpReply::whole(StatusCode::OK, headers, body));
    }
    json_reply(StatusCode::OK, &changes_view(run.run_id, changes))
}

fn changes_view(run_id: Uuid, changes: ProposedChanges) -> ChangesView {
    let progress = match changes.progress {
        DecisionProgress::Unchanged => ChangeProgress::Unchanged,
        DecisionProgress::Undecided => ChangeProgress::Undecided,
        DecisionProgress::Decided { state, by, at } => ChangeProgress::Decided {
            decision: state.as_str().to_owned(),
            by,
            at,
        },
    };
    let host_files = changes.host_files.into_iter();
    ChangesView {
        run_id,
        progress,
        diff: changes.diff,
        status: changes.status,
        paths: changes.paths,
        applied: changes.applied,
        host_files: host_files
            .map(|(path, _)| path.display().to_string())
            .collect(),
    }
}

/// The caller, as the log names whoever decided.
fn decider(caller: &Caller) -> Decider {
    Decider {
        by: caller.principal().name().to_owned(),
        via: caller.principal().way().to_owned(),
    }
}

async fn apply(call: Call, body: ApplyRequestBody) -> Result<ApplyReport, Refusal> {
    let run = call.face.run_of(&call.caller, call.run_id()?).await?;
    let request = ApplyRequest {
        decider: decider(&call.caller),
        paths: body.paths.iter().map(PathBuf::from).collect(),
        host_files: match body.agree_to_host_files {
            true => HostFiles::Write,
            false => HostFiles::Refuse,
        },
    };
    let outcome = call.face.plane().apply(run.run_id, &request).await?;
    Ok(match outcome {
        ApplyOutcome::Applied(applied) => ApplyReport {
            run_id: run.run_id,
            is_changed: true,
            paths: applied
                .paths
                .iter()
                .map(|path| path.display().to_string())
                .collect(),
            remaining: applied.remaining,
        },
        ApplyOutcome::AlreadyApplied { .. } | ApplyOutcome::Nothing => ApplyReport {
            run_id: run.run_id,
            is_changed: false,
            paths: Vec::new(),
            remaining: 0,
        },
    })
}

async fn discard(call: Call) -> Result<HttpReply, Refusal> {
    call.query::<NoQuery>()?;
    call.body::<NoQuery>()?;
    let run = call.face.run_of(&call.caller, call.run_id()?).await?;
    let outcome = call.face.plane().discard(run.run_id, decider(&call.caller));
    let report = DiscardReport {
        run_id: run.run_id,
        is_changed: outcome.await? == DiscardOutcome::Discarded,
    };
    json_reply(StatusCode::OK, &report)
}
