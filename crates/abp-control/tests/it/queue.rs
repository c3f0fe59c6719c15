//! Submitting, working, following and answering, by several control planes over one state directory.

use std::time::Duration;

use abp_control::{
    Answer, AnswerOutcome, ApprovalFilter, ApprovalRecord, CancelRequest, ControlPlane, KeyScope,
    OrderDraft, PolicyChoice, Principal, RunFilter, RunState, Submission, WorkerLimits,
};
use abp_core::Outcome;
use abp_error::ErrorCode;
use abp_runtime::Approvals;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::lab::{Lab, me};

/// Another process, as far as the store can tell: a plane of its own, with these steps for `agent`.
fn plane(lab: &Lab, steps: &Value) -> ControlPlane {
    let script = json!({"name": "agent", "steps": steps});
    let script = serde_json::from_value(script).unwrap();
    ControlPlane::open(lab.plane.config().clone(), &[script]).unwrap()
}

fn submission(lab: &Lab, plane: &ControlPlane, policy: Value) -> Submission {
    let root = lab.source().to_str().unwrap().to_owned();
    let order = OrderDraft::new("t")
        .policy(PolicyChoice::Also(serde_json::from_value(policy).unwrap()))
        .with(|order| order.workspace.root = root)
        .build(plane)
        .unwrap();
    Submission {
        backend: Some("agent".to_owned()),
        approvals: Approvals::default().or_ask(Duration::from_secs(60)),
        ..Submission::new(order)
    }
}

fn key(id: &str, scopes: &[KeyScope]) -> Principal {
    Principal::key(id, id, scopes.iter().copied())
}

async fn wait_for_state(plane: &ControlPlane, run: Uuid, state: RunState) {
    let waiting = async {
        while plane.run(&me(), run).await.unwrap().state != state {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), waiting).await;
    assert!(waited.is_ok(), "{run} is not {state}");
}

/// A run that one process accepts is carried out by another and followed by both, with the same events; its
/// principal sees it, and no other does.
#[tokio::test]
async fn a_run_is_carried_out_and_followed_by_whichever_process() {
    let lab = Lab::new(&[], json!({}));
    let front = plane(&lab, &json!([]));
    let worker = plane(&lab, &json!([{"do": "say", "text": "hello"}]));
    let all = [KeyScope::RunsRead, KeyScope::RunsWrite, KeyScope::Approve];
    let (ann, bob) = (key("ann", &all), key("bob", &all));
    let mut keyed = submission(&lab, &front, json!({}));
    keyed.idempotency_key = Some("k".to_owned());
    let submitted = front.submit(&ann, keyed.clone()).await.unwrap();
    assert!(submitted.is_new && submitted.state == RunState::Queued);
    let again = front.submit(&ann, keyed.clone()).await.unwrap();
    assert_eq!((again.run_id, again.is_new), (submitted.run_id, false));
    let other = front.submit(&bob, keyed).await.unwrap();
    assert!(other.is_new, "a key belongs to its principal");
    let mut live = front.follow(&ann, submitted.run_id, None).await.unwrap();
    let workers = worker.start_workers(WorkerLimits::default()).await.unwrap();
    let mut seen = Vec::new();
    while let Some(followed) = live.next().await.unwrap() {
        assert_eq!(followed.seq, seen.len() as u64);
        seen.push(followed.json);
    }
    let receipt = front.wait(&ann, submitted.run_id).await.unwrap();
    assert_eq!(
        (receipt.outcome, receipt.trace.len()),
        (Outcome::Complete, seen.len())
    );
    let mut replay = worker
        .follow(&ann, submitted.run_id, Some(1))
        .await
        .unwrap();
    let mut replayed = Vec::new();
    while let Some(followed) = replay.next().await.unwrap() {
        replayed.push(followed.json);
    }
    assert_eq!(replayed, seen[2..]);
    // A number that no event has: nothing comes, and the stream ends with the run.
    let mut beyond = worker
        .follow(&ann, submitted.run_id, Some(u64::MAX))
        .await
        .unwrap();
    assert!(beyond.next().await.is_err() || beyond.next().await.unwrap().is_none());

    let many = [(submitted.run_id, None), (other.run_id, Some(0))];
    let mut merged = front.follow_many(&me(), &many).await.unwrap();
    let (mut next, mut ended) = ([0, 1], 0);
    while let Some(one) = merged.next().await.unwrap() {
        let which = usize::from(one.run_id == other.run_id);
        match one.event {
            Some(event) => {
                assert_eq!(event.seq, next[which]);
                next[which] += 1;
            }
            None => ended += 1,
        }
    }
    assert_eq!((ended, next[0]), (2, seen.len() as u64));

    for refused in [
        front.run(&bob, submitted.run_id).await.map(drop),
        front.follow(&bob, submitted.run_id, None).await.map(drop),
        front.wait(&bob, submitted.run_id).await.map(drop),
        front
            .cancel(&bob, submitted.run_id, CancelRequest::default())
            .await
            .map(drop),
    ] {
        assert_eq!(refused.unwrap_err().code(), ErrorCode::NotFound);
    }
    let all_runs = RunFilter::default();
    assert_eq!(front.runs(&bob, &all_runs, 10).await.unwrap().runs.len(), 1);
    assert_eq!(
        front.runs(&me(), &all_runs, 10).await.unwrap().runs.len(),
        2
    );
    let reader = key("ann", &[KeyScope::RunsRead]);
    let refused = front
        .submit(&reader, submission(&lab, &front, json!({})))
        .await;
    assert_eq!(refused.unwrap_err().code(), ErrorCode::PolicyDenied);
    assert_eq!(worker.drain(Duration::from_secs(1)).await, 0);
    workers.ended().await;
}

