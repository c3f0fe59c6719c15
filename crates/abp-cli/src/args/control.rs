//! The arguments of commands about runs of any process.

use std::path::PathBuf;

use clap::Args;
use uuid::Uuid;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  abp approvals\n  abp approvals --answered --json")]
pub(crate) struct ApprovalsArgs {
    /// Only questions of this run: its id, the beginning of it, or `last`.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// List answered questions, too.
    #[arg(long)]
    pub(crate) answered: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  abp approve 0198f2c4-…\n  abp deny 0198f2c4-… --reason \"not on Fridays\""
)]
pub(crate) struct AnswerArgs {
    /// The question, as `abp approvals` lists it.
    pub(crate) id: Uuid,
    /// Why; the receipt says so.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The ages and sizes are settings of [retention]; without one nothing of its kind goes. Receipts and the\n\
log always stay, and so does everything of runs that have not ended or wait for a decision in time.\n\
`abp serve` does the same by itself.\n\nExamples:\n  abp gc --dry-run\n  abp gc --json"
)]
pub(crate) struct GcArgs {
    /// Only say what would go.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A backup holds the store (runs, events, receipts, the log, undecided changes, keys of callers), the private\n\
keys that sign the log and open submissions, and the operator's key. Keep it as you keep those keys.\n\
Stages, home directories of agents and uploads are not in it: changes that are undecided can be looked at\n\
after a restore, but not applied.\n\nExamples:\n  abp backup before-upgrade\n  abp backup --check before-upgrade"
)]
pub(crate) struct BackupArgs {
    /// The directory to make.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Only verify a backup that is there.
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The state directory must not be there, or be empty. Runs that were queued go on, and runs that went on are\n\
interrupted: do not restore beside a server that still has them.\n\nExample:\n  abp restore before-upgrade --state-dir restored"
)]
pub(crate) struct RestoreArgs {
    /// The backup.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  abp cancel last\n  abp cancel 0198f2c4 --reason \"wrong branch\""
)]
pub(crate) struct CancelArgs {
    /// The run: its id, the beginning of it, or `last`.
    pub(crate) run: String,
    /// Why; the receipt says so.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  abp logs last\n  abp logs last -f\n  abp logs last -f --jsonl --after 41"
)]
pub(crate) struct LogsArgs {
    /// The run: its id, the beginning of it, or `last`.
    pub(crate) run: String,
    /// Go on until the run has ended.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print each event as it is stored, one a line, with its number.
    #[arg(long)]
    pub(crate) jsonl: bool,
    /// Begin after the event with this number.
    #[arg(long, value_name = "SEQ")]
    pub(crate) after: Option<u64>,
}
