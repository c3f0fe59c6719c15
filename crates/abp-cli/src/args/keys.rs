//! The arguments of `abp keys`, and what a key may be limited to.

use std::time::Duration;

use abp_core::MicroUsd;
use abp_store::KeyScope;
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    pub(crate) command: KeysCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Make a key. It is printed this once; only its hash is kept.
    #[command(
        after_help = "Examples:\n  abp keys create --name ci --models 'gpt-*' --budget-usd 5 --expires 30d\n  \
export OPENAI_API_KEY=$(abp keys create --name me --json | jq -r .key)\n\n\
A budget in dollars needs a price for every model that the key asks for."
    )]
    Create(NewKeyArgs),
    /// List the keys that are good, with what they may do and what they have spent.
    #[command(after_help = "Example:\n  abp keys list --all --json")]
    List {
        /// Also those that are revoked or expired.
        #[arg(long)]
        all: bool,
    },
    /// Print the key of the operator, which may do everything. Other keys are printed only when made.
    #[command(after_help = "Example:\n  export OPENAI_API_KEY=$(abp keys show operator)")]
    Show {
        /// Which key; only `operator` can be shown.
        #[arg(value_parser = ["operator"])]
        key: String,
    },
    /// Make a key useless, for ever. A gateway that runs follows within a second.
    #[command(after_help = "Example:\n  abp keys revoke key_0f3a9c51d2e4")]
    Revoke {
        /// The key's id, as `abp keys list` shows it.
        id: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct NewKeyArgs {
    /// What it is called, for people.
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) name: String,
    /// How long it is good: seconds, or a duration like `12h` or `30d` [default: until revoked].
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    pub(crate) expires: Option<Duration>,
    /// What it may do, separated by commas: models, runs:read, runs:write, apply, approve, upload, assist,
    /// admin [default: models,assist].
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', value_parser = scope)]
    pub(crate) scopes: Option<Vec<KeyScope>>,
    #[command(flatten)]
    pub(crate) limits: KeyLimits,
}

/// What a key may do. Without a limit there is none.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits of the key")]
pub(crate) struct KeyLimits {
    /// A model it may use, by name or pattern; may be repeated [default: all].
    #[arg(long, value_name = "GLOB")]
    pub(crate) models: Vec<String>,
    /// How many requests it may make in a minute.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rpm: Option<u32>,
    /// How many tokens it may use in a minute.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) tpm: Option<u64>,
    /// How much it may spend in all.
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub(crate) budget_usd: Option<MicroUsd>,
    /// How many tokens it may use in all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) token_budget: Option<u64>,
    /// How many tokens one answer may have.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_output_tokens: Option<u64>,
    /// The most requests it may have at once.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_concurrent: Option<u32>,
    /// The most MCP sessions it may have at once.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_sessions: Option<u32>,
}

fn name(text: &str) -> Result<String, String> {
    const LONGEST: usize = 100;
    let fits = (1..=LONGEST).contains(&text.chars().count());
    if fits && !text.chars().any(char::is_control) {
        Ok(text.to_owned())
    } else {
        Err(format!("expected 1 to {LONGEST} characters of text"))
    }
}

fn dollars(text: &str) -> Result<MicroUsd, String> {
    let dollars = text.parse().ok().and_then(MicroUsd::from_dollars);
    dollars
        .filter(|amount| *amount > MicroUsd::default())
        .ok_or_else(|| "expected a number of dollars above zero".to_owned())
}

/// Days, which durations do not have, are those of 24 hours.
pub(super) fn lifetime(text: &str) -> Result<Duration, String> {
    const DAY_SECS: u64 = 86_400;
    match text.strip_suffix('d').map(str::parse::<u32>) {
        Some(Ok(days)) if days > 0 => Ok(Duration::from_secs(u64::from(days) * DAY_SECS)),
        _ => super::duration(text),
    }
}

fn scope(text: &str) -> Result<KeyScope, String> {
    KeyScope::from_name(text).ok_or_else(|| {
        let known = KeyScope::ALL.map(KeyScope::as_str);
        format!("no scope is {text:?}; there are {}", known.join(", "))
    })
}
