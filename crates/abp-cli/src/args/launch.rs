//! The arguments of `abp launch`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{KeyLimits, OnLoss};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  abp launch claude\n  \
abp launch codex --model claude-sonnet-4-5 --budget-usd 2 -- exec \"fix the tests\"\n  \
abp launch gemini --print\n\n\
The agent's own settings stay as they are: it is pointed at the gateway by its environment, its\n\
command line and files that are gone afterwards. It gets a key of its own, which is revoked when it\n\
ends. Where no `abp serve` of this state directory answers, a gateway runs along with the agent.\n\
The exit status is the agent's.")]
pub(crate) struct LaunchArgs {
    /// The agent.
    pub(crate) agent: Agent,
    /// The model to ask for [default: the agent's own choice or, where it has none, the first that an
    /// upstream serves by name].
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// The gateway, where it is another one than that of this configuration.
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// Where `abp serve` listens [default: bind_address and port, else 127.0.0.1:8088].
    #[arg(long, value_name = "ADDR", env = "ABP_LISTEN")]
    pub(crate) listen: Option<SocketAddr>,
    /// A key of the gateway, instead of one that is made for this launch.
    #[arg(long, value_name = "FILE", conflicts_with_all = LIMITS)]
    pub(crate) key_file: Option<PathBuf>,
    /// What to do where the upstream cannot take all that the agent asks for.
    #[arg(long, value_name = "WHAT", default_value = "label")]
    pub(crate) on_loss: OnLoss,
    /// Show what the agent would be given, and start nothing.
    #[arg(long)]
    pub(crate) print: bool,
    #[command(flatten)]
    pub(crate) limits: KeyLimits,
    /// What the agent is called with.
    #[arg(last = true, value_name = "ARGS")]
    pub(crate) args: Vec<OsString>,
}

/// What is said of a key that is made, and cannot be said of one that is there.
const LIMITS: [&str; 8] = [
    "models",
    "rpm",
    "tpm",
    "budget_usd",
    "token_budget",
    "max_output_tokens",
    "max_concurrent",
    "max_sessions",
];

/// An agent that can be pointed at a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Agent {
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// Copilot CLI.
    Copilot,
    /// Kimi Code.
    Kimi,
    /// opencode.
    Opencode,
}
