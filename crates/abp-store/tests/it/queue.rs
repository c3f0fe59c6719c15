//! The queue: claims, leases and their fence, approvals, cancelling, limits, the outbox.

use std::cell::Cell;
use std::time::Duration;

use abp_core::Timestamp;
use abp_store::{
    Acceptance, AnswerOutcome, ApprovalAnswer, ApprovalFilter, ApprovalVerdict, CancelDecision,
    CancelRecord, ClaimRequest, Lease, NewApproval, NewRun, QueueLimits, Queueing, RunState, Store,
    StoreError, StoreOptions,
};
use tempfile::TempDir;
use uuid::Uuid;

use crate::lab::{assert_sound, directory, event, finish, new_run, open, open_by_clock, options};

const LEASE: Duration = Duration::from_secs(10);

thread_local! {
    /// A clock that tests move. A test and its stores are on one thread.
    static NOW: Cell<i64> = const { Cell::new(1_700_000_000_000) };
}

fn clock() -> Timestamp {
    Timestamp::from_unix_millis(NOW.get())
}

fn pass(millis: i64) {
    NOW.set(NOW.get() + millis);
}

fn queueing(limits: QueueLimits) -> Queueing {
    Queueing {
        submission: zeroize::Zeroizing::new(b"what to do".to_vec()),
        max_attempts: 3,
        notify: vec!["hook".to_owned()],
        limits,
    }
}

fn next() -> ClaimRequest {
    ClaimRequest {
        run_id: None,
        lease: LEASE,
        running_per_principal: None,
    }
}

async fn submit(store: &Store, principal: Option<&str>) -> Uuid {
    let run = NewRun {
        principal: principal.map(str::to_owned),
        ..new_run(Uuid::now_v7())
    };
    let run_id = run.run_id;
    let accepted = store.submit(run, queueing(QueueLimits::default())).await;
    assert_eq!(accepted.expect("accepted"), Acceptance::New);
    run_id
}

async fn claim(store: &Store) -> Lease {
    let claimed = store.claim(next()).await.expect("claimed");
    claimed.expect("a run").lease
}

/// Two processes on one state directory.
async fn two(dir: &TempDir) -> (Store, Store) {
    let moved = || StoreOptions { clock, ..options() };
    let first = open_by_clock(dir.path(), moved()).await.expect("open");
    let second = open_by_clock(dir.path(), moved()).await.expect("open");
    (first, second)
}

/// A run is claimed once, oldest first, with what it was submitted with; it is gone from the store when the
/// run has ended.
#[tokio::test]
async fn a_queued_run_is_claimed_once() {
    let dir = directory();
    let (first, second) = two(&dir).await;
    let runs = [submit(&first, None).await, submit(&first, None).await];
    assert_eq!(
        first.run_state(runs[0]).await.unwrap(),
        Some(RunState::Queued)
    );
    let claims = tokio::join!(first.claim(next()), second.claim(next()));
    let claims = [claims.0.unwrap().unwrap(), claims.1.unwrap().unwrap()];
    let mut claimed = claims.each_ref().map(|claim| claim.lease.run_id);
    claimed.sort();
    let mut sorted = runs;
    sorted.sort();
    assert_eq!(claimed, sorted);
    for claim in &claims {
        assert_eq!(claim.submission.as_slice(), b"what to do");
        assert_eq!(
            (claim.lease.epoch, claim.attempt, claim.next_event),
            (1, 1, 0)
        );
    }
    assert!(first.claim(next()).await.unwrap().is_none());
    finish(&first.with_lease(claims[0].lease), claims[0].lease.run_id)
        .await
        .unwrap();
    let requeued = first.requeue(claims[0].lease).await;
    assert!(
        matches!(requeued, Err(StoreError::RunOver(_))),
        "{requeued:?}"
    );
    assert_sound(&first).await;
}

/// Every write for a run carries its epoch: whoever lost the lease writes nothing, whatever it tries, and
/// learns of it.
#[tokio::test]
async fn a_lost_lease_writes_nothing() {
    let dir = directory();
    let (first, second) = two(&dir).await;
    let run = submit(&first, None).await;
    let old = claim(&first).await;
    let stale = first.with_lease(old);
    stale
        .append_event(run, 0, event(0))
        .await
        .unwrap()
        .await
        .unwrap();
    assert!(
        second.take_over(run).await.unwrap().is_none(),
        "its lease lasts"
    );
    pass(11_000);
    assert!(
        first.take_over(run).await.unwrap().is_none(),
        "it is its own"
    );
    let taken = second
        .take_over(run)
        .await
        .unwrap()
        .expect("the lease ended");
    assert_eq!(
        (taken.lease.epoch, taken.attempt, taken.max_attempts),
        (2, 1, 3)
    );
    let question = NewApproval {
        id: Uuid::now_v7(),
        rule: None,
        tool: "Write".to_owned(),
        target: None,
        reason: "r".to_owned(),
        timeout: LEASE,
    };
    let refusals = [
        stale.append_event(run, 1, event(1)).await.unwrap().await,
        stale.renew(old, LEASE).await.map(drop),
        stale.requeue(old).await,
        stale.ask_approval(old, question).await.map(drop),
        finish(&stale, run).await.map(drop),
        stale
            .keep_change_set(run, b"x".to_vec(), [0; 32], Vec::new())
            .await,
    ];
    for (place, refused) in refusals.into_iter().enumerate() {
        let is_fenced = matches!(
            refused,
            Err(StoreError::NotOwner(_) | StoreError::WrongHash { .. })
        );
        assert!(is_fenced, "{place}: {refused:?}");
    }
    // Given back and claimed by the first process again: its old lease stays lost.
    second.requeue(taken.lease).await.unwrap();
    let new = claim(&first).await;
    assert_eq!(new.epoch, 3);
    let refused = stale.append_event(run, 1, event(1)).await.unwrap().await;
    assert!(
        matches!(refused, Err(StoreError::NotOwner(_))),
        "{refused:?}"
    );
    let fresh = first.with_lease(new);
    fresh
        .append_event(run, 1, event(1))
        .await
        .unwrap()
        .await
        .unwrap();
    finish(&fresh, run).await.unwrap();
    assert_eq!(first.events(run, 0, 10).await.unwrap().len(), 2);
    assert_sound(&first).await;
}

