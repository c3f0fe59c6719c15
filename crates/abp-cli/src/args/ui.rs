//! The arguments of the console.

use std::net::SocketAddr;

use clap::Args;

#[derive(Debug, Args)]
#[command(
    after_help = "The address holds a code that is good once and for 60 seconds, never the key.\n\n\
Example:\n  abp ui --print"
)]
pub(crate) struct UiArgs {
    /// Print the address instead of opening it.
    #[arg(long)]
    pub(crate) print: bool,
    /// The address of the server [default: bind_address and port, else 127.0.0.1:8088]; --remote names one
    /// elsewhere.
    #[arg(long, value_name = "ADDR", env = "ABP_LISTEN")]
    pub(crate) listen: Option<SocketAddr>,
}
