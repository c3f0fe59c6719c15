//! `abp agents`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct AgentsArgs {
    #[command(subcommand)]
    pub(crate) command: AgentsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentsCommand {
    /// Install agents in their pinned versions, without running any script of a package.
    #[command(after_help = "Examples:\n  abp agents install claude codex\n  \
abp run --backend claude --task \"fix the tests\"")]
    Install {
        /// The agents.
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
    /// List the agents that can be installed, and those that are.
    List,
    /// Try what agents can do on a scripted model, and print what was seen beside what they claim.
    #[command(after_help = "Examples:\n  abp agents probe claude codex\n  \
abp agents probe sidecar:claude --out evidence\n\n\
Every backend that asks its models through the gateway can be probed. Nothing leaves this machine.")]
    Probe {
        /// The agents, or backends such as `sidecar:claude`.
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
        /// Also write the evidence to a file of this directory, by the agent's name.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Install the pinned versions of installed agents, and remove earlier ones.
    Update {
        /// The agents; all installed ones when omitted.
        #[arg(value_name = "NAME")]
        names: Vec<String>,
    },
}
