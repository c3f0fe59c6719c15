//! The `abp` command: runs work orders and looks at what came of them.

mod args;
mod cmd;
mod input;
mod live;
mod order;
mod output;
mod prompt;
mod render;
mod text;

use std::process::ExitCode;

use abp_error::AbpError;
use clap::Parser as _;

use crate::args::{Cli, Command};
use crate::output::Output;

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_logging(cli.debug);
    let mut output = Output::new(cli.json);
    let result = match cli.command {
        Command::Run(args) => cmd::run::run(&args, &mut output),
        Command::Backends(args) => cmd::backends::run(&args, &mut output),
        Command::Validate(args) => cmd::validate::run(&args, &mut output),
        Command::Schema(args) => cmd::schema::run(&args, &mut output),
        Command::Inspect(args) => cmd::inspect::run(&args, &mut output),
        Command::Receipt(args) => cmd::receipt::run(&args, &mut output),
        Command::Explain(args) => cmd::explain::run(&args, &mut output),
        Command::Doctor(args) => cmd::doctor::run(&args, &mut output),
        Command::Completion(args) => Ok(cmd::shell::completion(&args, &mut output)),
        Command::Man(args) => cmd::shell::man(&args, &mut output),
    };
    let status = match result {
        Ok(status) => status.code(),
        Err(error) => report(&error, &mut output),
    };
    ExitCode::from(status)
}

/// Tells of an error in the form asked for; its code decides the exit status.
fn report(error: &AbpError, output: &mut Output) -> u8 {
    output.error(error);
    error.code().exit_status().code()
}

fn start_logging(debug: bool) {
    let filter = match std::env::var("RUST_LOG") {
        Ok(filter) if !filter.is_empty() => filter,
        _ if debug => "abp=debug".to_owned(),
        _ => return,
    };
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .with_writer(std::io::stderr)
        .init();
}
