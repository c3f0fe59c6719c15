//! `abp doctor`: what this machine gives, and what stands in the way.

mod backends;
mod directories;
mod gateway;

use std::process::{Command, Stdio};
use std::time::SystemTime;

use abp_config::Config;
use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_sidecar_sdk::{Place, sandbox_settings};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use serde::Serialize;
use serde_json::json;

use self::directories::{disk, private_directory};
use crate::args::{DoctorArgs, GlobalArgs};
use crate::output::{BAD, GOOD, NOTE, Output};
use crate::session::{Session, block_on};
use crate::text::one_line;

/// No release is older than this (2026-01-01): a clock before it is wrong.
const EARLIEST_UNIX_SECONDS: u64 = 1_767_225_600;

#[derive(Debug, Serialize)]
struct Check {
    name: String,
    status: Status,
    detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Ok,
    /// Something is missing that not every run needs.
    Warning,
    /// Runs will fail.
    Failed,
}

impl Check {
    fn new(name: impl Into<String>, status: Status, detail: String) -> Self {
        Self {
            name: name.into(),
            status,
            detail,
        }
    }
}

pub(crate) fn run(
    args: &DoctorArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    if args.apparmor_profile {
        return print_apparmor_profile(output);
    }
    let session = Session::open(global, &[], output)?;
    let config = session.config();
    let mut checks = vec![
        private_directory("state directory", &config.state_dir),
        disk("disk", &config.state_dir),
        private_directory("stages directory", &config.stages_dir),
        disk("disk for stages", &config.stages_dir),
        kernel(),
        process_handles(),
        git(),
        clock(),
        interrupted_work(&session),
    ];
    checks.extend(sandbox(config));
    checks.extend(backends::checks(&session.plane));
    checks.extend(block_on(async { Ok(gateway::checks(config).await) })?);
    let failed = checks.iter().any(|check| check.status == Status::Failed);
    if output.is_json() {
        output.json(&json!({ "ok": !failed, "checks": checks }))?;
    } else {
        let width = checks
            .iter()
            .map(|check| check.name.len())
            .max()
            .unwrap_or(0);
        for Check {
            name,
            status,
            detail,
        } in &checks
        {
            let (style, word) = match status {
                Status::Ok => (GOOD, "ok"),
                Status::Warning => (NOTE, "warning"),
                Status::Failed => (BAD, "FAILED"),
            };
            output.line(&format!(
                "{style}{word:<7}{style:#}  {name:<width$}  {}",
                one_line(detail)
            ));
        }
    }
    Ok(if failed {
        ExitStatus::RunFailed
    } else {
        ExitStatus::Success
    })
}

/// Everything in a workspace is opened so that no link leads out of it; the kernel must know how.
fn kernel() -> Check {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let opened = rustix::fs::openat2(
        rustix::fs::CWD,
        ".",
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    );
    let (status, detail) = match opened {
        Ok(_) => (Status::Ok, format!("Linux {release}, openat2 works")),
        Err(error) => (
            Status::Failed,
            format!("Linux {release}, openat2 does not work: {error}"),
        ),
    };
    Check::new("kernel", status, detail)
}

fn process_handles() -> Check {
    let opened = rustix::process::pidfd_open(
        rustix::process::getpid(),
        rustix::process::PidfdFlags::empty(),
    );
    let (status, detail) = match opened {
        Ok(_) => (Status::Ok, "pidfd works".to_owned()),
        Err(error) => (Status::Warning, format!("pidfd does not work: {error}")),
    };
    Check::new("processes", status, detail)
}

