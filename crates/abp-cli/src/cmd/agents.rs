//! `abp agents`: the agents that can be installed, and those that are.

mod probe;

use abp_agents::{AgentPreset, AgentsDirectory, InstallState, find_preset, presets};
use abp_control::agents_directory;
use abp_error::{AbpError, ErrorCode, ExitStatus};
use serde_json::{Value, json};

use crate::args::{AgentsArgs, AgentsCommand, GlobalArgs};
use crate::output::{BAD, DIM, GOOD, Output, STRONG};
use crate::session::Session;

pub(crate) fn run(
    args: &AgentsArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &[], output)?;
    let directory = agents_directory(session.config());
    match &args.command {
        AgentsCommand::List => list(&directory, output)?,
        AgentsCommand::Install { names } => install(&directory, &named(names)?, output)?,
        AgentsCommand::Probe { names, out } => {
            return probe::run(names, out.as_deref(), session.config(), output);
        }
        AgentsCommand::Update { names } => {
            let chosen = match names.is_empty() {
                true => installed(&directory),
                false => named(names)?,
            };
            install(&directory, &chosen, output)?;
            for preset in chosen {
                directory.remove_others(preset)?;
            }
        }
    }
    Ok(ExitStatus::Success)
}

fn named(names: &[String]) -> Result<Vec<&'static AgentPreset>, AbpError> {
    let find = |name: &String| find_preset(name).ok_or_else(|| unknown(name));
    names.iter().map(find).collect()
}

fn installed(directory: &AgentsDirectory) -> Vec<&'static AgentPreset> {
    let is_there = |preset: &&AgentPreset| directory.state(preset) != InstallState::Missing;
    presets().iter().filter(is_there).collect()
}

fn unknown(name: &str) -> AbpError {
    let known: Vec<&str> = presets().iter().map(|preset| preset.name).collect();
    let message = format!("no agent is {name:?}; known are {}", known.join(", "));
    AbpError::new(ErrorCode::NotFound, message)
}

fn install(
    directory: &AgentsDirectory,
    chosen: &[&'static AgentPreset],
    output: &mut Output,
) -> Result<(), AbpError> {
    let mut rows = Vec::new();
    for preset in chosen {
        directory.install(preset)?;
        rows.push(row(preset, &directory.state(preset)));
        if !output.is_json() {
            let (name, version) = (preset.name, preset.version());
            output.line(&format!(
                "{GOOD}installed{GOOD:#} {STRONG}{name}{STRONG:#} {version}"
            ));
        }
    }
    if output.is_json() {
        output.json(&json!({ "agents": rows }))?;
    }
    Ok(())
}

fn list(directory: &AgentsDirectory, output: &mut Output) -> Result<(), AbpError> {
    let states = presets()
        .iter()
        .map(|preset| (preset, directory.state(preset)));
    let states: Vec<_> = states.collect();
    if output.is_json() {
        let rows: Vec<Value> = states
            .iter()
            .map(|(preset, state)| row(preset, state))
            .collect();
        let directory = directory.path().display().to_string();
        return output.json(&json!({ "directory": directory, "agents": rows }));
    }
    for (preset, state) in &states {
        let name = preset.name;
        let said = match state {
            InstallState::Installed(_) => format!("{GOOD}installed{GOOD:#}"),
            InstallState::Outdated { version } => {
                format!("{BAD}{version} is installed{BAD:#}, run `abp agents update {name}`")
            }
            InstallState::Missing => format!("run `abp agents install {name}`"),
        };
        let (title, version) = (preset.title, preset.version());
        output.line(&format!(
            "{STRONG}{name:<9}{STRONG:#} {title:<12} {DIM}{version:<9}{DIM:#} {said}"
        ));
    }
    Ok(())
}

fn row(preset: &AgentPreset, state: &InstallState) -> Value {
    let (state, installed) = match state {
        InstallState::Installed(_) => ("installed", Some(preset.version().to_owned())),
        InstallState::Outdated { version } => ("outdated", Some(version.clone())),
        InstallState::Missing => ("missing", None),
    };
    json!({
        "name": preset.name,
        "title": preset.title,
        "package": preset.package(),
        "version": preset.version(),
        "state": state,
        "installed": installed,
    })
}
