//! Applying the changes of runs: what may be written, what is left, and what stands in the way.

use std::path::PathBuf;

use abp_core::Outcome;
use abp_error::{AbpError, ErrorCode};
use abp_runtime::{Applied, ApplyRequest, Decider, DecisionState, HostFiles};
use abp_store::ChangeSetState;
use serde_json::json;
use uuid::Uuid;

use crate::bench::Bench;

fn request(paths: &[&str], host_files: HostFiles) -> ApplyRequest {
    ApplyRequest {
        decider: Decider {
            by: "ann".to_owned(),
            via: "test".to_owned(),
        },
        paths: paths.iter().map(PathBuf::from).collect(),
        host_files,
    }
}

async fn apply(bench: &Bench, run_id: Uuid, request: &ApplyRequest) -> Result<Applied, AbpError> {
    let state = bench.runtime.decision_state(run_id).await?;
    let DecisionState::Open(changes) = state else {
        panic!("{state:?}");
    };
    bench.runtime.apply(run_id, *changes, request).await
}

fn writing(paths: &[&str]) -> Bench {
    let steps: Vec<_> = paths
        .iter()
        .map(|path| json!({"do": "write", "path": path, "content": "new\n"}))
        .collect();
    Bench::scripted(&json!(steps))
}

/// Each request writes what it names and nothing else; what is left is counted, and the last one decides.
#[tokio::test]
async fn applied_paths_are_written_and_counted() {
    let bench = writing(&["a.txt", "d/b.txt", "d/c.txt", "e.txt"]);
    let (receipt, _) = bench.run(json!({})).await;
    let run_id = receipt.meta.run_id;
    let exists = |path: &str| bench.source.path().join(path).exists();
    let steps: [(&[&str], &[&str], u64); 3] = [
        (&["a.txt"], &["a.txt"], 3),
        (&["d"], &["d/b.txt", "d/c.txt"], 1),
        (&[], &["e.txt"], 0),
    ];
    for (asked, written, remaining) in steps {
        assert!(written.iter().all(|path| !exists(path)), "{asked:?}");
        let applied = apply(&bench, run_id, &request(asked, HostFiles::Refuse))
            .await
            .unwrap();
        let paths: Vec<_> = applied
            .paths
            .iter()
            .map(|path| path.to_str().unwrap())
            .collect();
        assert_eq!(
            (paths.as_slice(), applied.remaining),
            (written, remaining),
            "{asked:?}"
        );
        assert!(written.iter().all(|path| exists(path)), "{asked:?}");
    }
    let state = bench.runtime.decision_state(run_id).await.unwrap();
    let DecisionState::Decided { state, by, .. } = state else {
        panic!("{state:?}");
    };
    assert_eq!((state, by.as_str()), (ChangeSetState::Applied, "ann"));
}

/// A path that the run's policy denies, that takes effect on this machine, or that the user changed, is
/// not written, and then nothing is.
#[tokio::test]
async fn what_stands_in_the_way_is_named_and_nothing_is_written() {
    let bench = writing(&["plain.txt", ".envrc", "kept.txt"]);
    let (receipt, _) = bench.run(json!({})).await;
    let run_id = receipt.meta.run_id;
    let all = |host_files| request(&[], host_files);
    let refused = apply(&bench, run_id, &all(HostFiles::Refuse))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), ErrorCode::ApprovalRequired);
    assert!(refused.message().contains(".envrc"), "{refused}");
    std::fs::write(bench.source.path().join("kept.txt"), "another\n").unwrap();
    let refused = apply(&bench, run_id, &all(HostFiles::Write))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), ErrorCode::WorkspaceConflict, "{refused}");
    let unknown = request(&["none.txt"], HostFiles::Refuse);
    let refused = apply(&bench, run_id, &unknown).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::ValidationFailed, "{refused}");
    assert!(!bench.source.path().join("plain.txt").exists());
    std::fs::write(bench.source.path().join("kept.txt"), "kept\n").unwrap();
    let applied = apply(&bench, run_id, &all(HostFiles::Write)).await.unwrap();
    assert_eq!((applied.paths.len(), applied.remaining), (3, 0));
}

/// Changes that are thrown away are gone: nothing of them can be applied.
#[tokio::test]
async fn discarded_changes_are_gone() {
    let bench = writing(&["a.txt"]);
    let (receipt, _) = bench.run(json!({})).await;
    let run_id = receipt.meta.run_id;
    let decider = request(&[], HostFiles::Refuse).decider;
    bench.runtime.discard(run_id, decider).await.unwrap();
    let state = bench.runtime.decision_state(run_id).await.unwrap();
    let expected = ChangeSetState::Discarded;
    assert!(matches!(&state, DecisionState::Decided { state, .. } if *state == expected));
    assert!(!bench.source.path().join("a.txt").exists());
    let idle = writing(&[]);
    let (receipt, _) = idle.run(json!({})).await;
    assert_eq!(receipt.outcome, Outcome::Complete);
    let state = idle
        .runtime
        .decision_state(receipt.meta.run_id)
        .await
        .unwrap();
    assert_eq!(state, DecisionState::Nothing);
}
