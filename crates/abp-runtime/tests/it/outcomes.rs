//! Runs that do not complete: a backend that never opens, and results that must not be applied.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use abp_backend_core::{
    Backend, BackendDescriptor, BoxFuture, OpenSpec, RunEnd, Session, ToolInvocation,
};
use abp_core::{CancelReason, Outcome, Receipt};
use abp_error::{AbpError, ErrorCode};
use abp_runtime::RunOptions;
use serde_json::{Value, json};

use crate::bench::{Bench, Probe};

/// Long enough for a busy machine, and far from for ever.
const SOON: Duration = Duration::from_secs(15);

/// A backend that takes its time to open, or never does.
#[derive(Debug)]
struct Slow {
    inner: Probe,
    /// How long it takes; for ever without.
    delay: Option<Duration>,
    /// Set when it is no longer waited for.
    given_up: Arc<AtomicBool>,
}

/// Tells that opening was given up.
struct GivesUp(Arc<AtomicBool>);

impl Drop for GivesUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Backend for Slow {
    fn descriptor(&self) -> &BackendDescriptor {
        self.inner.descriptor()
    }

    fn open(&self, spec: OpenSpec) -> BoxFuture<'_, Result<Box<dyn Session>, AbpError>> {
        let given_up = GivesUp(Arc::clone(&self.given_up));
        Box::pin(async move {
            let _given_up = given_up;
            match self.delay {
                Some(delay) => tokio::time::sleep(delay).await,
                None => std::future::pending().await,
            }
            self.inner.open(spec).await
        })
    }
}

fn slow(delay: Option<Duration>, inner: Probe) -> (Bench, Arc<AtomicBool>) {
    let given_up = Arc::new(AtomicBool::new(false));
    let backend = Slow {
        inner,
        delay,
        given_up: Arc::clone(&given_up),
    };
    (
        Bench::new([Arc::new(backend) as Arc<dyn Backend>]),
        given_up,
    )
}

/// What ends a run from outside.
#[derive(Debug, Clone, Copy)]
enum Stop {
    TimeLimit(Duration),
    Cancel(CancelReason),
}

/// How long a run goes on before it is cancelled, so that it has done its work.
const BEFORE_CANCEL: Duration = Duration::from_millis(1_500);

/// Starts a run and ends it from outside.
async fn stopped(bench: &Bench, order: Value, stop: Stop) -> Receipt {
    let mut options = RunOptions::default();
    if let Stop::TimeLimit(limit) = stop {
        options.timeout = Some(limit);
    }
    let order = bench.order(order);
    let handle = bench.runtime.run_with("mock", order, options).await;
    let handle = handle.unwrap();
    if let Stop::Cancel(reason) = stop {
        let cancel = handle.cancel_handle();
        tokio::spawn(async move {
            tokio::time::sleep(BEFORE_CANCEL).await;
            cancel.cancel(reason);
        });
    }
    let followed = tokio::time::timeout(SOON, bench.follow(handle)).await;
    let (receipt, _) = followed.unwrap_or_else(|_| panic!("{stop:?} did not end the run"));
    receipt
}

const STOPS: &[(Stop, Outcome, ErrorCode)] = &[
    (
        Stop::TimeLimit(Duration::from_millis(1_500)),
        Outcome::Partial,
        ErrorCode::BackendTimeout,
    ),
    (
        Stop::Cancel(CancelReason::User),
        Outcome::Cancelled,
        ErrorCode::RunCancelled,
    ),
    (
        Stop::Cancel(CancelReason::Shutdown),
        Outcome::Cancelled,
        ErrorCode::RunCancelled,
    ),
    (
        Stop::Cancel(CancelReason::Disconnect),
        Outcome::Cancelled,
        ErrorCode::RunCancelled,
    ),
];

fn reason_of(stop: Stop) -> CancelReason {
    match stop {
        Stop::TimeLimit(_) => CancelReason::Timeout,
        Stop::Cancel(reason) => reason,
    }
}

