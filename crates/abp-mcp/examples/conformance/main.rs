//! What the official conformance suite of MCP talks to: a server with the tools, prompts and resources
//! its scenarios name, and a client that does what they ask for.
//!
//! `conformance server <legacy|modern|both>` prints its address and serves until it is ended;
//! `conformance client <url>` plays the scenario that the suite names in its environment; `conformance
//! tools <url> <key> <capabilities>` prints the tools that a server has for such a client. `cargo xtask
//! mcp` runs them.

mod client;
mod fixture;
mod http;
mod rounds;

use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;

use abp_mcp::{ProtocolVersion, VersionSpan};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["server", "legacy"] => http::serve(versions(VersionSpan::LEGACY)).await,
        ["server", "modern"] => http::serve(versions(VersionSpan::MODERN)).await,
        ["server", "both"] => http::serve(versions(VersionSpan::ALL)).await,
        ["client", url] => client::play(url).await,
        ["tools", url, key, capabilities] => client::print_tools(url, key, capabilities).await,
        _ => Err("usage: conformance server|client|tools ...".into()),
    };
    let Err(error) = done else {
        return ExitCode::SUCCESS;
    };
    // The status says so as well.
    drop(writeln!(io::stderr(), "conformance: {error}"));
    ExitCode::FAILURE
}

fn versions(span: VersionSpan) -> Vec<ProtocolVersion> {
    let all = ProtocolVersion::ALL.into_iter();
    all.filter(|version| span.contains(*version)).collect()
}
