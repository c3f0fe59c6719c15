//! The arguments of the server.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  abp serve\n  abp serve --listen 127.0.0.1:9000\n  \
OPENAI_BASE_URL=http://127.0.0.1:8088/v1 OPENAI_API_KEY=$(abp keys show operator) python app.py\n\n\
Without configured upstreams the embedded model answers to every name."
)]
pub(crate) struct ServeArgs {
    /// The address to listen on; port 0 takes a free one [default: bind_address and port, else
    /// 127.0.0.1:8088].
    #[arg(long, value_name = "ADDR", env = "ABP_LISTEN")]
    pub(crate) listen: Option<SocketAddr>,
    /// The operator's key; made where there is none [default: gateway.key in the state directory].
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Listen for other machines although nothing is encrypted.
    #[arg(long)]
    pub(crate) insecure_bind: bool,
}
