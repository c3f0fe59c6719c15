//! The arguments of an import.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(
    after_help = "Nothing of the directory is trusted: receipts are copied and are at best consistent with \
themselves;\nkeys, stores, stages and configuration stay where they are.\n\
Exit status: 0 ok, 7 a receipt is wrong.\n\nExample:\n  abp import .agent-backplane"
)]
pub(crate) struct ImportArgs {
    /// The state directory that an earlier version left in a project.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}
