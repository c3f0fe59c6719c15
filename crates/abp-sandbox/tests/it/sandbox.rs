//! What a program in a sandbox sees and can do.

use std::fs;

use abp_sandbox::Exit;

use crate::support::{lacks_namespaces, request, run};

#[tokio::test]
async fn a_program_sees_the_system_its_workspace_and_nothing_else() {
    if lacks_namespaces("the view of a sandbox") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let workspace = place.path().canonicalize().unwrap().join("work");
    fs::create_dir(&workspace).unwrap();
    fs::write(workspace.join("file"), "content").unwrap();
    let script = "cat file; echo new > made; ls -A /; ls -A /dev; hostname; echo $$; \
                  tail -n +3 /proc/net/dev | cut -d: -f1";
    let (exit, output, errors) = run(&request(&workspace), script).await.unwrap();
    println!("{output}\n{errors}");
    assert_eq!(exit, Exit::Code(0), "{errors}");
    assert_eq!(fs::read_to_string(workspace.join("made")).unwrap(), "new\n");
    let seen: Vec<&str> = output
        .strip_prefix("content")
        .unwrap()
        .split_whitespace()
        .collect();
    for absent in ["boot", "mnt", "run", "sys", "kmsg", "mem", "vda", "eth0"] {
        assert!(!seen.contains(&absent), "{absent} is seen");
    }
    for present in [
        "dev", "etc", "proc", "tmp", "usr", "null", "sandbox", "2", "lo",
    ] {
        assert!(seen.contains(&present), "{present} is missing");
    }
}
