//! Every way a run can end, each with exactly one receipt.

use std::sync::Arc;
use std::time::Duration;

use abp_backend_core::{Backend, RunEnd};
use abp_core::{AgentEventKind, CancelReason, Outcome, Receipt, verify_receipt_document};
use abp_error::{AbpError, ErrorCode};
use abp_runtime::{ApplyRequest, Decider, DecisionState, HostFiles};
use abp_store::ApplicationEnd;
use serde_json::json;

use crate::bench::{Bench, Probe};

fn ended(receipt: &Receipt) -> (Outcome, Option<ErrorCode>) {
    (
        receipt.outcome,
        receipt.error.as_ref().map(|error| error.code),
    )
}

fn bench(probe: Probe) -> Bench {
    Bench::new([Arc::new(probe) as Arc<dyn Backend>])
}

#[tokio::test]
async fn the_backend_ends_the_run() {
    let completes = Probe::new(|_| async { RunEnd::completed() });
    let fails = Probe::new(|_| async {
        RunEnd::failed(AbpError::new(ErrorCode::BackendRateLimited, "later"))
    });
    let panics = Probe::new(|_| async { panic!("a defect of the backend") });
    let panics_at_once =
        Probe::new(|_| -> std::future::Ready<RunEnd> { panic!("before the first step") });
    let mut refuses = Probe::new(|_| async { RunEnd::completed() });
    refuses.open = || Err(AbpError::new(ErrorCode::BackendUnavailable, "not there"));
    let mut panics_early = Probe::new(|_| async { RunEnd::completed() });
    panics_early.open = || panic!("a defect while opening");
    let cases = [
        (completes, (Outcome::Complete, None)),
        (
            fails,
            (Outcome::Failed, Some(ErrorCode::BackendRateLimited)),
        ),
        (panics, (Outcome::Failed, Some(ErrorCode::BackendCrashed))),
        (
            panics_at_once,
            (Outcome::Failed, Some(ErrorCode::BackendCrashed)),
        ),
        (
            refuses,
            (Outcome::Failed, Some(ErrorCode::BackendUnavailable)),
        ),
        (
            panics_early,
            (Outcome::Failed, Some(ErrorCode::BackendCrashed)),
        ),
    ];
    for (probe, expected) in cases {
        let (receipt, _) = bench(probe).run(json!({})).await;
        assert_eq!(ended(&receipt), expected);
    }
}

#[tokio::test]
async fn the_workspace_cannot_be_prepared() {
    let bench = bench(Probe::new(|_| async { RunEnd::completed() }));
    let (receipt, _) = bench
        .run(json!({"workspace": {"root": "/no/such/directory"}}))
        .await;
    assert_eq!(
        ended(&receipt),
        (Outcome::Failed, Some(ErrorCode::WorkspaceInitFailed))
    );
    assert!(!receipt.verification.harness_ok);
}

/// A backend that does not listen is given a moment and then dropped. The last run is cancelled before its
/// workspace is prepared.
#[tokio::test]
async fn cancelled_by_the_user() {
    let listens = Probe::new(|context| async move {
        context.cancelled().await;
        RunEnd::completed()
    });
    let deaf = Probe::new(|_| async {
        std::future::pending::<()>().await;
        RunEnd::completed()
    });
    let talks_on = Probe::new(|context| async move {
        loop {
            let message = "still here".to_owned();
            // Never looks at the answer.
            let _ = context.emit(AgentEventKind::Warning { message }).await;
        }
    });
    let unheard = Probe::new(|_| async { RunEnd::completed() });
    let moments = [(listens, 20), (deaf, 20), (talks_on, 20), (unheard, 0)];
    for (probe, moment) in moments {
        let bench = bench(probe);
        let handle = bench
            .runtime
            .run_streaming("mock", bench.order(json!({})))
            .await
            .unwrap();
        let cancel = handle.cancel_handle();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(moment)).await;
            cancel.cancel(CancelReason::User);
            cancel.cancel(CancelReason::Shutdown);
        });
        let (receipt, _) = bench.follow(handle).await;
        assert_eq!(
            ended(&receipt),
            (Outcome::Cancelled, Some(ErrorCode::RunCancelled))
        );
        assert_eq!(
            receipt.cancel_reason,
            Some(CancelReason::User),
            "the first reason counts"
        );
    }
}

/// Dropping the handle cancels the run; detaching it does not. Either way there is one receipt.
#[tokio::test]
async fn nobody_holds_on() {
    for (detach, expected) in [(false, Some(CancelReason::Disconnect)), (true, None)] {
        let bench = Bench::scripted(&json!([{"do": "sleep", "ms": 200}]));
        let handle = bench
            .runtime
            .run_streaming("mock", bench.order(json!({})))
            .await
            .unwrap();
        if detach {
            handle.receipt.detach();
        } else {
            drop(handle);
        }
        let document = loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            if let [path] = bench.receipts().as_slice()
                && path
                    .extension()
                    .is_some_and(|extension| extension == "json")
            {
                break std::fs::read(path).unwrap();
            }
        };
        assert_eq!(
            verify_receipt_document(&document).unwrap().cancel_reason,
            expected
        );
    }
}

