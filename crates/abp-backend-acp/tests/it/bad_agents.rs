//! Agents that misbehave: one typed error, a truthful receipt, and nothing left of them.

use std::time::{Duration, Instant};

use abp_core::{CancelReason, Outcome, PolicyProfile};
use abp_error::ErrorCode;
use abp_runtime::RunOptions;

use crate::lab::{Lab, is_anything_left, names, warnings};

#[tokio::test]
async fn a_bad_agent_ends_in_one_typed_error_and_nothing_is_left_of_it() {
    let cases = [
        ("idle", ErrorCode::BackendBrokenAnswer, "without an answer"),
        (
            "mute",
            ErrorCode::ProtocolHandshakeFailed,
            "did not answer initialize",
        ),
        (
            "foreign",
            ErrorCode::ProtocolVersionMismatch,
            "negotiated 2",
        ),
        (
            "dies",
            ErrorCode::BackendCrashed,
            "ended before it answered session/prompt",
        ),
        ("endless", ErrorCode::ProtocolInvalidEnvelope, "longer than"),
        ("hangs", ErrorCode::BackendStalled, "said and did nothing"),
        ("logged-out", ErrorCode::BackendAuthFailed, "log in first"),
    ];
    for (behaviour, code, said) in cases {
        let lab = Lab::with(behaviour, |spec| {
            spec.timing.stall = Duration::from_millis(600);
            if behaviour == "mute" {
                spec.timing.initialize = Duration::from_millis(300);
            }
        });
        let receipt = lab.run(PolicyProfile::default()).await;
        assert_eq!(receipt.outcome, Outcome::Failed, "{behaviour}");
        let error = receipt.error.unwrap();
        assert_eq!(error.code, code, "{behaviour}: {}", error.message);
        assert!(
            error.message.contains(said),
            "{behaviour}: {}",
            error.message
        );
        if behaviour == "dies" {
            assert_eq!(error.context["exit_code"], 3);
            assert_eq!(error.context["stderr_tail"], "it broke");
        }
        let home = lab.homes().join(receipt.meta.run_id.to_string());
        assert!(
            home.is_dir(),
            "{behaviour}: its home directory is kept with the run"
        );
        assert!(!is_anything_left(&home), "{behaviour}");
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_or_is_of_another_version_is_refused() {
    let missing = Lab::with("good", |spec| spec.command = "/no/such/agent".to_owned());
    let receipt = missing.run(PolicyProfile::default()).await;
    let code = receipt.error.map(|error| error.code);
    assert_eq!(code, Some(ErrorCode::SidecarSpawnFailed));
    let other = Lab::with("good", |spec| spec.version = Some("2.0.0".to_owned()));
    let receipt = other.run(PolicyProfile::default()).await;
    let error = receipt.error.unwrap();
    assert_eq!(error.code, ErrorCode::BackendUnavailable);
    assert!(
        error.message.contains("`abp agents update`"),
        "{}",
        error.message
    );
}

#[tokio::test]
async fn a_cancelled_run_ends_within_two_seconds_whatever_the_agent_does() {
    for behaviour in ["hangs", "asks-late"] {
        let lab = Lab::new(behaviour);
        let order = lab.order(PolicyProfile::default());
        let started = lab.runtime.run_with("agent", order, RunOptions::default());
        let mut handle = started.await.unwrap();
        while let Some(followed) = handle.events.next().await.unwrap() {
            if followed.event.kind.name() == "assistant_delta" {
                break;
            }
        }
        let cancelled = Instant::now();
        handle.cancel_handle().cancel(CancelReason::User);
        drop(handle.events);
        let receipt = handle.receipt.await.unwrap();
        let took = cancelled.elapsed();
        assert!(took < Duration::from_secs(2), "{behaviour}: {took:?}");
        assert_eq!(receipt.outcome, Outcome::Cancelled, "{behaviour}");
        assert_eq!(receipt.cancel_reason, Some(CancelReason::User));
        assert_eq!(
            receipt.verification.git_status.as_deref(),
            Some(""),
            "{behaviour}"
        );
        let home = lab.homes().join(receipt.meta.run_id.to_string());
        assert!(!is_anything_left(&home), "{behaviour}");
    }
}

#[tokio::test]
async fn what_is_not_known_is_kept_with_its_label() {
    let receipt = Lab::new("noisy").run(PolicyProfile::default()).await;
    assert_eq!(receipt.outcome, Outcome::Complete, "{:?}", receipt.error);
    let names = names(&receipt);
    for label in ["acp_update", "acp_notification"] {
        assert!(names.iter().any(|name| name == label), "{names:?}");
    }
    let warnings = warnings(&receipt);
    assert_eq!(
        warnings,
        [
            "the agent asked for \"terminal/create\", which is not offered",
            "the agent wrote 1 lines to its standard output that are no messages",
        ]
    );
}

#[tokio::test]
async fn an_agent_that_floods_is_taken_at_the_pace_of_the_host() {
    let receipt = Lab::new("floods").run(PolicyProfile::default()).await;
    assert_eq!(receipt.outcome, Outcome::Complete, "{:?}", receipt.error);
    let digest = receipt.trace_digest.unwrap();
    assert!(digest.count >= 3, "{digest:?}");
}
