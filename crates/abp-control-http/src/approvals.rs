//! Approvals: listing and answering.

use abp_control::Answer;
use abp_error::ErrorCode;
use abp_gateway::Refusal;
use abp_store::{AnswerOutcome, ApprovalFilter, KeyScope};
use uuid::Uuid;

use crate::api::{AnswerRequest, ApprovalPage, ApprovalView, ApprovalsQuery};
use crate::call::Call;
use crate::caller::Caller;
use crate::face::Face;
use crate::keys::wrong_cursor;
use crate::table::RouteRow;

/// How many approvals a page has where nothing is said.
const PAGE: u32 = 100;

pub(crate) fn rows() -> Vec<RouteRow> {
    vec![
        RouteRow::get(
            "/approvals",
            KeyScope::RunsRead,
            "list_approvals",
            "Lists the questions that runs asked, oldest first.",
            list,
        ),
        RouteRow::post(
            "/approvals/{approval_id}",
            KeyScope::Approve,
            "answer_approval",
            "Answers a question. The first answer counts; a later one is refused.",
            answer_route,
        ),
    ]
}

async fn list(call: Call, query: ApprovalsQuery) -> Result<ApprovalPage, Refusal> {
    let after = query.cursor.as_deref().map(str::parse::<Uuid>);
    let filter = ApprovalFilter {
        run_id: query.run_id,
        open: query.open,
        after: after.transpose().map_err(|_| wrong_cursor())?,
        ..ApprovalFilter::default()
    };
    let limit = query.limit.unwrap_or(PAGE);
    let plane = call.face.plane();
    let found = plane
        .approvals(call.caller.principal(), &filter, limit)
        .await?;
    let approvals: Vec<ApprovalView> = found.into_iter().map(Into::into).collect();
    let is_full = approvals.len() >= limit as usize;
    let next = approvals.last().filter(|_| is_full);
    Ok(ApprovalPage {
        next: next.map(|last| last.id.to_string()),
        approvals,
    })
}

async fn answer_route(call: Call, request: AnswerRequest) -> Result<ApprovalView, Refusal> {
    let text = call.params.get("approval_id");
    let id: Uuid = text.parse().map_err(|_| unknown())?;
    answer(
        &call.face,
        &call.caller,
        id,
        request.approve,
        request.reason,
    )
    .await
}

/// Answers an approval that the caller may see.
pub(crate) async fn answer(
    face: &Face,
    caller: &Caller,
    id: Uuid,
    approve: bool,
    reason: Option<String>,
) -> Result<ApprovalView, Refusal> {
    let answer = Answer { approve, reason };
    let outcome = face.plane().answer(caller.principal(), id, answer).await;
    match outcome.map_err(|error| match error.code() {
        ErrorCode::NotFound => unknown(),
        _ => error.into(),
    })? {
        AnswerOutcome::Recorded(record) => Ok(record.into()),
        AnswerOutcome::AlreadyAnswered(record) => {
            let view = ApprovalView::from(record);
            let by = view.answered_by.as_deref().unwrap_or("default");
            let message = format!("the approval was {} by {by}", view.state);
            Err(Refusal::new(ErrorCode::ApprovalAnswered, message).at("approval_id"))
        }
    }
}

/// The refusal for an approval that does not exist, or that belongs to another principal.
fn unknown() -> Refusal {
    Refusal::new(ErrorCode::NotFound, "no such approval").at("approval_id")
}