fn answer(verdict: ApprovalVerdict, by: &str) -> ApprovalAnswer {
    ApprovalAnswer {
        verdict,
        at: clock(),
        by: by.to_owned(),
        via: "test".to_owned(),
        reason: Some("because".to_owned()),
    }
}

fn question(target: &str) -> NewApproval {
    NewApproval {
        id: Uuid::now_v7(),
        rule: Some("require_approval_for: Write".to_owned()),
        tool: "Write".to_owned(),
        target: Some(target.to_owned()),
        reason: "r".to_owned(),
        timeout: Duration::from_secs(3600),
    }
}

/// The first answer counts; an answer that an attempt did not use is used by the next, once; a question that
/// is open stays the same question; and the end of the run withdraws what is left.
#[tokio::test]
async fn answers_outlive_the_attempt_that_asked() {
    let dir = directory();
    let (first, second) = two(&dir).await;
    let run = submit(&first, Some("key")).await;
    let lease = claim(&first).await;
    let a = first.ask_approval(lease, question("a")).await.unwrap();
    assert_eq!(
        first.run_state(run).await.unwrap(),
        Some(RunState::AwaitingApproval)
    );
    let yes = answer(ApprovalVerdict::Approved, "ann");
    let recorded = second.answer_approval(a.id, yes.clone()).await.unwrap();
    assert!(matches!(recorded, AnswerOutcome::Recorded(_)));
    let late = second
        .answer_approval(a.id, answer(ApprovalVerdict::Denied, "bob"))
        .await
        .unwrap();
    let AnswerOutcome::AlreadyAnswered(record) = late else {
        panic!("{late:?}")
    };
    assert_eq!(record.answer, Some(yes));
    // The attempt ends before it used the answer, with another question open.
    first.requeue(lease).await.unwrap();
    let lease = claim(&second).await;
    let again = second.ask_approval(lease, question("a")).await.unwrap();
    assert_eq!(
        (again.id, again.answer.unwrap().by),
        (a.id, "ann".to_owned())
    );
    assert_eq!(
        second.run_state(run).await.unwrap(),
        Some(RunState::Running)
    );
    let twice = second.ask_approval(lease, question("a")).await.unwrap();
    assert!(
        twice.id != a.id && twice.answer.is_none(),
        "an answer is used once"
    );
    second.requeue(lease).await.unwrap();
    let lease = claim(&first).await;
    let open = first.ask_approval(lease, question("a")).await.unwrap();
    assert_eq!((open.id, open.answer), (twice.id, None));
    // The time for an answer is over, whether or not the run has noticed.
    pass(3_600_000);
    let late = second
        .answer_approval(open.id, answer(ApprovalVerdict::Approved, "ann"))
        .await;
    let AnswerOutcome::AlreadyAnswered(record) = late.unwrap() else {
        panic!("too late")
    };
    assert_eq!(record.answer.unwrap().verdict, ApprovalVerdict::Expired);
    let settled = first
        .settle_approval(lease, open.id, ApprovalVerdict::Withdrawn)
        .await;
    assert_eq!(
        settled.unwrap().answer.unwrap().verdict,
        ApprovalVerdict::Expired
    );
    let left = first.ask_approval(lease, question("b")).await.unwrap();
    finish(&first.with_lease(lease), run).await.unwrap();
    let left = first.approval(left.id).await.unwrap().unwrap();
    assert_eq!(left.answer.unwrap().verdict, ApprovalVerdict::Withdrawn);
    let of = |principal: &str, open| ApprovalFilter {
        principal: Some(principal.to_owned()),
        open,
        ..ApprovalFilter::default()
    };
    assert_eq!(
        first.approvals(&of("key", None), 10).await.unwrap().len(),
        3
    );
    assert!(
        first
            .approvals(&of("key", Some(true)), 10)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        first
            .approvals(&of("other", None), 10)
            .await
            .unwrap()
            .is_empty()
    );
    let unknown = first
        .answer_approval(Uuid::now_v7(), answer(ApprovalVerdict::Denied, "x"))
        .await;
    assert!(matches!(unknown, Err(StoreError::UnknownApproval(_))));
}

