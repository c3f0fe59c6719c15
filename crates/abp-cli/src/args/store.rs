//! The arguments of the commands for a store on Postgres.

use clap::Args;

#[derive(Debug, Args)]
#[command(
    after_help = "A store in a file needs no command: the first command that writes brings it up to date.\n\
Steps only lead forward, all of them or none, and a database of a newer release is refused.\n\
Exit status: 0 up to date, 2 with --check: there is something to do.\n\n\
Example:\n  abp migrate --check"
)]
pub(crate) struct MigrateArgs {
    /// Only say what there is to do.
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A store in a file has no nodes: the list is empty.\n\nExample:\n  abp nodes"
)]
pub(crate) struct NodesArgs {}
