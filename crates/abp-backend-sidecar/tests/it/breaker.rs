//! The circuit breaker is the backend's, not a run's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use abp_backend_core::{Backend as _, OpenSpec};
use abp_backend_sidecar::{BreakerState, SidecarBackend};
use abp_core::PolicyProfile;
use abp_error::{AbpError, ErrorCode};
use abp_host::SidecarSpec;
use abp_policy::PolicyEngine;
use uuid::Uuid;

async fn open(backend: &SidecarBackend, workspace: &std::path::Path) -> AbpError {
    let spec = OpenSpec {
        run_id: Uuid::new_v4(),
        workspace_root: workspace.to_owned(),
        overlays: Vec::new(),
        model: None,
        policy: PolicyEngine::new(&PolicyProfile::default()).unwrap(),
        hidden: Vec::new(),
        source: None,
        budget: None,
        session: None,
        traceparent: None,
    };
    match backend.open(spec).await {
        Ok(_) => panic!("a program that is not there was started"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn c22_runs_of_one_backend_share_its_breaker() {
    let workspace = tempfile::tempdir().unwrap();
    let spec = SidecarSpec::new("/nowhere/agent", workspace.path());
    let backend = Arc::new(SidecarBackend::new("agent", spec.clone(), 0));
    assert_eq!(backend.state(), BreakerState::Closed);
    let error = open(&backend, workspace.path()).await;
    assert_eq!(error.code(), ErrorCode::SidecarSpawnFailed);
    let BreakerState::BackingOff { failures: 1, wait } = backend.state() else {
        panic!("{:?}", backend.state());
    };
    // Another run of the same backend waits before it tries again.
    let started = Instant::now();
    let again = Arc::clone(&backend);
    let error = open(&again, workspace.path()).await;
    assert_eq!(error.code(), ErrorCode::SidecarSpawnFailed);
    assert!(started.elapsed() >= wait.min(Duration::from_millis(50)));
    assert!(matches!(
        backend.state(),
        BreakerState::BackingOff { failures: 2, .. }
    ));
    // After the fifth failure runs are refused at once.
    for _ in 0..3 {
        open(&backend, workspace.path()).await;
    }
    let started = Instant::now();
    let refused = open(&backend, workspace.path()).await;
    assert_eq!(refused.code(), ErrorCode::CircuitBreakerOpen, "{refused}");
    assert!(started.elapsed() < Duration::from_millis(100));
    // A backend of its own has a breaker of its own: it is shared by the instance alone.
    let other = SidecarBackend::new("agent", spec, 0);
    assert_eq!(other.state(), BreakerState::Closed);
}

/// Secrets of the configuration are in no error of a sidecar that does not start.
#[tokio::test]
async fn b13_errors_hold_no_secrets() {
    let workspace = tempfile::tempdir().unwrap();
    let mut spec = SidecarSpec::new("agent", workspace.path());
    spec.env
        .insert("KEY".to_owned(), "canary-0123456789".to_owned());
    spec.secrets = vec!["canary-0123456789".into()];
    assert!(!format!("{spec:?}").contains("canary"), "{spec:?}");
    spec.command = "/nowhere/canary-0123456789".to_owned();
    let backend = SidecarBackend::new("agent", spec, 0);
    let error = open(&backend, workspace.path()).await.to_dto();
    let error = serde_json::to_string(&error).unwrap();
    assert!(error.contains("[redacted]"), "{error}");
    assert!(!error.contains("canary"), "{error}");
}
