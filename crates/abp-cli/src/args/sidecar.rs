//! `abp sidecar`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::duration;

#[derive(Debug, Args)]
pub(crate) struct SidecarArgs {
    #[command(subcommand)]
    pub(crate) command: SidecarCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SidecarCommand {
    /// Check whether a program keeps the sidecar protocol, and say what to fix.
    #[command(after_help = "Example:\n  abp sidecar check -- python3 sidecar.py")]
    Check(SidecarCheckArgs),
    /// Write a sidecar to start from; it passes the check.
    #[command(after_help = "Example:\n  abp sidecar init --lang python my-agent")]
    Init {
        /// The language.
        #[arg(long, value_name = "LANG")]
        lang: SidecarLanguage,
        /// Where to.
        #[arg(value_name = "DIR", default_value = ".")]
        dir: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SidecarCheckArgs {
    /// What the program is asked to do; it works in an empty directory.
    #[arg(long, value_name = "TEXT", default_value = "say hello")]
    pub(crate) task: String,
    /// How long one run may take.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) timeout: std::time::Duration,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum SidecarLanguage {
    Node,
    Python,
    Rust,
}
