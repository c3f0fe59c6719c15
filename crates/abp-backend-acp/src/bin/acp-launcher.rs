//! The launcher of the tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    abp_host::run_if_launcher().unwrap_or(ExitCode::FAILURE)
}
