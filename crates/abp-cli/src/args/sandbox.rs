//! The arguments of `abp sandbox`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct SandboxArgs {
    #[command(subcommand)]
    pub(crate) command: SandboxCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Run a program that can write this directory, read the system and toolchains, and do nothing else.
    Run(Box<SandboxRunArgs>),
    /// Show what a program would see and which layer would hold each rule of a policy.
    Explain(SandboxPlanArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  abp sandbox run -- bash\n  \
abp sandbox run --policy policy.json -- ls -la\n  \
abp sandbox run --network api.example.com --read-only /opt --env TOKEN -- env\n\n\
The exit status is the program's. Connections that were refused are listed at the end.")]
pub(crate) struct SandboxRunArgs {
    #[command(flatten)]
    pub(crate) plan: SandboxPlanArgs,
    /// A variable for the program: NAME=VALUE, or NAME for its value here.
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
    /// The program and its arguments [default: your shell].
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  abp sandbox explain --policy policy.json --network api.example.com"
)]
pub(crate) struct SandboxPlanArgs {
    /// The directory the program may write [default: .].
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// A policy profile: a configured name, or a file (JSON).
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) policy: Option<String>,
    /// A host that may be reached, besides those of the policy.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) network: Vec<String>,
    /// A file or directory that may be read, besides the system and toolchains.
    #[arg(long, value_name = "PATH")]
    pub(crate) read_only: Vec<PathBuf>,
}
