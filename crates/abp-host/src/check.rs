//! A command that judges the result of a run, in a sandbox of its own.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use abp_core::CheckReport;
use abp_error::{AbpError, ErrorCode};
use abp_policy::PolicyEngine;
use abp_sandbox::{Confinement, Exit, Launcher, Overlay};
use tokio::io::AsyncReadExt as _;

use crate::{AgentProcess, ConfinedProgram, Egress, SandboxSettings, SidecarSpec};

/// The shell that gets the command.
const SHELL: &str = "sh";
/// The longest end of a check's output that is kept.
const MAX_TAIL: usize = 4096;
/// The longest a check may take.
const LONGEST: Duration = Duration::from_secs(30 * 60);

/// A check, and the sandbox it runs in.
#[derive(Debug, Clone)]
pub struct CheckCommand {
    /// The command, for `sh -c`.
    pub command: String,
    /// The settings of its sandbox.
    pub sandbox: SandboxSettings,
    /// The program that starts it and ends it.
    pub launcher: Launcher,
    /// The directory in which running programs are noted, to be found again after a crash of the host.
    pub records: PathBuf,
}

/// The files that a check works on.
#[derive(Debug, Clone, Copy)]
pub struct CheckPlace<'a> {
    /// Its working directory.
    pub root: &'a Path,
    /// The overlays at or in it, which take what the check writes.
    pub layers: &'a [Overlay],
    /// The host's own directories, which it does not see.
    pub hidden: &'a [PathBuf],
}

impl CheckCommand {
    /// Runs the check to its end. The network is as the policy of the run says.
    ///
    /// # Errors
    /// Says why it could not be run.
    pub async fn run(
        &self,
        place: &CheckPlace<'_>,
        policy: &PolicyEngine,
    ) -> Result<CheckReport, AbpError> {
        let search_path = std::env::var_os("PATH").unwrap_or_default();
        let confined = ConfinedProgram {
            command: SHELL,
            args: &[],
            search_path: &search_path,
            workspace: place.root,
            hidden: place.hidden,
            home: None,
            installation: &[],
            overlays: place.layers,
            is_in_place: false,
        };
        let sandbox = self.sandbox.plan(&confined, policy)?;
        let mut spec = SidecarSpec::new(SHELL, place.root);
        // One stream, so that the tail has lines of both in their order.
        spec.args = vec!["-c".to_owned(), format!("exec 2>&1\n{}", self.command)];
        spec.confinement = Confinement::Sandboxed(sandbox.plan.clone());
        spec.egress = Some(policy.clone());
        spec.launcher = self.launcher.clone();
        spec.records = Some(self.records.clone());
        let started = Instant::now();
        let (process, streams) = AgentProcess::spawn(spec).await?;
        drop(streams.stdin);
        let mut output = OutputTail::default();
        let reading = output.read(streams.stdout, streams.egress);
        let timed_out = tokio::time::timeout(LONGEST, reading).await.is_err();
        let ended = process.end(Duration::from_millis(500)).await;
        let exit_code = match ended.exit {
            Exit::Code(code) if !timed_out => Some(code),
            Exit::Code(_) | Exit::Signal(_) | Exit::Unknown => None,
        };
        Ok(CheckReport {
            command: self.command.clone(),
            passed: exit_code == Some(0),
            exit_code,
            duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            output_tail: output.into_text(),
        })
    }
}

/// The report of a check that could not be run, which is none that passed.
#[must_use]
pub fn check_not_run(command: &str, reason: &AbpError) -> CheckReport {
    let cause = std::error::Error::source(reason).map(|cause| format!(": {cause}"));
    CheckReport {
        command: command.to_owned(),
        passed: false,
        exit_code: None,
        duration_ms: 0,
        output_tail: format!("not run: {reason}{}", cause.unwrap_or_default()),
    }
}

/// The error of a result that its check did not pass.
#[must_use]
pub fn check_failed(report: &CheckReport) -> AbpError {
    let end = match report.exit_code {
        Some(code) => format!("ended with status {code}"),
        None => "did not end by itself".to_owned(),
    };
    let message = format!("the check `{}` {end}", report.command);
    AbpError::new(ErrorCode::RunIncomplete, message)
}

/// The end of what a program wrote.
#[derive(Debug, Default)]
struct OutputTail {
    bytes: Vec<u8>,
}

impl OutputTail {
    /// Reads until the stream ends. The proxy of the sandbox is served meanwhile; what it tells is of no use.
    async fn read(&mut self, mut stream: tokio::process::ChildStdout, mut egress: Option<Egress>) {
        let mut buffer = [0; 8192];
        loop {
            tokio::select! {
                read = stream.read(&mut buffer) => match read {
                    Ok(0) | Err(_) => break,
                    Ok(length) => self.add(buffer.get(..length).unwrap_or_default()),
                },
                report = next_report(&mut egress) => drop(report),
            }
        }
        if let Some(egress) = egress {
            drop(egress.close().await);
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let surplus = self.bytes.len().saturating_sub(MAX_TAIL);
        self.bytes.drain(..surplus);
    }

    fn into_text(self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// The next report of the proxy; never where there is none, or it ended.
async fn next_report(egress: &mut Option<Egress>) -> abp_egress::EgressReport {
    if let Some(proxy) = egress {
        match proxy.next().await {
            Some(report) => return report,
            None => *egress = None,
        }
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_the_output_is_kept() {
        let mut output = OutputTail::default();
        for number in 0..3_000 {
            output.add(format!("{number}\n").as_bytes());
        }
        let text = output.into_text();
        assert_eq!(text.len(), MAX_TAIL);
        assert!(text.ends_with("2998\n2999\n"), "{text}");
    }
}
