//! Deciding about the changes of runs, and finding runs.

use std::path::{Path, PathBuf};

use abp_control::{
    ApplyOutcome, CancelOutcome, CancelRequest, ControlPlane, DecisionProgress, DiscardOutcome,
    OrderDraft, RunScope, Submission, apply_all, find_run, short_run_id,
};
use abp_error::ErrorCode;
use abp_runtime::{ApplyRequest, HostFiles, StartedRun};
use abp_store::ChangeSetState;
use serde_json::json;
use uuid::Uuid;

use crate::lab::{Lab, ann, me, read};

fn some(paths: &[&str]) -> ApplyRequest {
    ApplyRequest {
        paths: paths.iter().map(PathBuf::from).collect(),
        ..apply_all(ann())
    }
}

/// All undecided changes are applied by one request, which agrees to nothing in particular.
#[tokio::test]
async fn changes_are_applied_in_parts_and_shown_until_then() {
    let lab = Lab::new(&["a.txt", "sub/b.txt", ".vscode/c.json"], json!({}));
    let run_id = lab.run(json!({})).await.meta.run_id;
    let plane = &lab.plane;
    let shown = plane.changes(run_id).await.unwrap();
    assert_eq!(shown.progress, DecisionProgress::Undecided);
    assert!(shown.diff.contains("+++ b/a.txt"), "{}", shown.diff);
    let host_files: Vec<_> = shown
        .host_files
        .iter()
        .map(|(path, _)| path.clone())
        .collect();
    assert_eq!(host_files, [Path::new(".vscode/c.json")]);
    assert_eq!((shown.paths.len(), shown.status.lines().count()), (3, 3));

    let refused = plane.apply(run_id, &apply_all(ann())).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::ApprovalRequired);
    assert_eq!(read(&lab.source().join("a.txt")), None);
    let applied = plane.apply(run_id, &some(&["sub"])).await.unwrap();
    let ApplyOutcome::Applied(applied) = applied else {
        panic!("{applied:?}");
    };
    assert_eq!((applied.paths.len(), applied.remaining), (1, 2));
    let shown = plane.changes(run_id).await.unwrap();
    assert_eq!(shown.applied, ["sub/b.txt"]);
    assert!(!shown.diff.contains("b/sub/b.txt") && shown.diff.contains("b/a.txt"));
    assert_eq!((shown.paths.len(), shown.status.lines().count()), (2, 2));

    let agreed = ApplyRequest {
        host_files: HostFiles::Write,
        ..apply_all(ann())
    };
    plane.apply(run_id, &agreed).await.unwrap();
    assert_eq!(
        read(&lab.source().join(".vscode/c.json")).as_deref(),
        Some("new\n")
    );
    let again = plane.apply(run_id, &agreed).await.unwrap();
    assert!(
        matches!(&again, ApplyOutcome::AlreadyApplied { by, .. } if by == "ann"),
        "{again:?}"
    );
    let shown = plane.changes(run_id).await.unwrap();
    let expected = ChangeSetState::Applied;
    assert!(
        matches!(&shown.progress, DecisionProgress::Decided { state, .. } if *state == expected)
    );
    assert_eq!((shown.diff.as_str(), shown.paths.len()), ("", 0));
    let refused = plane.discard(run_id, ann()).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::NothingToDecide);
}

#[tokio::test]
async fn what_is_discarded_or_was_never_changed_is_not_applied() {
    let lab = Lab::new(&["a.txt"], json!({}));
    let run_id = lab.run(json!({})).await.meta.run_id;
    let plane = &lab.plane;
    let discarded = plane.discard(run_id, ann()).await.unwrap();
    assert!(matches!(discarded, DiscardOutcome::Discarded));
    let again = plane.discard(run_id, ann()).await.unwrap();
    assert!(matches!(again, DiscardOutcome::Nothing));
    let refused = plane.apply(run_id, &apply_all(ann())).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::NothingToDecide);
    assert_eq!(read(&lab.source().join("a.txt")), None);

    let idle = Lab::new(&[], json!({}));
    let run_id = idle.run(json!({})).await.meta.run_id;
    let shown = idle.plane.changes(run_id).await.unwrap();
    assert_eq!(
        (shown.progress, shown.diff.as_str()),
        (DecisionProgress::Unchanged, "")
    );
    let applied = idle.plane.apply(run_id, &apply_all(ann())).await.unwrap();
    assert_eq!(applied, ApplyOutcome::Nothing);
    let discarded = idle.plane.discard(run_id, ann()).await.unwrap();
    assert!(matches!(discarded, DiscardOutcome::Nothing));
    let unknown = idle.plane.changes(Uuid::now_v7()).await.unwrap_err();
    assert_eq!(unknown.code(), ErrorCode::NothingToDecide);
}

