//! `abp sandbox`.

mod terminal;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use abp_core::{PolicyProfile, WorkspaceMode};
use abp_error::{AbpError, ErrorCode};
use abp_host::{
    ConfinedProgram, Confinement, ContainedProcess, Egress, EgressEvent, EgressReport, Exit,
    GivenStreams, Launcher, ProcessSpec, ResourceLimits, RunSandbox, is_base_variable,
};
use abp_policy::{Holder, Holders, PolicyEngine, lists_in_use};
use abp_sidecar_sdk::{Place, sandbox_settings};
use serde::Serialize;

use crate::args::{GlobalArgs, SandboxArgs, SandboxCommand, SandboxPlanArgs, SandboxRunArgs};
use crate::output::{BAD, DIM, GOOD, NOTE, Output};
use crate::session::{Session, block_on};
use crate::text::one_line;
use terminal::Terminal;

/// Variables that a program at a terminal gets besides those of every program.
const OF_TERMINALS: [&str; 3] = ["COLORTERM", "LANGUAGE", "TERM"];
/// The most refused connections that are listed.
const MAX_LISTED: usize = 20;
/// What a shell says of a program that a signal ended.
const SIGNAL_BASE: i32 = 128;

/// Returns the exit status: the program's own for `run`.
pub(crate) fn run(
    args: &SandboxArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<u8, AbpError> {
    match &args.command {
        SandboxCommand::Run(args) => run_program(args, global, output),
        SandboxCommand::Explain(args) => explain(args, global, output),
    }
}

/// A sandbox as the command line and the configuration ask for it.
struct PlannedSandbox {
    sandbox: RunSandbox,
    profile: PolicyProfile,
    policy: PolicyEngine,
    workspace: PathBuf,
}

fn ask(
    args: &SandboxPlanArgs,
    command: &[OsString],
    session: &Session,
) -> Result<PlannedSandbox, AbpError> {
    let place = Place::of_this_program();
    let Some(mut settings) = sandbox_settings(&session.config().sandbox, &place) else {
        let message = "the configuration switches sandboxes off: engine = \"none\" under [sandbox]";
        return Err(AbpError::new(ErrorCode::SandboxUnavailable, message));
    };
    settings.read_only.extend(args.read_only.iter().cloned());
    let mut profile = match &args.policy {
        Some(policy) => session.policy(policy)?,
        None => PolicyProfile::default(),
    };
    profile.allow_network.extend(args.network.iter().cloned());
    let policy = PolicyEngine::new(&profile).map_err(|error| {
        AbpError::new(ErrorCode::ValidationFailed, format!("the policy: {error}"))
    })?;
    let workspace = args.workspace.as_deref().unwrap_or(Path::new("."));
    let workspace = workspace.canonicalize().map_err(|error| {
        let message = format!("cannot work in {}", workspace.display());
        AbpError::new(ErrorCode::ValidationFailed, message).with_source(error)
    })?;
    let named: Vec<String> = command
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    let (program, rest) = named
        .split_first()
        .map_or(("sh", &named[..]), |(first, rest)| (first.as_str(), rest));
    let search_path = std::env::var_os("PATH").unwrap_or_default();
    let own = [
        session.config().state_dir.clone(),
        session.config().stages_dir.clone(),
    ];
    let confined = ConfinedProgram {
        command: program,
        args: rest,
        search_path: &search_path,
        workspace: &workspace,
        hidden: &own,
        home: None,
        installation: &[],
        overlays: &[],
        is_in_place: true,
    };
    let sandbox = settings.plan(&confined, &policy)?;
    Ok(PlannedSandbox {
        sandbox,
        profile,
        policy,
        workspace,
    })
}

fn run_program(
    args: &SandboxRunArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<u8, AbpError> {
    let session = Session::open(global, &[], output)?;
    let command = match args.command.is_empty() {
        true => vec![std::env::var_os("SHELL").unwrap_or_else(|| "sh".into())],
        false => args.command.clone(),
    };
    let Some((program, rest)) = command.split_first() else {
        return Err(AbpError::new(
            ErrorCode::ValidationFailed,
            "no program was named",
        ));
    };
    let asked = ask(&args.plan, &command, &session)?;
    let spec = ProcessSpec {
        program: program.clone(),
        args: rest.to_vec(),
        env: environment(&args.env),
        marks: BTreeMap::new(),
        directory: asked.workspace,
        confinement: Confinement::Sandboxed(asked.sandbox.plan),
        launcher: Launcher::this_program(),
        limits: ResourceLimits::default(),
    };
    let (exit, refused) = block_on(async { start(&spec, asked.policy).await })?;
    refused.print(output);
    Ok(status(exit))
}

/// Runs the program to its end. Returns the connections that were refused, too.
async fn start(
    spec: &ProcessSpec,
    policy: PolicyEngine,
) -> Result<(Exit, RefusedConnections), AbpError> {
    let cannot = |error: &dyn std::error::Error| {
        let cause = error
            .source()
            .map(|cause| format!(": {cause}"))
            .unwrap_or_default();
        AbpError::new(ErrorCode::SandboxUnavailable, format!("{error}{cause}"))
    };
    let is_interactive = io::stdin().is_terminal() && io::stdout().is_terminal();
    let terminal = is_interactive.then(Terminal::open).transpose();
    let terminal = terminal.map_err(|error| cannot(&error))?;
    let streams = match &terminal {
        Some(terminal) => terminal.streams(),
        None => own_streams(),
    };
    let streams = streams.map_err(|error| cannot(&error))?;
    let spawned = ContainedProcess::spawn_with(spec, streams).await;
    let (mut process, listener) = spawned.map_err(|error| cannot(&error))?;
    let egress = listener.map(|listener| Egress::start(listener, Some(policy)));
    let egress = egress.transpose().map_err(|error| cannot(&error))?;
    let relay = terminal.map(Terminal::relay).transpose();
    let relay = relay.map_err(|error| cannot(&error))?;
    let mut refused = RefusedConnections::default();
    let mut egress = egress;
    let exit = loop {
        tokio::select! {
            exit = process.exited() => break exit,
            report = next_report(&mut egress) => refused.take(report),
        }
    };
    drop(relay);
    if let Some(egress) = egress {
        for report in egress.close().await {
            refused.take(report);
        }
    }
    Ok((exit, refused))
}

/// Connections that were refused: the first ones, and the number of all others.
#[derive(Debug, Default)]
struct RefusedConnections {
    listed: Vec<EgressEvent>,
    others: u64,
}

impl RefusedConnections {
    fn take(&mut self, report: EgressReport) {
        match report {
            EgressReport::Event(event) if event.is_allowed() => {}
            EgressReport::Event(event) if self.listed.len() < MAX_LISTED => self.listed.push(event),
            EgressReport::Event(_) => self.others += 1,
            EgressReport::Lost(count) => self.others += count,
        }
    }

    fn print(&self, output: &mut Output) {
        for event in &self.listed {
            let rule = one_line(&event.rule.to_string());
            let host = one_line(&event.host);
            output.warn(&format!("refused connection to {host} ({rule})"));
        }
        if self.others > 0 {
            output.warn(&format!("{} more connections are not listed", self.others));
        }
    }
}

/// The next report; never where there is no way out.
async fn next_report(egress: &mut Option<Egress>) -> EgressReport {
    if let Some(egress) = egress
        && let Some(report) = egress.next().await
    {
        return report;
    }
    std::future::pending().await
}

fn own_streams() -> io::Result<GivenStreams> {
    Ok(GivenStreams {
        input: io::stdin().as_fd().try_clone_to_owned()?,
        output: io::stdout().as_fd().try_clone_to_owned()?,
        errors: io::stderr().as_fd().try_clone_to_owned()?,
        is_terminal: false,
    })
}

fn environment(asked: &[String]) -> BTreeMap<OsString, OsString> {
    let is_passed_on =
        |name: &OsStr| is_base_variable(name) || OF_TERMINALS.iter().any(|known| name == *known);
    let mut env: BTreeMap<OsString, OsString> = std::env::vars_os()
        .filter(|(name, _)| is_passed_on(name))
        .collect();
    for variable in asked {
        match variable.split_once('=') {
            Some((name, value)) => {
                env.insert(name.into(), value.into());
            }
            None => {
                let value = std::env::var_os(variable);
                env.extend(value.map(|value| (variable.into(), value)));
            }
        }
    }
    env
}

fn status(exit: Exit) -> u8 {
    let code = match exit {
        Exit::Code(code) => code,
        Exit::Signal(signal) => SIGNAL_BASE + signal,
        Exit::Unknown => 1,
    };
    u8::try_from(code).unwrap_or(1)
}

/// A rule of the policy and what would hold it.
#[derive(Debug, Serialize)]
struct ExplainedRule {
    list: &'static str,
    pattern: String,
    enforced_by: abp_core::EnforcementLevel,
    by: &'static str,
}

fn explain(
    args: &SandboxPlanArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<u8, AbpError> {
    let session = Session::open(global, &[], output)?;
    let asked = ask(args, &[], &session)?;
    let rules = explained(&asked);
    let plan = asked.sandbox.plan.to_string();
    if output.is_json() {
        let mounts: Vec<&str> = plan.lines().collect();
        let report = asked.sandbox.report();
        output.json(&serde_json::json!({ "sandbox": report, "plan": mounts, "rules": rules }))?;
        return Ok(0);
    }
    for line in plan.lines() {
        output.line(&one_line(line));
    }
    output.line(&format!(
        "layers   {}",
        asked.sandbox.plan.layers().join(", ")
    ));
    for rule in rules {
        use abp_core::EnforcementLevel::{Advisory, Host, Kernel, None};
        let (style, word) = match rule.enforced_by {
            Kernel => (GOOD, "kernel"),
            Host => (GOOD, "host"),
            Advisory => (NOTE, "advisory"),
            None => (BAD, "nothing"),
        };
        let by = match rule.by {
            "" => String::new(),
            by => format!("  {DIM}{by}{DIM:#}"),
        };
        let pattern = one_line(&rule.pattern);
        output.line(&format!(
            "{style}{word:<8}{style:#} {} {pattern}{by}",
            rule.list
        ));
    }
    Ok(0)
}

fn explained(asked: &PlannedSandbox) -> Vec<ExplainedRule> {
    let holders = asked.sandbox.holders();
    let lists = lists_in_use(&asked.profile).into_iter();
    let rules = lists.flat_map(|list| {
        let patterns = list.patterns(&asked.profile).iter();
        patterns.map(move |pattern| (list, pattern))
    });
    rules
        .map(|(list, pattern)| {
            let mounted = asked.sandbox.mounted.iter();
            let is_mounted = mounted
                .into_iter()
                .any(|rule| rule.list == list && rule.pattern == *pattern);
            let workspace = Holders::of_workspace(WorkspaceMode::PassThrough);
            let holder = match is_mounted {
                true => Holder::MOUNTED,
                // Nobody verifies what a program of the command line changed.
                false if workspace.of(list) != Holder::NONE => Holder::NONE,
                false => holders.of(list),
            };
            ExplainedRule {
                list: list.as_str(),
                pattern: pattern.clone(),
                enforced_by: holder.level,
                by: holder.by,
            }
        })
        .collect()
}
