//! Limits on what a program in a sandbox may use.

use std::fs;

use abp_sandbox::{Exit, ResourceLimits};

use crate::support::{finish, lacks_namespaces, plan, request, spec};

/// Processes of the sandbox, its supervisor included.
const PROCESSES: u64 = 24;

#[tokio::test]
async fn a_fork_bomb_ends_at_the_limit() {
    if lacks_namespaces("a fork bomb") {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return abp_testkit::skip("a fork bomb", "it takes root to make a control group");
    }
    let place = tempfile::tempdir().unwrap();
    let workspace = place.path().canonicalize().unwrap().join("work");
    fs::create_dir(&workspace).unwrap();
    let script = "i=0; while [ $i -lt 200 ]; do sleep 60 & i=$((i+1)); echo $i > count; done";
    let mut spec = spec(plan(&request(&workspace)), "sh", &["-c", script]);
    spec.limits = ResourceLimits {
        processes: Some(PROCESSES),
        ..ResourceLimits::default()
    };
    let (exit, _, errors) = match finish(&spec).await {
        Ok(finished) => finished,
        Err(error) if error.to_string().contains("no control group") => {
            return abp_testkit::skip("a fork bomb", &error.to_string());
        }
        Err(error) => panic!("{error}"),
    };
    assert_ne!(exit, Exit::Code(0), "{errors}");
    assert!(errors.to_lowercase().contains("fork"), "{errors}");
    let count = fs::read_to_string(workspace.join("count")).unwrap();
    let count: u64 = count.trim().parse().unwrap();
    assert!((1..PROCESSES).contains(&count), "{count}");
}
