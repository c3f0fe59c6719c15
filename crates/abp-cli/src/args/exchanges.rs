//! The arguments of `abp exchanges`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct ExchangesArgs {
    #[command(subcommand)]
    pub(crate) command: ExchangesCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExchangesCommand {
    /// List exchanges, the newest first.
    #[command(
        after_help = "Examples:\n  abp exchanges list --limit 5\n  abp exchanges list --failed --since 1h --json"
    )]
    List {
        /// How many.
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
        #[command(flatten)]
        filter: ExchangeFilter,
    },
    /// Show the receipt of one exchange.
    #[command(
        after_help = "Examples:\n  abp exchanges show last\n  abp exchanges show 0192f0c1-7a10 --json"
    )]
    Show {
        /// The exchange: its id (`x-abp-run-id`), the beginning of it, or `last`.
        exchange: String,
    },
    /// Count exchanges, tokens and money.
    #[command(
        after_help = "Examples:\n  abp exchanges stats\n  abp exchanges stats --by key --since 30d"
    )]
    Stats {
        /// What they are counted by.
        #[arg(long, value_name = "WHAT", default_value = "model")]
        by: GroupBy,
        #[command(flatten)]
        filter: ExchangeFilter,
    },
}

/// The exchanges that are looked at.
#[derive(Debug, Args)]
pub(crate) struct ExchangeFilter {
    /// Only those of the last time, such as `90s`, `12h` or `30d`.
    #[arg(long, value_name = "TIME", value_parser = super::keys::lifetime)]
    pub(crate) since: Option<Duration>,
    /// Only those of this key, by its id.
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Only those that asked for this model.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// Only those that this upstream answered.
    #[arg(long, value_name = "NAME")]
    pub(crate) upstream: Option<String>,
    /// Only those that did not succeed.
    #[arg(long)]
    pub(crate) failed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupBy {
    /// The model that was asked for.
    Model,
    /// The key that asked.
    Key,
    /// The upstream that answered.
    Upstream,
}
