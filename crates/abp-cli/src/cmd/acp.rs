//! `abp acp`: the backplane as an agent of an editor.

use abp_acp::{AcpOptions, serve};
use abp_control::PolicyChoice;
use abp_error::{AbpError, ExitStatus};

use crate::args::{AcpArgs, GlobalArgs};
use crate::cmd::serve::stop_signal;
use crate::output::Output;
use crate::prompt;
use crate::session::{Session, block_on};

pub(crate) fn run(
    args: &AcpArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &args.host.mock_scripts, output)?;
    let policy = args.policy.as_ref();
    let policy = policy.map(|policy| session.policy(policy)).transpose()?;
    let options = AcpOptions {
        backend: args.backend.clone(),
        lane: args.lane.into(),
        policy: policy.map_or(PolicyChoice::Default, PolicyChoice::Also),
        model: args.model.clone(),
        approval_timeout: session.approval_timeout(),
        person: prompt::approver("acp").name,
    };
    block_on(async {
        let stop = stop_signal()?;
        let (stdin, stdout) = (tokio::io::stdin(), tokio::io::stdout());
        serve(session.plane, options, stdin, stdout, stop).await?;
        Ok(ExitStatus::Success)
    })
}
