//! `abp present`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  abp run --task \"say hello\" --jsonl > run.jsonl\n  \
abp present --as voice run.jsonl\n  \
abp present --as cli --capabilities '{\"prefers_markdown\": false}' run.jsonl\n  \
abp run --task \"say hello\" --jsonl | abp present --as web -"
)]
pub(crate) struct PresentArgs {
    /// The client: web gets packets, cli text for a terminal, voice text to be spoken.
    #[arg(long = "as", value_name = "CLIENT")]
    pub(crate) client: ClientKind,
    /// What the client can take, where it is not what such a client takes (JSON).
    #[arg(long, value_name = "JSON")]
    pub(crate) capabilities: Option<String>,
    /// The run, an event on each line as `abp run --jsonl` writes it; `-` reads standard input.
    pub(crate) file: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientKind {
    Web,
    Cli,
    Voice,
}
