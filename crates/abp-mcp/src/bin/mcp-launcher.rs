//! The launcher as a program of its own, for gateways in programs that are not themselves one.

use std::process::ExitCode;

fn main() -> ExitCode {
    abp_host::run_if_launcher().unwrap_or(ExitCode::FAILURE)
}
