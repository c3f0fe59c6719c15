//! `abp sidecar`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_host::SidecarSpec;
use abp_sidecar_sdk::{CheckResult, CheckSettings, Finding, check};
use uuid::Uuid;

use crate::args::{SidecarArgs, SidecarCheckArgs, SidecarCommand, SidecarLanguage};
use crate::output::{BAD, DIM, GOOD, NOTE, Output};
use crate::session::block_on;
use crate::text::{one_line, printable};

pub(crate) fn run(args: &SidecarArgs, output: &mut Output) -> Result<ExitStatus, AbpError> {
    match &args.command {
        SidecarCommand::Check(args) => run_check(args, output),
        SidecarCommand::Init { lang, dir } => init(*lang, dir, output),
    }
}

fn run_check(args: &SidecarCheckArgs, output: &mut Output) -> Result<ExitStatus, AbpError> {
    let Some((program, rest)) = args.command.split_first() else {
        return Err(AbpError::new(
            ErrorCode::ValidationFailed,
            "no program was named",
        ));
    };
    let desk = Desk::new()?;
    let mut spec = SidecarSpec::new(absolute(program), &desk.0);
    spec.args = rest.iter().map(|argument| absolute(argument)).collect();
    let settings = CheckSettings {
        spec,
        task: args.task.clone(),
        patience: args.timeout,
    };
    let findings = block_on(async { Ok(check(&settings).await) })?;
    let passed = findings.iter().all(Finding::passed);
    if output.is_json() {
        output.json(&serde_json::json!({ "passed": passed, "checks": findings }))?;
    } else {
        for finding in &findings {
            print(finding, output);
        }
    }
    Ok(if passed {
        ExitStatus::Success
    } else {
        ExitStatus::RunFailed
    })
}

fn print(finding: &Finding, output: &mut Output) {
    let title = finding.check.title();
    match &finding.verdict {
        CheckResult::Passed { note } => output.line(&format!(
            "{GOOD}pass{GOOD:#}  {title:<52} {DIM}{}{DIM:#}",
            one_line(note)
        )),
        CheckResult::Skipped { why } => output.line(&format!(
            "{NOTE}skip{NOTE:#}  {title:<52} {DIM}{why}{DIM:#}"
        )),
        CheckResult::Failed {
            code,
            problem,
            fix,
            stderr_tail,
            ..
        } => {
            output.line(&format!("{BAD}FAIL{BAD:#}  {title}"));
            output.line(&format!("      [{code}] {}", one_line(problem)));
            output.line(&format!("      to fix: {fix}"));
            for line in stderr_tail
                .lines()
                .rev()
                .take(5)
                .collect::<Vec<_>>()
                .iter()
                .rev()
            {
                output.line(&format!("      {DIM}| {}{DIM:#}", printable(line)));
            }
        }
    }
}

/// The program runs elsewhere; what names a file here is named from the root.
fn absolute(argument: &str) -> String {
    let path = Path::new(argument);
    let is_file = argument.contains('/') || path.extension().is_some();
    match path.canonicalize() {
        Ok(absolute) if is_file => absolute.to_string_lossy().into_owned(),
        _ => argument.to_owned(),
    }
}

/// A directory for the program to work in; it is removed afterwards.
struct Desk(PathBuf);

impl Desk {
    fn new() -> Result<Self, AbpError> {
        let path = std::env::temp_dir().join(format!("abp-check-{}", Uuid::new_v4()));
        fs::create_dir(&path).map_err(|error| cannot_write(&path, error))?;
        Ok(Self(path))
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        // What stays is in the directory for such things.
        drop(fs::remove_dir_all(&self.0));
    }
}

fn init(
    language: SidecarLanguage,
    directory: &Path,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let files: &[(&str, &str)] = match language {
        SidecarLanguage::Node => &[("sidecar.mjs", include_str!("sidecar/starter.mjs"))],
        SidecarLanguage::Python => &[("sidecar.py", include_str!("sidecar/starter.py"))],
        SidecarLanguage::Rust => &[
            ("Cargo.toml", include_str!("sidecar/starter.toml")),
            (
                "src/main.rs",
                include_str!("../../../abp-sidecar-proto/examples/starter.rs"),
            ),
        ],
    };
    // All or nothing: nobody's file is replaced.
    for (name, _) in files {
        let path = directory.join(name);
        if path.exists() {
            let message = format!("{} exists already", path.display());
            return Err(AbpError::new(ErrorCode::ValidationFailed, message));
        }
    }
    for (name, content) in files {
        let path = directory.join(name);
        let parent = path.parent().unwrap_or(directory);
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, content))
            .map_err(|error| cannot_write(&path, error))?;
        output.line(&format!("wrote {}", path.display()));
    }
    let here = directory.display();
    output.line(&match language {
        SidecarLanguage::Node => format!("check it: abp sidecar check -- node {here}/sidecar.mjs"),
        SidecarLanguage::Python => {
            format!("check it: abp sidecar check -- python3 {here}/sidecar.py")
        }
        SidecarLanguage::Rust => format!(
            "build it in {here}, then check it: abp sidecar check -- {here}/target/debug/my-agent"
        ),
    });
    Ok(ExitStatus::Success)
}

fn cannot_write(path: &Path, error: io::Error) -> AbpError {
    let message = format!("cannot write {}", path.display());
    AbpError::new(ErrorCode::ExecutionWorkspaceError, message).with_source(error)
}