/// A receipt that cannot be stored is an error, not a silence.
#[tokio::test]
async fn the_receipt_cannot_be_stored() {
    let bench = Bench::scripted(&json!([]));
    std::fs::write(bench.state.path().join("receipts"), "in the way").unwrap();
    let handle = bench
        .runtime
        .run_streaming("mock", bench.order(json!({})))
        .await
        .unwrap();
    let error = handle.receipt.await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::ReceiptStoreFailed, "{error}");
}

/// Paths of an application that was rolled back are as undecided as before: they are applied with the
/// rest.
#[tokio::test]
async fn paths_that_were_rolled_back_are_not_decided() {
    let bench = Bench::scripted(&json!([
        {"do": "write", "path": "a.txt", "content": "a"},
        {"do": "write", "path": "b.txt", "content": "b"},
    ]));
    let (receipt, _) = bench.run(json!({})).await;
    let run_id = receipt.meta.run_id;
    let store = bench.runtime.store().await.unwrap();
    let decider = Decider {
        by: "ann".to_owned(),
        via: "test".to_owned(),
    };
    let begun = store.begin_application(
        run_id,
        decider.clone(),
        vec!["a.txt".to_owned()],
        Vec::new(),
    );
    let end = ApplicationEnd::RolledBack { saves: Vec::new() };
    store
        .end_application(begun.await.unwrap(), end)
        .await
        .unwrap();
    assert!(
        bench
            .runtime
            .applied_paths(run_id)
            .await
            .unwrap()
            .is_empty()
    );
    let DecisionState::Open(changes) = bench.runtime.decision_state(run_id).await.unwrap() else {
        panic!("nothing was decided");
    };
    let request = ApplyRequest {
        decider,
        paths: Vec::new(),
        host_files: HostFiles::Refuse,
    };
    let applied = bench
        .runtime
        .apply(run_id, *changes, &request)
        .await
        .unwrap();
    assert_eq!((applied.paths.len(), applied.remaining), (2, 0));
    let paths = bench.runtime.applied_paths(run_id).await.unwrap();
    assert_eq!(Vec::from_iter(paths), ["a.txt", "b.txt"]);
}

/// A backend that is told to end has time to do so, and what it says then is in the receipt.
#[tokio::test]
async fn a_stopped_backend_may_still_wrap_up() {
    let bench = bench(Probe::new(|context| async move {
        context.cancelled().await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        RunEnd {
            usage_raw: json!({"said": "at the end"}),
            ..RunEnd::completed()
        }
    }));
    let handle = bench
        .runtime
        .run_streaming("mock", bench.order(json!({})))
        .await
        .unwrap();
    let run_id = handle.run_id;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(bench.runtime.cancel(run_id, CancelReason::User));
    let (receipt, _) = bench.follow(handle).await;
    assert_eq!(receipt.cancel_reason, Some(CancelReason::User));
    assert_eq!(receipt.usage_raw, json!({"said": "at the end"}));
}

/// A run takes as long as it takes: the duration is measured, and events carry the time at which they
/// came.
#[tokio::test]
async fn times_are_those_of_the_run() {
    let bench = Bench::scripted(&json!([
        {"do": "say", "text": "before"}, {"do": "sleep", "ms": 120}, {"do": "say", "text": "after"},
    ]));
    let started = std::time::Instant::now();
    let (receipt, events) = bench.run(json!({})).await;
    let longest = started.elapsed().as_millis();
    let duration = receipt.meta.duration_ms;
    assert!(
        duration >= 120 && u128::from(duration) <= longest,
        "{duration} of {longest} ms"
    );
    let at = |text: &str| {
        let said = |event: &&abp_core::AgentEvent| matches!(&event.kind, AgentEventKind::AssistantMessage { text: found } if found == text);
        let event = events.iter().find(said).unwrap();
        event.ts.as_unix_millis()
    };
    assert!(at("after") - at("before") >= 120);
    let ends = receipt.meta.finished_at.as_unix_millis() - receipt.meta.started_at.as_unix_millis();
    assert_eq!(u64::try_from(ends).unwrap(), duration);
}

/// The end of a process ends its runs, and says how many did not end in time.
#[tokio::test]
async fn a_runtime_that_finishes_cancels_and_counts_its_runs() {
    let bench = bench(Probe::new(|context| async move {
        context.cancelled().await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        RunEnd::completed()
    }));
    let none = bench
        .runtime
        .finish(CancelReason::Disconnect, Duration::from_secs(9));
    assert_eq!(none.await, 0, "there is no run");
    let handle = bench
        .runtime
        .run_streaming("mock", bench.order(json!({})))
        .await
        .unwrap();
    let soon = bench
        .runtime
        .finish(CancelReason::Disconnect, Duration::ZERO);
    assert_eq!(soon.await, 1, "it does not end at once");
    let (receipt, _) = bench.follow(handle).await;
    assert_eq!(receipt.cancel_reason, Some(CancelReason::Disconnect));
    let started = std::time::Instant::now();
    let later = bench
        .runtime
        .finish(CancelReason::Disconnect, Duration::from_secs(9));
    assert_eq!(later.await, 0);
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "nothing is waited for"
    );
}