/// A run is found by its id, the beginning of one, or as the newest of its project.
#[tokio::test]
async fn runs_are_found_by_what_people_type() {
    let lab = Lab::new(&["a.txt"], json!({}));
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push(lab.run(json!({})).await.meta.run_id);
        std::thread::sleep(std::time::Duration::from_millis(3));
    }
    let store = lab.plane.store().await.unwrap();
    let here = RunScope::of_directory(&lab.source());
    let deep = lab.source().join("deep");
    std::fs::create_dir(&deep).unwrap();
    let beneath = RunScope::of_directory(&deep);
    let elsewhere = RunScope::of_directory(lab.home.path());
    assert_eq!(
        RunScope::of_directory(Path::new("/no/such/place")),
        RunScope::All
    );
    let newest = *ids.last().unwrap();
    for scope in [&here, &beneath, &RunScope::All] {
        assert_eq!(find_run(store, "last", scope).await.unwrap().run_id, newest);
    }
    let none = find_run(store, "last", &elsewhere).await.unwrap_err();
    assert!(
        none.message().contains("this project has no runs yet"),
        "{none}"
    );
    for run_id in &ids {
        let whole = run_id.to_string();
        let short = short_run_id(store, *run_id).await.unwrap();
        assert!(
            short.len() < whole.len() && whole.starts_with(&short),
            "{short}"
        );
        for text in [whole.as_str(), &short, &short.to_uppercase()] {
            let found = find_run(store, text, &elsewhere).await.unwrap();
            assert_eq!(found.run_id, *run_id, "{text}");
        }
    }
    let common = &ids[0].to_string()[..4];
    let several = find_run(store, common, &here).await.unwrap_err();
    assert!(
        several.message().starts_with("2 runs begin with"),
        "{several}"
    );
    for text in ["zzz", &Uuid::now_v7().to_string()] {
        let unknown = find_run(store, text, &here).await.unwrap_err();
        assert!(unknown.message().contains("shows all runs"), "{unknown}");
    }
    // A run that is not there has no short name.
    let other = Uuid::now_v7();
    assert_eq!(short_run_id(store, other).await.unwrap(), other.to_string());
}

/// Cancelling says whether there was something to cancel; a receipt is there once the run has ended.
#[tokio::test]
async fn a_run_that_is_over_cannot_be_cancelled() {
    let lab = Lab::new(&["a.txt"], json!({}));
    let receipt = lab.run(json!({})).await;
    let run_id = receipt.meta.run_id;
    let request = CancelRequest::default();
    let cancelled = lab.plane.cancel(&me(), run_id, request).await.unwrap();
    assert!(matches!(cancelled, CancelOutcome::AlreadyEnded(_)));
    assert_eq!(lab.plane.receipt(run_id).await.unwrap(), receipt);
    assert!(lab.plane.receipt(Uuid::now_v7()).await.is_err());
    lab.plane.close().await;
}

/// A run that goes on is cancelled, and that is told.
#[tokio::test]
async fn a_run_under_way_is_cancelled() {
    let lab = Lab::new(&["a.txt"], json!({}));
    let script = json!({"name": "slow", "steps": [{"do": "sleep", "ms": 60_000}]});
    let script = serde_json::from_value(script).unwrap();
    let plane = ControlPlane::open(lab.plane.config().clone(), &[script]).unwrap();
    let root = lab.source().to_str().unwrap().to_owned();
    let draft = OrderDraft::new("wait").with(|order| order.workspace.root = root);
    let submission = Submission {
        backend: Some("slow".to_owned()),
        ..Submission::new(draft.build(&plane).unwrap())
    };
    let started = plane.run_here(&me(), submission).await.unwrap();
    let StartedRun::Started(handle) = started else {
        panic!("a new run");
    };
    let request = CancelRequest {
        reason: Some("enough".to_owned()),
    };
    let cancelled = plane.cancel(&me(), handle.run_id, request).await.unwrap();
    assert!(matches!(cancelled, CancelOutcome::Requested(_)));
    let receipt = handle.receipt.await.unwrap();
    let error = receipt.error.expect("who and why");
    assert_eq!(error.message, "the run was cancelled by ann (cli): enough");
    assert_eq!(receipt.cancel_reason, Some(abp_core::CancelReason::User));
}
