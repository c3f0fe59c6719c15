//! Repository tasks: `cargo xtask <task>`.
//!
//! Everything CI runs is one of these or plain cargo, so that it can be run the same way by hand.

mod bench;
mod output;
mod schema;
mod source;
mod test;
mod tidy;
mod workspace;

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
    /// Run one benchmark; use `cargo run --release -p xtask -- bench <NAME>`.
    Bench {
        /// The benchmark.
        name: String,
    },
}

fn main() -> ExitCode {
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
        Task::Bench { name } => bench::start(&name)?,
    }
    Ok(ExitCode::SUCCESS)
}