/// What is full is named; a run that is cancelled is claimed whatever the limit, so that it can end.
#[tokio::test]
async fn limits_hold_for_each_principal_and_in_all() {
    let dir = directory();
    let store = open(dir.path()).await;
    let limits = QueueLimits {
        total: Some(3),
        per_principal: Some(2),
    };
    let cases = [
        ("a", None),
        ("a", None),
        ("a", Some("queued runs of this principal")),
        ("b", None),
        ("b", Some("queued runs")),
    ];
    let mut runs = Vec::new();
    for (principal, full) in cases {
        let run = NewRun {
            principal: Some(principal.to_owned()),
            ..new_run(Uuid::now_v7())
        };
        let run_id = run.run_id;
        match (store.submit(run, queueing(limits)).await, full) {
            (Ok(Acceptance::New), None) => runs.push(run_id),
            (Err(StoreError::QueueFull { what, .. }), Some(full)) => assert_eq!(what, full),
            (other, _) => panic!("{principal}: {other:?}"),
        }
    }
    let request = ClaimRequest {
        running_per_principal: Some(1),
        ..next()
    };
    let first = store.claim(request).await.unwrap().unwrap().lease;
    assert_eq!(first.run_id, runs[0]);
    let second = store.claim(request).await.unwrap().unwrap().lease;
    assert_eq!(second.run_id, runs[2], "the other principal's");
    assert!(store.claim(request).await.unwrap().is_none(), "one each");
    let cancel = CancelRecord {
        at: clock(),
        by: "ann".to_owned(),
        via: "test".to_owned(),
        reason: None,
    };
    let decided = store.request_cancel(runs[1], cancel.clone()).await.unwrap();
    assert_eq!(decided, CancelDecision::Recorded(RunState::Queued));
    let other = CancelRecord {
        by: "bob".to_owned(),
        ..cancel.clone()
    };
    let decided = store.request_cancel(runs[1], other).await.unwrap();
    assert_eq!(decided, CancelDecision::Repeated(RunState::Queued));
    let claimed = store.claim(request).await.unwrap().unwrap();
    assert_eq!(
        (claimed.lease.run_id, claimed.cancel),
        (runs[1], Some(cancel.clone()))
    );
    // A run that waits for a person is not one that goes on.
    store.ask_approval(first, question("a")).await.unwrap();
    assert!(store.renew(first, LEASE).await.unwrap().is_none());
    store
        .request_cancel(first.run_id, cancel.clone())
        .await
        .unwrap();
    assert_eq!(
        store.renew(first, LEASE).await.unwrap(),
        Some(cancel.clone())
    );
    finish(&store.with_lease(second), second.run_id)
        .await
        .unwrap();
    let late = store.request_cancel(second.run_id, cancel).await.unwrap();
    assert!(matches!(late, CancelDecision::Ended(_)));
}

/// Messages are written with what they tell of, claimed for a while, and come again until they are removed.
#[tokio::test]
async fn the_outbox_tells_at_least_once() {
    let dir = directory();
    let (first, second) = two(&dir).await;
    let run = submit(&first, None).await;
    let lease = claim(&first).await;
    let asked = first.ask_approval(lease, question("a")).await.unwrap();
    finish(&first.with_lease(lease), run).await.unwrap();
    let minute = Duration::from_secs(60);
    let messages = first.claim_outbox(10, minute).await.unwrap();
    let topics: Vec<&str> = messages.iter().map(|one| one.topic.as_str()).collect();
    assert_eq!(topics, ["approval.requested", "run.ended"]);
    assert!(
        messages
            .iter()
            .all(|one| one.destination == "hook" && one.run_id == run)
    );
    let body: serde_json::Value = serde_json::from_str(&messages[0].body).unwrap();
    assert_eq!(body["approval_id"], asked.id.to_string());
    let body: serde_json::Value = serde_json::from_str(&messages[1].body).unwrap();
    assert_eq!(body["state"], "complete");
    assert!(
        second.claim_outbox(10, minute).await.unwrap().is_empty(),
        "claimed"
    );
    assert!(first.remove_outbox(messages[0].id).await.unwrap());
    assert!(!second.remove_outbox(messages[0].id).await.unwrap());
    pass(61_000);
    let again = second.claim_outbox(10, minute).await.unwrap();
    assert_eq!(again.len(), 1);
    assert_eq!((again[0].id, again[0].attempt), (messages[1].id, 2));
    let later = Timestamp::from_unix_millis(clock().as_unix_millis() + 5_000);
    assert!(second.retry_outbox(again[0].id, later).await.unwrap());
    assert!(
        first.claim_outbox(10, minute).await.unwrap().is_empty(),
        "not yet"
    );
    pass(5_001);
    assert_eq!(first.claim_outbox(10, minute).await.unwrap().len(), 1);
}
