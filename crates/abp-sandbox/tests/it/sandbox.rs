//! What a program in a sandbox sees and can do.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use abp_sandbox::{
    Confinement, ContainedProcess, EngineChoice, Exit, KernelFeatures, Launcher, Network,
    ProcessSpec, ResourceLimits, SandboxPlan, SandboxRequest, SystemLayout,
};
use tokio::io::AsyncReadExt as _;

fn launcher() -> Launcher {
    Launcher::at(env!("CARGO_BIN_EXE_sandbox-launcher"))
}

pub(crate) fn request(workspace: &Path) -> SandboxRequest {
    SandboxRequest {
        engine: EngineChoice::Namespaces,
        workspace: workspace.to_owned(),
        protected: Vec::new(),
        concealed: Vec::new(),
        read_only: Vec::new(),
        network: Network::Closed,
        scratch_bytes: None,
        scratch_dir: None,
    }
}

/// Runs a shell script in a sandbox: its exit, output and errors.
async fn run(request: &SandboxRequest, script: &str) -> (Exit, String, String) {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let system = SystemLayout::read(home.as_deref()).unwrap();
    let kernel = KernelFeatures::probe(&launcher()).unwrap();
    let plan = SandboxPlan::new(request, &system, &kernel).unwrap();
    let mut env = BTreeMap::<OsString, OsString>::new();
    env.insert("PATH".into(), std::env::var_os("PATH").unwrap());
    env.extend(home.map(|home| ("HOME".into(), home.into())));
    let spec = ProcessSpec {
        program: "sh".into(),
        args: ["-c", script].map(OsString::from).to_vec(),
        env,
        marks: BTreeMap::new(),
        directory: request.workspace.clone(),
        confinement: Confinement::Sandboxed(plan),
        launcher: launcher(),
        limits: ResourceLimits::default(),
    };
    let (mut process, mut pipes) = ContainedProcess::spawn(&spec).await.unwrap();
    drop(pipes.stdin);
    let (mut output, mut errors) = (String::new(), String::new());
    pipes.stdout.read_to_string(&mut output).await.unwrap();
    pipes.stderr.read_to_string(&mut errors).await.unwrap();
    (process.exited().await, output, errors)
}

#[tokio::test]
async fn a_program_sees_the_system_its_workspace_and_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    let workspace = place.path().canonicalize().unwrap().join("work");
    fs::create_dir(&workspace).unwrap();
    fs::write(workspace.join("file"), "content").unwrap();
    let (exit, output, errors) = run(
        &request(&workspace),
        "cat file; echo new > made; ls -la / /etc ~ /tmp /dev; id; cat /proc/self/mountinfo; echo $$; cat /proc/net/dev; hostname",
    )
    .await;
    println!("{output}\n{errors}");
    assert_eq!(exit, Exit::Code(0), "{errors}");
    assert_eq!(fs::read_to_string(workspace.join("made")).unwrap(), "new\n");
}