/// A backend that hangs in `open` is given up at once, in every lane, and the run has its receipt.
#[tokio::test]
async fn a_backend_that_never_opens_does_not_outlast_the_limit() {
    let mut runs = tokio::task::JoinSet::new();
    for lane in ["patch_first", "workspace_first"] {
        for (stop, outcome, code) in STOPS {
            runs.spawn(never_opens(lane, *stop, *outcome, *code));
        }
    }
    runs.join_all().await;
}

async fn never_opens(lane: &str, stop: Stop, outcome: Outcome, code: ErrorCode) {
    let (bench, given_up) = slow(None, Probe::new(|_| async { RunEnd::completed() }));
    let started = Instant::now();
    let receipt = stopped(&bench, json!({ "lane": lane }), stop).await;
    let place = format!("{stop:?}, {lane}");
    assert!(started.elapsed() < SOON, "{place}");
    assert_eq!(receipt.outcome, outcome, "{place}");
    assert_eq!(receipt.cancel_reason, Some(reason_of(stop)), "{place}");
    assert_eq!(receipt.error.unwrap().code, code, "{place}");
    assert_eq!(receipt.backend.id, "mock", "{place}");
    assert!(given_up.load(Ordering::SeqCst), "{place}");
    assert!(!receipt.workspace.unwrap().applied, "{place}");
}

/// Opening and running share one limit.
#[tokio::test]
async fn time_spent_opening_counts() {
    let listens = Probe::new(|context| async move {
        context.cancelled().await;
        RunEnd::completed()
    });
    let (bench, _) = slow(Some(Duration::from_secs(2)), listens);
    let limit = Duration::from_secs(3);
    let started = Instant::now();
    let receipt = stopped(&bench, json!({}), Stop::TimeLimit(limit)).await;
    let taken = started.elapsed();
    assert_eq!(receipt.cancel_reason, Some(CancelReason::Timeout));
    assert!(
        taken >= limit && taken < limit + Duration::from_millis(1_700),
        "{taken:?}: a limit that starts anew when the backend is open takes 5 s"
    );
}

/// Every file below a directory, with its contents.
fn snapshot(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else {
                let bytes = std::fs::read(&path).unwrap();
                found.insert(path, bytes);
            }
        }
    }
    found
}

/// Changes, additions and removals that a run makes before it ends.
fn with_work(end: &Value) -> Value {
    let mut steps = vec![
        json!({"do": "write", "path": "kept.txt", "content": "changed\n"}),
        json!({"do": "write", "path": "new/file.txt", "content": "made\n"}),
    ];
    steps.extend(end.as_array().unwrap().iter().cloned());
    Value::from(steps)
}

/// One way for a run not to complete: what comes after its work, what the order adds, what happens from
/// outside, and how it ends.
struct Incomplete {
    name: &'static str,
    end: Value,
    order: Value,
    stop: Option<Stop>,
    outcome: Outcome,
    code: ErrorCode,
}

fn incomplete() -> Vec<Incomplete> {
    let sleep = || json!([{"do": "sleep", "ms": 600_000}]);
    let usage = json!({"do": "usage", "usage": {"output_tokens": 1_000}});
    let say = json!({"do": "say", "text": "not JSON"});
    let breach = |event: Value| json!([{"do": "emit", "event": event}]);
    let case = |name, end, order, outcome, code| Incomplete {
        name,
        end,
        order,
        stop: None,
        outcome,
        code,
    };
    let mut cases = vec![
        case(
            "failed",
            json!([{"do": "fail", "code": "BACKEND_RATE_LIMITED", "message": "later"}]),
            json!({}),
            Outcome::Failed,
            ErrorCode::BackendRateLimited,
        ),
        case(
            "over budget",
            json!([usage, say]),
            json!({"config": {"model": "priced", "max_budget_usd": 0.001}}),
            Outcome::Partial,
            ErrorCode::BudgetExceeded,
        ),
        case(
            "too many turns",
            json!([say, say]),
            json!({"config": {"max_turns": 1}}),
            Outcome::Partial,
            ErrorCode::TurnLimitExceeded,
        ),
        case(
            "denied tool",
            breach(json!({"type": "tool_call", "tool_name": "Bash", "input": {"command": "x"}})),
            json!({"policy": {"disallowed_tools": ["Bash"]}}),
            Outcome::Failed,
            ErrorCode::PolicyDenied,
        ),
        case(
            "denied path",
            breach(json!({"type": "file_changed", "path": "secret/x", "summary": "s"})),
            json!({"policy": {"deny_write": ["secret"]}}),
            Outcome::Failed,
            ErrorCode::PolicyDenied,
        ),
        case(
            "answer off its schema",
            json!([say]),
            json!({"config": {"vendor": {"abp": {"output_schema": {"type": "object"}}}}}),
            Outcome::Failed,
            ErrorCode::CapabilityEmulationFailed,
        ),
    ];
    for (stop, outcome, code) in STOPS {
        cases.push(Incomplete {
            stop: Some(*stop),
            ..case("stopped", sleep(), json!({}), *outcome, *code)
        });
    }
    cases
}

