//! A work order from a file and flags.

use std::path::Path;

use abp_control::{OrderDraft, PolicyChoice};
use abp_core::{
    Capability, CapabilityOrigins, CapabilityRequirement, CapabilitySource, ClientCapabilities,
    MinSupport, PresentationType, RuntimeConfig, WorkOrder, WorkOrderBuilder, WorkspaceMode,
};
use abp_error::{AbpError, ErrorCode};
use serde_json::{Map, Value};

use crate::args::{RunArgs, WorkspaceModeArg};
use crate::input::{self, closest};
use crate::output::Output;
use crate::session::Session;

/// Builds the order: the file first, then flags over it.
pub(crate) fn build(
    args: &RunArgs,
    session: &Session,
    output: &mut Output,
) -> Result<WorkOrder, AbpError> {
    let mut order = match &args.order {
        Some(path) => read_order(path, output)?,
        None => WorkOrderBuilder::new("").build(),
    };
    if let Some(task) = &args.task {
        order.task.clone_from(task);
    }
    set_workspace(args, &mut order);
    order.context.files.extend(args.context.iter().cloned());
    for requirement in &args.governance.require {
        order
            .requirements
            .required
            .push(parse_requirement(requirement)?);
    }
    set_config(args, &mut order.config)?;
    let policy = policy_choice(args, session)?;
    OrderDraft::of(order).policy(policy).build(&session.plane)
}

fn read_order(path: &Path, output: &mut Output) -> Result<WorkOrder, AbpError> {
    let bytes = input::read(path)?;
    let order: WorkOrder = input::document(path, &bytes)?;
    for unknown in input::unknown_fields(&bytes, &order) {
        output.warn(&format!(
            "{}: {} (ignored)",
            path.display(),
            unknown.describe()
        ));
    }
    Ok(order)
}

/// A policy adds to the default protections, unless the caller drops them explicitly.
fn policy_choice(args: &RunArgs, session: &Session) -> Result<PolicyChoice, AbpError> {
    let flags = &args.governance;
    let profile = flags.policy.as_ref();
    let profile = profile.map(|policy| session.policy(policy)).transpose()?;
    Ok(match (profile, flags.no_default_policy) {
        (profile, true) => PolicyChoice::Only(profile.unwrap_or_default()),
        (Some(profile), false) => PolicyChoice::Also(profile),
        (None, false) => PolicyChoice::Default,
    })
}

/// Says who follows the run, where the order does not: the terminal, or whatever reads standard output.
/// A program that reads events takes them as they are.
pub(crate) fn declare_client(
    order: &mut WorkOrder,
    args: &RunArgs,
    output: &Output,
) -> CapabilityOrigins {
    if order.client.is_some() {
        return CapabilityOrigins::all(CapabilitySource::Body);
    }
    if output.is_json() || args.jsonl {
        return CapabilityOrigins::default();
    }
    order.client = Some(if output.is_coloured() {
        terminal()
    } else {
        plain_text()
    });
    CapabilityOrigins::all(CapabilitySource::Protocol)
}

fn set_workspace(args: &RunArgs, order: &mut WorkOrder) {
    let flags = &args.workspace;
    if let Some(root) = &flags.root {
        order.workspace.root.clone_from(root);
    }
    if let Some(mode) = flags.workspace_mode {
        order.workspace.mode = match mode {
            WorkspaceModeArg::Staged => WorkspaceMode::Staged,
            WorkspaceModeArg::PassThrough => WorkspaceMode::PassThrough,
        };
    }
    if let Some(lane) = flags.lane {
        order.lane = lane.into();
    }
    order
        .workspace
        .include
        .extend(flags.include.iter().cloned());
    order
        .workspace
        .exclude
        .extend(flags.exclude.iter().cloned());
    if flags.no_gitignore {
        order.workspace.respect_gitignore = false;
    }
    order.workspace.snapshot |= flags.snapshot;
}

fn set_config(args: &RunArgs, config: &mut RuntimeConfig) -> Result<(), AbpError> {
    if args.model.is_some() {
        config.model.clone_from(&args.model);
    }
    if args.limits.max_budget_usd.is_some() {
        config.max_budget_usd = args.limits.max_budget_usd;
    }
    if args.limits.max_turns.is_some() {
        config.max_turns = args.limits.max_turns;
    }
    config.env.extend(args.env.iter().cloned());
    for (key, value) in &args.params {
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.clone()));
        set_param(config, key, value)?;
    }
    Ok(())
}

/// `model` sets the model; any other key is a path into the vendor settings.
fn set_param(config: &mut RuntimeConfig, key: &str, value: Value) -> Result<(), AbpError> {
    if key == "model" {
        config.model = value.as_str().map(str::to_owned);
        return Ok(());
    }
    let (vendor, rest) = key.split_once('.').unwrap_or(("abp", key));
    let mut place = config
        .vendor
        .entry(vendor.to_owned())
        .or_insert_with(|| Value::Object(Map::new()));
    for part in rest.split('.') {
        let Value::Object(members) = place else {
            return Err(AbpError::new(
                ErrorCode::ConfigInvalid,
                format!("--param {key}: a part of the key has a value already"),
            ));
        };
        place = members
            .entry(part)
            .or_insert_with(|| Value::Object(Map::new()));
    }
    *place = value;
    Ok(())
}

fn parse_requirement(text: &str) -> Result<CapabilityRequirement, AbpError> {
    let (name, level) = text.split_once(':').unwrap_or((text, "emulated"));
    let capability = Capability::from_wire(name);
    if let Capability::Other(name) = &capability {
        let known = Capability::KNOWN.iter().map(Capability::as_str);
        let hint = closest(name, known)
            .map(|known| format!("; did you mean {known:?}?"))
            .unwrap_or_default();
        return Err(AbpError::new(
            ErrorCode::ConfigInvalid,
            format!("--require {text}: unknown capability {name:?}{hint}"),
        ));
    }
    let min_support = match level {
        "native" => MinSupport::Native,
        "emulated" => MinSupport::Emulated,
        "any" => MinSupport::Any,
        other => {
            return Err(AbpError::new(
                ErrorCode::ConfigInvalid,
                format!(
                    "--require {text}: {other:?} is no level; expected native, emulated or any"
                ),
            ));
        }
    };
    Ok(CapabilityRequirement {
        capability,
        min_support,
    })
}

/// What a terminal can show: text with looks, and what fits on a line.
fn terminal() -> ClientCapabilities {
    use PresentationType::{CitationBlock, ProgressIndicator, ThoughtTrace};
    ClientCapabilities {
        supported_events: [ProgressIndicator, CitationBlock, ThoughtTrace]
            .map(|kind| kind.to_string())
            .to_vec(),
        prefers_markdown: true,
        image_resolution: Some("low".to_owned()),
    }
}

/// What a file or a pipe gets: text without markup, and how far things are, a line each.
fn plain_text() -> ClientCapabilities {
    ClientCapabilities {
        supported_events: vec![PresentationType::ProgressIndicator.to_string()],
        prefers_markdown: false,
        image_resolution: None,
    }
}
