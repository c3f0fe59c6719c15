//! `abp agents`.

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
    /// Install the pinned versions of installed agents, and remove earlier ones.
    Update {
        /// The agents; all installed ones when omitted.
        #[arg(value_name = "NAME")]
        names: Vec<String>,
    },
}
