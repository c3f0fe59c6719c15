//! `abp backends`.

use std::path::{Path, PathBuf};

use abp_agents::{InstallState, presets};
use abp_backend_core::{Backend, OpenSpec};
use abp_control::{MissingBackend, agents_directory};
use abp_core::{BackendIdentity, CapabilityManifest, SupportLevel};
use abp_error::{AbpError, AbpErrorDto, ErrorCode, ExitStatus};
use abp_policy::{Holders, PolicyEngine};
use serde::Serialize;
use uuid::Uuid;

use crate::args::{BackendsArgs, GlobalArgs};
use crate::output::{BAD, DIM, GOOD, Output, STRONG};
use crate::session::{Session, block_on};
use crate::text::one_line;

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    /// `null` where only the open backend knows.
    capabilities: Option<CapabilityManifest>,
    policy_enforced_by: Holders,
    priority: u32,
    /// What came of opening it, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    probe: Option<Probe>,
}

/// What came of opening a backend.
#[derive(Debug, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
enum Probe {
    Healthy { identity: BackendIdentity },
    Failed { error: AbpErrorDto },
}

pub(crate) fn run(
    args: &BackendsArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &args.host.mock_scripts, output)?;
    let registry = session.plane.registry();
    let config = session.config();
    let hidden = [config.state_dir.clone(), config.stages_dir.clone()];
    let mut rows = Vec::new();
    for backend in registry.backends() {
        let descriptor = backend.descriptor();
        rows.push(Row {
            name: descriptor.name.clone(),
            capabilities: descriptor.manifest.clone(),
            policy_enforced_by: descriptor.holders,
            priority: descriptor.priority,
            probe: None,
        });
    }
    if args.probe {
        // One runtime for all of them: the store of the process lives in the one that opened it.
        block_on(async {
            for (row, backend) in rows.iter_mut().zip(registry.backends()) {
                let workspace = tempfile::tempdir().map_err(|error| {
                    let message = "cannot make an empty directory to open backends in";
                    AbpError::new(ErrorCode::ExecutionWorkspaceError, message).with_source(error)
                })?;
                row.probe(&**backend, workspace.path(), &hidden).await;
            }
            session.plane.close().await;
            Ok(())
        })?;
    }
    let missing = missing_backends(&session);
    if output.is_json() {
        output.json(&serde_json::json!({ "backends": rows, "missing": missing }))?;
    } else {
        for row in &rows {
            print(row, output);
        }
        for MissingBackend { name, remedy } in &missing {
            output.line(&format!("{STRONG}{name}{STRONG:#}"));
            output.line(&format!(
                "  {DIM}not installed{DIM:#}: {}",
                one_line(remedy)
            ));
        }
    }
    let failed = |row: &Row| matches!(row.probe, Some(Probe::Failed { .. }));
    Ok(if rows.iter().any(failed) {
        ExitStatus::BackendUnavailable
    } else {
        ExitStatus::Success
    })
}

/// Hosts and agents that ABP knows and that are not installed, each with the command that installs it.
fn missing_backends(session: &Session) -> Vec<MissingBackend> {
    let directory = agents_directory(session.config());
    let mut missing = session.plane.missing_hosts();
    for preset in presets() {
        let (name, title) = (preset.name, preset.title);
        let remedy = match directory.state(preset) {
            InstallState::Installed(_) => continue,
            InstallState::Outdated { version } => format!(
                "{title} {version} is installed, and {} is pinned; run `abp agents update {name}`",
                preset.version()
            ),
            InstallState::Missing => {
                format!("{title} is not installed; run `abp agents install {name}`")
            }
        };
        missing.push(MissingBackend { name, remedy });
    }
    missing
}

impl Row {
    /// Opens the backend without giving it any work.
    async fn probe(&mut self, backend: &dyn Backend, workspace: &Path, hidden: &[PathBuf]) {
        let spec = OpenSpec {
            run_id: Uuid::now_v7(),
            workspace_root: workspace.to_owned(),
            overlays: Vec::new(),
            model: None,
            policy: PolicyEngine::default(),
            hidden: hidden.to_vec(),
            source: None,
            budget: None,
            session: None,
            traceparent: None,
        };
        self.probe = Some(match backend.open(spec).await {
            Ok(session) => {
                self.capabilities = Some(session.manifest().clone());
                let identity = session.identity().clone();
                Probe::Healthy { identity }
            }
            Err(error) => Probe::Failed {
                error: error.to_dto(),
            },
        });
    }
}

fn print(row: &Row, output: &mut Output) {
    output.line(&format!("{STRONG}{}{STRONG:#}", one_line(&row.name)));
    match &row.probe {
        None => {}
        Some(Probe::Healthy { identity }) => {
            let version = identity.backend_version.as_deref().unwrap_or("no version");
            let (id, version) = (one_line(&identity.id), one_line(version));
            output.line(&format!("  {GOOD}healthy{GOOD:#}: {id}, {version}"));
        }
        Some(Probe::Failed { error }) => {
            let (code, message) = (error.code, one_line(&error.message));
            output.line(&format!("  {BAD}failed{BAD:#}[{code}]: {message}"));
        }
    }
    let Some(manifest) = &row.capabilities else {
        if row.probe.is_none() {
            output.line("  capabilities are known once it is opened (--probe)");
        }
        return;
    };
    let names = manifest.keys().map(|capability| capability.as_str().len());
    let width = names.max().unwrap_or(0);
    for (capability, level) in manifest {
        let (name, level) = (one_line(capability.as_str()), level_name(level));
        output.line(&format!("  {name:<width$}  {level}"));
    }
}

fn level_name(level: &SupportLevel) -> String {
    match level {
        SupportLevel::Native => "native".to_owned(),
        SupportLevel::Emulated => "emulated".to_owned(),
        SupportLevel::Restricted { reason } => format!("restricted: {}", one_line(reason)),
        SupportLevel::Unsupported => "unsupported".to_owned(),
    }
}
