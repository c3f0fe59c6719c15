//! Programs that were planted where an agent writes are not started.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use abp_core::AgentEventKind;
use abp_error::{AbpError, ErrorCode};

use crate::support::{failure, run, shell};

fn plant(path: &Path, script: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn d18_a_planted_program_is_never_started() {
    let root = tempfile::tempdir().unwrap();
    let workspace = root.path().join("ws");
    let touched = root.path().join("planted-was-started");
    for planted in ["sh", "grep", "node_modules/.bin/sh", "my-agent"] {
        plant(
            &workspace.join(planted),
            &format!("touch {}", touched.display()),
        );
    }
    let ws = workspace.display();
    let path = format!(":.:./node_modules/.bin:{ws}:{ws}/node_modules/.bin:/usr/bin:/bin");
    let (mut spec, _) = shell("hello; run; echo x | grep -q x; event \"$PATH\"; final; exit 0");
    spec.directory.clone_from(&workspace);
    spec.env.insert("PATH".to_owned(), path);
    let (events, ended) = run(spec.clone()).await.unwrap();
    assert!(ended.result.is_ok(), "{ended:?}");
    let AgentEventKind::AssistantDelta { text } = &events[0].kind else {
        panic!("{events:?}");
    };
    assert_eq!(text, "/usr/bin:/bin", "the sidecar's own search path");

    for (command, says) in [
        (
            "my-agent",
            "\"my-agent\" was not found on PATH in /usr/bin, /bin; passed over: ",
        ),
        ("./my-agent", "\"./my-agent\" is a relative path"),
        ("node_modules/.bin/sh", "is a relative path"),
        (
            "/nowhere/my-agent",
            "\"/nowhere/my-agent\" cannot be executed: No such file",
        ),
    ] {
        let mut spec = spec.clone();
        command.clone_into(&mut spec.command);
        let (_, failed) = failure(spec).await;
        let error = AbpError::from(failed);
        assert_eq!(error.code(), ErrorCode::SidecarSpawnFailed, "{command}");
        let cause = error.cause_chain().unwrap();
        assert!(cause.contains(says), "{command}: {cause}");
    }
    assert!(!touched.exists(), "a planted program was started");
}
