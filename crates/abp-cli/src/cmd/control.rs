//! `abp approvals`, `abp approve`, `abp deny`, `abp cancel` and `abp logs`: runs of any process.

use abp_control::{
    Answer, AnswerOutcome, ApprovalFilter, ApprovalRecord, CancelOutcome, CancelRequest, RunScope,
    find_run,
};
use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_store::{RunRecord, RunState, Store};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::args::{AnswerArgs, ApprovalsArgs, CancelArgs, GlobalArgs, LogsArgs};
use crate::output::{DIM, Output};
use crate::prompt::operator;
use crate::render::EventPrinter;
use crate::session::{Session, block_on};
use crate::text::one_line;

/// The most questions that are listed.
const MAX_LISTED: u32 = 1_000;

pub(crate) fn approvals(
    args: &ApprovalsArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &[], output)?;
    block_on(async {
        // Looking creates nothing.
        let listed = match session.plane.runtime().existing_store().await? {
            Some(store) => listed_approvals(&session, store, args).await?,
            None => Vec::new(),
        };
        tell_approvals(&listed, output)
    })
}

/// Prints questions, of this machine or of a server.
pub(super) fn tell_approvals(
    listed: &[ApprovalRecord],
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    if output.is_json() {
        let rows: Vec<Value> = listed.iter().map(to_json).collect();
        output.json(&json!({ "approvals": rows }))?;
        return Ok(ExitStatus::Success);
    }
    for approval in listed {
        output.line(&describe(approval));
    }
    Ok(ExitStatus::Success)
}

/// Prints a question that was answered just now.
pub(super) fn tell_answered(
    approval: &ApprovalRecord,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    if output.is_json() {
        output.json(&to_json(approval))?;
    } else {
        output.line(&describe(approval));
    }
    Ok(ExitStatus::Success)
}

/// Prints what became of a request to cancel a run.
pub(super) fn tell_cancelled(
    run_id: Uuid,
    state: RunState,
    said: &str,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    if output.is_json() {
        output.json(&json!({ "run_id": run_id, "state": state, "said": said }))?;
    } else {
        output.line(&format!("run {run_id} {said}"));
    }
    Ok(ExitStatus::Success)
}

async fn listed_approvals(
    session: &Session,
    store: &Store,
    args: &ApprovalsArgs,
) -> Result<Vec<ApprovalRecord>, AbpError> {
    let run_id = match &args.run {
        Some(run) => Some(find_run(store, run, &session.scope()).await?.run_id),
        None => None,
    };
    let filter = ApprovalFilter {
        run_id,
        open: (!args.answered).then_some(true),
        ..ApprovalFilter::default()
    };
    session
        .plane
        .approvals(&operator(), &filter, MAX_LISTED)
        .await
}

pub(crate) fn answer(
    approve: bool,
    args: &AnswerArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &[], output)?;
    block_on(async {
        session.existing_store().await?;
        let answer = Answer {
            approve,
            reason: args.reason.clone(),
        };
        match session.plane.answer(&operator(), args.id, answer).await? {
            AnswerOutcome::Recorded(approval) => tell_answered(&approval, output),
            AnswerOutcome::AlreadyAnswered(approval) => {
                let message = format!("it is answered already: {}", describe(&approval));
                Err(AbpError::new(ErrorCode::ApprovalAnswered, message))
            }
        }
    })
}

pub(crate) fn cancel(
    args: &CancelArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &[], output)?;
    block_on(async {
        let store = session.existing_store().await?;
        let run = find_run(store, &args.run, &session.scope()).await?;
        let request = CancelRequest {
            reason: args.reason.clone(),
        };
        let cancelled = session
            .plane
            .cancel(&operator(), run.run_id, request)
            .await?;
        let (run, said): (RunRecord, &str) = match cancelled {
            CancelOutcome::Requested(run) => (run, "is being cancelled"),
            CancelOutcome::AlreadyRequested(run) => (run, "was being cancelled already"),
            CancelOutcome::AlreadyEnded(run) => (run, "had ended already"),
        };
        tell_cancelled(run.run_id, run.state, said, output)
    })
}

pub(crate) fn logs(
    args: &LogsArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &[], output)?;
    block_on(async {
        let store = session.existing_store().await?;
        // An id names a run of any project.
        let scope = match args.run.as_str() {
            "last" => session.scope(),
            _ => RunScope::All,
        };
        let run = find_run(store, &args.run, &scope).await?;
        if let Some(erasure) = store.erasure(run.run_id).await? {
            output.note(&format!(
                "{} events of this run were removed at {}; `abp runs show {}` has its receipt",
                erasure.events, erasure.at, run.run_id
            ));
        }
        let mut stream = session
            .plane
            .follow(&operator(), run.run_id, args.after)
            .await?;
        let mut printer = EventPrinter::new(output);
        loop {
            let next = match args.follow {
                true => stream.next().await?,
                false => stream.next_stored().await?,
            };
            let Some(followed) = next else { break };
            if args.jsonl || output.is_json() {
                let event: Value = serde_json::from_str(&followed.json).unwrap_or(Value::Null);
                output.json_line(&json!({ "seq": followed.seq, "event": event }))?;
            } else {
                printer.print(&followed.event.kind, output);
            }
        }
        printer.end_line(output);
        Ok(ExitStatus::Success)
    })
}

fn describe(approval: &ApprovalRecord) -> String {
    let target = approval.target.as_deref().unwrap_or_default();
    let what = one_line(format!("{} {target}", approval.tool).trim_end());
    let (id, run_id) = (approval.id, approval.run_id);
    let state = match &approval.answer {
        None => format!("open until {}", approval.expires_at),
        Some(answer) => {
            let why = answer.reason.as_ref().map(|why| format!(": {why}"));
            let why = why.unwrap_or_default();
            one_line(&format!(
                "{} by {} ({}){why}",
                answer.verdict.as_str(),
                answer.by,
                answer.via
            ))
        }
    };
    format!("{id}  {what}  {state}  {DIM}run {run_id}{DIM:#}")
}

fn to_json(approval: &ApprovalRecord) -> Value {
    let answer = approval.answer.as_ref().map(|answer| {
        json!({
            "verdict": answer.verdict,
            "at": answer.at,
            "by": answer.by,
            "via": answer.via,
            "reason": answer.reason,
        })
    });
    json!({
        "id": approval.id,
        "run_id": approval.run_id,
        "rule": approval.rule,
        "tool": approval.tool,
        "target": approval.target,
        "reason": approval.reason,
        "asked_at": approval.asked_at,
        "expires_at": approval.expires_at,
        "answer": answer,
    })
}
