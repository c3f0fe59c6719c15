//! `abp logs`, `abp cancel`, `abp approvals`, `abp approve` and `abp deny` on a remote server.

use abp_error::{AbpError, ExitStatus};
use abp_store::ApprovalRecord;
use serde_json::json;

use super::connect;
use crate::args::{AnswerArgs, ApprovalsArgs, CancelArgs, GlobalArgs, LogsArgs};
use crate::cmd::control::{tell_answered, tell_approvals, tell_cancelled};
use crate::output::Output;
use crate::render::EventPrinter;
use crate::session::block_on;

pub(super) fn logs(
    args: &LogsArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let remote = connect(global)?;
    block_on(async {
        let run = remote.find(&args.run).await?;
        let mut printer = EventPrinter::new(output);
        let mut events = match args.follow || run.state.is_final() {
            true => remote.follow(run.run_id, args.after),
            false => remote.stored_events(run.run_id, args.after),
        };
        while let Some((seq, event)) = events.next().await? {
            if args.jsonl || output.is_json() {
                output.json_line(&json!({ "seq": seq, "event": event }))?;
            } else {
                printer.print(&event.kind, output);
            }
        }
        printer.end_line(output);
        Ok(ExitStatus::Success)
    })
}

pub(super) fn cancel(
    args: &CancelArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let remote = connect(global)?;
    block_on(async {
        let before = remote.find(&args.run).await?;
        let run = remote.cancel(before.run_id, args.reason.clone()).await?;
        let said = match (before.state.is_final(), before.is_cancelling) {
            (true, _) => "had ended already",
            (false, true) => "was being cancelled already",
            (false, false) => "is being cancelled",
        };
        tell_cancelled(run.run_id, run.state.into(), said, output)
    })
}

pub(super) fn approvals(
    args: &ApprovalsArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let remote = connect(global)?;
    block_on(async {
        let run_id = match &args.run {
            Some(run) => Some(remote.find(run).await?.run_id),
            None => None,
        };
        let listed = remote.approvals(!args.answered).await?.into_iter();
        let listed: Vec<ApprovalRecord> = listed
            .filter(|approval| run_id.is_none_or(|run_id| run_id == approval.run_id))
            .map(Into::into)
            .collect();
        tell_approvals(&listed, output)
    })
}

pub(super) fn answer(
    approve: bool,
    args: &AnswerArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let remote = connect(global)?;
    block_on(async {
        let answered = remote.answer(args.id, approve, args.reason.clone()).await?;
        tell_answered(&answered.into(), output)
    })
}
