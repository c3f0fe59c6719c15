//! `abp acp`.

use clap::Args;

use super::{HostArgs, LaneArg};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  abp acp\n  abp acp --backend auto\n  \
abp acp --backend mock --lane workspace-first\n\n\
An editor starts this command and talks to it; docs/editors.md has a configuration for Zed, JetBrains\n\
and Neovim. Each prompt is a run in the editor's directory: staged, under your policy, with a receipt\n\
(`abp runs list`). Backend and lane can be changed in the editor, session by session.")]
pub(crate) struct AcpArgs {
    /// The backend of new sessions, or `auto` for whichever fits best [default: the configured one,
    /// else mock].
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<String>,
    /// How changes reach the directory: when the person at the editor allows it, or when the run
    /// succeeded.
    #[arg(long, value_name = "LANE", default_value = "patch-first")]
    pub(crate) lane: LaneArg,
    /// The model; the backend's default when omitted.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// A policy besides the default protections: its configured name, or a file (JSON).
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) policy: Option<String>,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}