async fn open_approvals(plane: &ControlPlane, principal: &Principal) -> Vec<ApprovalRecord> {
    let open = ApprovalFilter {
        open: Some(true),
        ..ApprovalFilter::default()
    };
    plane.approvals(principal, &open, 100).await.unwrap()
}

/// Runs that wait for a person hold no place: more of them wait than may go on, and one that asks nothing is
/// carried out meanwhile. Answers come from elsewhere, by those who may.
#[tokio::test]
async fn a_parked_run_holds_no_place() {
    const PARKED: usize = 40;
    let lab = Lab::new(&[], json!({}));
    let steps = json!([{"do": "write", "path": "new.txt", "content": "x"}]);
    let worker = plane(&lab, &steps);
    let elsewhere = plane(&lab, &steps);
    let ask = json!({"require_approval_for": ["Write"]});
    let ann = key("ann", &[KeyScope::RunsWrite]);
    let mut runs = Vec::new();
    for _ in 0..PARKED {
        let asking = submission(&lab, &elsewhere, ask.clone());
        runs.push(elsewhere.submit(&ann, asking).await.unwrap().run_id);
    }
    let limits = WorkerLimits {
        running_per_principal: None,
        ..WorkerLimits::default()
    };
    let workers = worker.start_workers(limits).await.unwrap();
    let all_asked = async {
        while open_approvals(&elsewhere, &me()).await.len() < PARKED {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let all_asked = tokio::time::timeout(Duration::from_secs(60), all_asked).await;
    assert!(all_asked.is_ok(), "more runs wait than may go on");
    let free = submission(&lab, &elsewhere, json!({}));
    let free = elsewhere.submit(&ann, free).await.unwrap().run_id;
    let receipt = elsewhere.wait(&me(), free).await.unwrap();
    assert_eq!(receipt.outcome, Outcome::Complete);

    let approvals = open_approvals(&elsewhere, &me()).await;
    let yes = Answer {
        approve: true,
        reason: Some("go".to_owned()),
    };
    let first = approvals[0].id;
    let refused = elsewhere.answer(&ann, first, yes.clone()).await;
    assert_eq!(refused.unwrap_err().code(), ErrorCode::PolicyDenied);
    let stranger = key("bob", &[KeyScope::Approve]);
    let refused = elsewhere.answer(&stranger, first, yes.clone()).await;
    assert_eq!(refused.unwrap_err().code(), ErrorCode::NotFound);
    assert!(open_approvals(&elsewhere, &stranger).await.is_empty());
    for approval in &approvals {
        let answered = elsewhere
            .answer(&me(), approval.id, yes.clone())
            .await
            .unwrap();
        assert!(matches!(answered, AnswerOutcome::Recorded(_)));
    }
    for run in runs {
        let receipt = elsewhere.wait(&me(), run).await.unwrap();
        assert_eq!(receipt.outcome, Outcome::Complete);
        let resolved = receipt
            .trace
            .iter()
            .find(|event| event.kind.name() == "permission_resolved");
        let resolved = json!(resolved.unwrap());
        assert_eq!(resolved["decided_by"], "ann");
        assert_eq!(resolved["reason"], "go");
    }
    assert_eq!(worker.drain(Duration::from_secs(5)).await, 0);
    workers.ended().await;
}

/// A run that is parked is cancelled like any other, and its question is withdrawn.
#[tokio::test]
async fn a_parked_run_can_be_cancelled_from_elsewhere() {
    let lab = Lab::new(&[], json!({}));
    let steps = json!([{"do": "write", "path": "new.txt", "content": "x"}]);
    let (worker, elsewhere) = (plane(&lab, &steps), plane(&lab, &steps));
    let workers = worker.start_workers(WorkerLimits::default()).await.unwrap();
    let asking = submission(&lab, &elsewhere, json!({"require_approval_for": ["Write"]}));
    let run = elsewhere.submit(&me(), asking).await.unwrap().run_id;
    wait_for_state(&elsewhere, run, RunState::AwaitingApproval).await;
    let approval = open_approvals(&elsewhere, &me()).await.remove(0);
    let request = CancelRequest {
        reason: Some("wrong branch".to_owned()),
    };
    elsewhere.cancel(&me(), run, request).await.unwrap();
    let receipt = elsewhere.wait(&me(), run).await.unwrap();
    assert_eq!(receipt.outcome, Outcome::Cancelled);
    let message = receipt.error.unwrap().message;
    assert_eq!(message, "the run was cancelled by ann (cli): wrong branch");
    let late = Answer {
        approve: true,
        reason: None,
    };
    let late = elsewhere.answer(&me(), approval.id, late).await.unwrap();
    let AnswerOutcome::AlreadyAnswered(record) = late else {
        panic!("{late:?}");
    };
    let verdict = record.answer.unwrap().verdict;
    assert_eq!(verdict.as_str(), "withdrawn");
    assert_eq!(worker.drain(Duration::from_secs(1)).await, 0);
    workers.ended().await;
}
