//! The arguments of commands about runs of any process.

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