/// Prints the AppArmor profile that lets this program make user namespaces where others may not.
fn print_apparmor_profile(output: &mut Output) -> Result<ExitStatus, AbpError> {
    let program = std::env::current_exe().map_err(|error| {
        AbpError::new(ErrorCode::Internal, "cannot find this program").with_source(error)
    })?;
    let program = program.display();
    output.write(&format!(
        "# sudo tee /etc/apparmor.d/abp < this; sudo apparmor_parser -r /etc/apparmor.d/abp\n\
         abi <abi/4.0>,\n\
         include <tunables/global>\n\n\
         profile abp {program} flags=(unconfined) {{\n  userns,\n  include if exists <local/abp>\n}}\n"
    ));
    Ok(ExitStatus::Success)
}

/// Tries each layer of a sandbox.
fn sandbox(config: &Config) -> Vec<Check> {
    let place = Place::of_this_program();
    let features = match place.machine.kernel() {
        Ok(features) => features,
        Err(error) => return vec![Check::new("sandbox", Status::Failed, error.to_string())],
    };
    let check = |name: &str, tried: Result<String, &String>, missing: Status| match tried {
        Ok(detail) => Check::new(name, Status::Ok, detail),
        Err(refused) => Check::new(name, missing, refused.clone()),
    };
    let namespaces = features.namespaces.as_ref();
    let overlay = features.overlay.as_ref();
    let landlock = features.landlock.as_ref();
    let seccomp = features.seccomp.as_ref();
    vec![
        check(
            "namespaces",
            namespaces.map(|()| "a root, processes and a network of their own".to_owned()),
            Status::Warning,
        ),
        check(
            "overlay",
            overlay.map(|()| "stages need no copy of the source".to_owned()),
            Status::Warning,
        ),
        check(
            "landlock",
            landlock.map(|version| format!("version {version}")),
            Status::Warning,
        ),
        check(
            "seccomp",
            seccomp.map(|()| "filters of system calls work".to_owned()),
            Status::Warning,
        ),
        engine(config, &place),
    ]
}

/// The sandbox that runs get by this configuration.
fn engine(config: &Config, place: &Place) -> Check {
    let Some(settings) = sandbox_settings(&config.sandbox, place) else {
        let detail = "switched off: agents may do whatever you may".to_owned();
        return Check::new("sandbox", Status::Warning, detail);
    };
    match settings.engine() {
        Ok(engine) => Check::new(
            "sandbox",
            Status::Ok,
            format!("runs are confined by {}", engine.as_str()),
        ),
        Err(error) => Check::new(
            "sandbox",
            Status::Failed,
            format!("runs are refused: {error}"),
        ),
    }
}

fn git() -> Check {
    let version = Command::new("git")
        .arg("--version")
        .stdin(Stdio::null())
        .output();
    let (status, detail) = match version {
        Ok(output) if output.status.success() => (
            Status::Ok,
            String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        ),
        Ok(output) => (
            Status::Warning,
            format!("git --version ended with {}", output.status),
        ),
        Err(error) => (Status::Warning, format!("git is not there: {error}")),
    };
    Check::new("git", status, detail)
}

/// Work that a killed process left half done is finished by opening the store; a doctor must not look away
/// from a tree that holds half a result.
fn interrupted_work(session: &Session) -> Check {
    let opened = block_on(async {
        let runtime = session.plane.runtime();
        let is_there = runtime.existing_store().await?.is_some();
        runtime.close().await;
        Ok(is_there)
    });
    let (status, detail) = match opened {
        Ok(true) => (Status::Ok, "none is left".to_owned()),
        Ok(false) => (Status::Ok, "nothing was run yet".to_owned()),
        Err(error) => (Status::Failed, error.to_string()),
    };
    Check {
        name: "interrupted work".to_owned(),
        status,
        detail,
    }
}

fn clock() -> Check {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let (status, detail) = if now.as_secs() < EARLIEST_UNIX_SECONDS {
        (
            Status::Warning,
            "the clock is before 2026; timestamps in receipts will be wrong".to_owned(),
        )
    } else {
        (Status::Ok, format!("{} seconds since 1970", now.as_secs()))
    };
    Check::new("clock", status, detail)
}
