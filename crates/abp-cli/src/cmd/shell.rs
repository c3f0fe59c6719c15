//! `abp completion` and `abp man`: what packagers and shells need.

use abp_error::{AbpError, ErrorCode, ExitStatus};
use clap::CommandFactory as _;

use crate::args::{Cli, CompletionArgs, ManArgs};
use crate::output::Output;

pub(crate) fn completion(args: &CompletionArgs, output: &mut Output) -> ExitStatus {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "abp", &mut script);
    output.write(&String::from_utf8_lossy(&script));
    ExitStatus::Success
}

/// Prints the page of `abp`, or of one of its commands.
pub(crate) fn man(args: &ManArgs, output: &mut Output) -> Result<ExitStatus, AbpError> {
    let mut command = Cli::command();
    command.build();
    let mut path = "abp".to_owned();
    for name in &args.command {
        let found = command.find_subcommand(name).cloned();
        command = found.ok_or_else(|| {
            AbpError::new(
                ErrorCode::ConfigInvalid,
                format!("{path} has no command {name:?}"),
            )
        })?;
        path = format!("{path}-{name}");
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .title(path)
        .render(&mut page)
        .map_err(|error| {
            AbpError::new(ErrorCode::Internal, "the page cannot be made").with_source(error)
        })?;
    output.write(&String::from_utf8_lossy(&page));
    Ok(ExitStatus::Success)
}