/// A result is applied when the run completed, and never otherwise. What was made stays in the stage.
#[tokio::test]
async fn a_run_that_did_not_complete_applies_nothing() {
    for one in incomplete() {
        let place = format!("{}, {:?}", one.name, one.stop);
        let bench = Bench::scripted(&with_work(&one.end));
        let before = snapshot(bench.source.path());
        let mut order = one.order;
        order["lane"] = json!("workspace_first");
        let receipt = match one.stop {
            Some(stop) => stopped(&bench, order, stop).await,
            None => bench.run(order).await.0,
        };
        let ended = (
            receipt.outcome,
            receipt.error.as_ref().map(|error| error.code),
        );
        assert_eq!(ended, (one.outcome, Some(one.code)), "{place}");
        assert_eq!(snapshot(bench.source.path()), before, "{place}");
        let workspace = receipt.workspace.as_ref().unwrap();
        assert!(!workspace.applied, "{place}");
        let changed = workspace.changes.as_ref().unwrap().files_changed;
        assert_eq!(changed, 2, "{place}: the work was done, and is not lost");
    }
    // The same work is applied where nothing keeps the run from completing.
    let bench = Bench::scripted(&with_work(&json!([])));
    let (receipt, _) = bench.run(json!({"lane": "workspace_first"})).await;
    assert_eq!(receipt.outcome, Outcome::Complete);
    assert!(receipt.workspace.unwrap().applied);
    let kept = std::fs::read_to_string(bench.source.path().join("kept.txt"));
    assert_eq!(kept.unwrap(), "changed\n");
    assert!(bench.source.path().join("new/file.txt").exists());
}

/// A backend that panics after its work, or that does not listen when it is told to stop.
#[tokio::test]
async fn a_defective_backend_applies_nothing() {
    type End = fn() -> BoxFuture<'static, RunEnd>;
    let cases: [(End, Option<Stop>, Outcome); 3] = [
        (
            || Box::pin(async { panic!("a defect of the backend") }),
            None,
            Outcome::Failed,
        ),
        (
            || Box::pin(std::future::pending()),
            Some(Stop::Cancel(CancelReason::User)),
            Outcome::Cancelled,
        ),
        (
            || Box::pin(async { RunEnd::failed(AbpError::new(ErrorCode::Internal, "x")) }),
            None,
            Outcome::Failed,
        ),
    ];
    for (end, stop, outcome) in cases {
        let probe = Probe::new(move |context| async move {
            let (path, content) = ("kept.txt".to_owned(), b"changed\n".to_vec());
            let write = ToolInvocation::WriteFile { path, content };
            context.use_tool(write).await.unwrap();
            end().await
        });
        let bench = Bench::new([Arc::new(probe) as Arc<dyn Backend>]);
        let before = snapshot(bench.source.path());
        let order = json!({"lane": "workspace_first"});
        let receipt = match stop {
            Some(stop) => stopped(&bench, order, stop).await,
            None => bench.run(order).await.0,
        };
        assert_eq!(receipt.outcome, outcome);
        assert_eq!(snapshot(bench.source.path()), before);
        assert!(!receipt.workspace.unwrap().applied);
    }
}
