//! A program that is nothing but the launcher, for tests and for hosts that are no launcher themselves.

use std::process::ExitCode;

fn main() -> ExitCode {
    abp_sandbox::run_if_launcher().unwrap_or(ExitCode::FAILURE)
}
