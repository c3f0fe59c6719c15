//! Repository tasks: `cargo xtask <task>`.
//!
//! Everything CI runs is one of these or plain cargo, so that it can be run the same way by hand.

mod agents;
mod bench;
mod console;
mod corpus;
mod mcp;
mod mutants;
mod npm;
mod output;
mod running;
mod schema;
mod sdk;
mod source;
mod test;
mod tidy;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Tasks of the Agent Backplane repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Write the JSON schemas and the generated parts of the documents.
    Schema {
        /// Only compare, and fail naming what differs.
        #[arg(long)]
        check: bool,
    },
    /// Check the rules of the repository.
    Tidy,
    /// Run every test suite and end with one summary.
    Test,
    /// Let the vendors' own SDKs read translated answers.
    Sdk,
    /// Let the vendors' own SDKs talk through the gateway.
    Gateway,
    /// Let Schemathesis and a generated client use the control plane.
    Control,
    /// Use the console in a real browser.
    Console {
        /// Also take the pictures of the documents, into this directory.
        #[arg(long)]
        images: Option<PathBuf>,
    },
    /// Let AG-UI's own client follow runs of a live server.
    AgUi,
    /// Let the official client of the Agent Client Protocol drive `abp acp`.
    Acp,
    /// Run real agents over ACP and through the gateway; not part of `test`, because they take 4 GB.
    Agents {
        /// The agents; all when omitted.
        names: Vec<String>,
    },
    /// Run the official conformance suite of MCP, the Inspector and a server with everything; not part
    /// of `test`, because they take 340 MB.
    Mcp,
    /// Run one benchmark; use `cargo run --release -p xtask -- bench <NAME>`.
    Bench {
        /// The benchmark.
        name: String,
    },
    /// Change the source in small ways and list the changes that no test notices; not part of `test`,
    /// because it takes hours.
    Mutants(mutants::MutantsArgs),
    /// Translate a folder of recorded traffic, there and back, and fail on any silent loss.
    Corpus {
        /// The folder: `<dialect>/{request,response,stream}/*`, with a `manifest.jsonl`. The one
        /// beside the checkout when omitted.
        folder: Option<PathBuf>,
        /// How many offenders to name.
        #[arg(long, default_value_t = 25)]
        show: usize,
    },
}

fn main() -> ExitCode {
    // Benchmarks start this program again: as launcher, as sidecar, as a server.
    if let Some(done) = abp_host::run_if_launcher().or_else(bench::run_if_role) {
        return done;
    }
    run(Args::parse().task).unwrap_or_else(|error| {
        output::complain(format_args!("{error:#}"));
        ExitCode::FAILURE
    })
}

fn run(task: Task) -> Result<ExitCode> {
    match task {
        Task::Schema { check: true } => schema::check()?,
        Task::Schema { check: false } => schema::write()?,
        Task::Tidy => tidy::run()?,
        Task::Test => return test::run(),
        Task::Sdk => return sdk::TRANSLATION.run(),
        Task::Control => return sdk::control(),
        Task::Console { images } => return console::run(&console::ConsoleTask::Test { images }),
        Task::AgUi => return sdk::ag_ui(),
        Task::Acp => return sdk::acp(),
        Task::Gateway => return sdk::GATEWAY.run(),
        Task::Agents { names } => return agents::run(&names),
        Task::Mcp => return mcp::run(),
        Task::Bench { name } => bench::start(&name)?,
        Task::Mutants(args) => return mutants::run(&args),
        Task::Corpus { folder, show } => return corpus::run(folder, show),
    }
    Ok(ExitCode::SUCCESS)
}
