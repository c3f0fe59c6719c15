//! `abp mcp`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::HostArgs;

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  abp mcp\n  abp mcp --gateway\n  \
abp mcp negotiate --client client.json --servers files.json --servers search.json"
)]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    pub(crate) command: Option<McpCommand>,
    /// Serve what the servers under `[mcp.servers]` offer, as one server.
    #[arg(long)]
    pub(crate) gateway: bool,
    /// Refuse lists that are not offered, as the protocol says; else clients that ask all the same
    /// get empty ones.
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// Show flag by flag what a client gets from servers, from what each of them declares.
    Negotiate(NegotiateArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "A client's file: {\"protocolVersion\": \"2025-11-25\", \"capabilities\": {…}}, as in \
`initialize`.\nA server's file: the same, as in the answer to it; or the answer to \
`server/discover`. It is called by its file's name."
)]
pub(crate) struct NegotiateArgs {
    /// What the client declares (JSON).
    #[arg(long, value_name = "FILE")]
    pub(crate) client: PathBuf,
    /// What a server declares (JSON). May be repeated.
    #[arg(long = "servers", value_name = "FILE", required = true, num_args = 1..)]
    pub(crate) servers: Vec<PathBuf>,
}
