//! Starting programs in sandboxes, by the public interface alone.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use abp_sandbox::{
    Confinement, ContainedProcess, EngineChoice, Exit, KernelFeatures, Launcher, Network,
    ProcessSpec, ResourceLimits, SandboxPlan, SandboxRequest, SpawnError, SystemLayout,
};
use tokio::io::AsyncReadExt as _;

/// How a program ended, and its output and errors.
pub(crate) type Finished = (Exit, String, String);

pub(crate) fn launcher() -> Launcher {
    Launcher::at(env!("CARGO_BIN_EXE_sandbox-launcher"))
}

pub(crate) fn kernel() -> KernelFeatures {
    KernelFeatures::probe(&launcher()).unwrap()
}

/// Says plainly that a test is skipped because the kernel has no namespaces for us.
pub(crate) fn lacks_namespaces(what: &str) -> bool {
    let kernel = kernel();
    let refused = kernel.namespaces.and(kernel.seccomp).err();
    if let Some(reason) = &refused {
        abp_testkit::skip(what, reason);
    }
    refused.is_some()
}

pub(crate) fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from)
}

pub(crate) fn request(workspace: &Path) -> SandboxRequest {
    SandboxRequest {
        engine: EngineChoice::Namespaces,
        workspace: workspace.to_owned(),
        protected: Vec::new(),
        concealed: Vec::new(),
        read_only: Vec::new(),
        overlays: Vec::new(),
        network: Network::Closed,
        scratch_bytes: None,
        scratch_dir: None,
        home: None,
    }
}

pub(crate) fn plan(request: &SandboxRequest) -> SandboxPlan {
    let system = SystemLayout::read(home().as_deref()).unwrap();
    SandboxPlan::new(request, &system, &kernel()).unwrap()
}

/// A program in a sandbox, with a search path as only variable.
pub(crate) fn spec(plan: SandboxPlan, program: &str, args: &[&str]) -> ProcessSpec {
    let path = OsString::from("/usr/local/bin:/usr/bin:/bin");
    ProcessSpec {
        program: program.into(),
        args: args.iter().map(OsString::from).collect(),
        env: BTreeMap::from([("PATH".into(), path)]),
        marks: BTreeMap::new(),
        directory: plan.workspace().to_owned(),
        confinement: Confinement::Sandboxed(plan),
        launcher: launcher(),
        limits: ResourceLimits::default(),
    }
}

pub(crate) async fn finish(spec: &ProcessSpec) -> Result<Finished, SpawnError> {
    let (mut process, mut pipes) = ContainedProcess::spawn(spec).await?;
    drop(pipes.stdin);
    let (mut output, mut errors) = (String::new(), String::new());
    let read = tokio::join!(
        pipes.stdout.read_to_string(&mut output),
        pipes.stderr.read_to_string(&mut errors),
    );
    read.0.and(read.1).unwrap();
    Ok((process.exited().await, output, errors))
}

/// Runs a shell script in a sandbox.
pub(crate) async fn run(request: &SandboxRequest, script: &str) -> Result<Finished, SpawnError> {
    finish(&spec(plan(request), "sh", &["-c", script])).await
}
