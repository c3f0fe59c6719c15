//! `abp backends`.

use abp_core::{CapabilityManifest, EnforcementLevel, SupportLevel};
use abp_error::{AbpError, ExitStatus};
use serde::Serialize;

use crate::args::{BackendsArgs, GlobalArgs};
use crate::output::{Output, STRONG};
use crate::session::Session;
use crate::text::one_line;

#[derive(Debug, Serialize)]
struct Row<'a> {
    name: &'a str,
    /// `null` where only the open backend knows.
    capabilities: Option<&'a CapabilityManifest>,
    policy_enforced_by: EnforcementLevel,
    priority: u32,
}

pub(crate) fn run(
    args: &BackendsArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &args.host.mock_scripts, output)?;
    let registry = session.registry()?;
    for sidecar in session.unavailable() {
        output.warn(&format!(
            "backend {sidecar:?} is a sidecar, which this release cannot start"
        ));
    }
    let rows: Vec<_> = registry
        .descriptors()
        .map(|descriptor| Row {
            name: &descriptor.name,
            capabilities: descriptor.manifest.as_ref(),
            policy_enforced_by: descriptor.enforcement,
            priority: descriptor.priority,
        })
        .collect();
    if output.is_json() {
        output.json(&serde_json::json!({ "backends": rows }))?;
        return Ok(ExitStatus::Success);
    }
    for row in rows {
        output.line(&format!("{STRONG}{}{STRONG:#}", one_line(row.name)));
        match row.capabilities {
            None => output.line("  capabilities are known once it is opened"),
            Some(manifest) => {
                let width = manifest
                    .keys()
                    .map(|capability| capability.as_str().len())
                    .max()
                    .unwrap_or(0);
                for (capability, level) in manifest {
                    output.line(&format!(
                        "  {:<width$}  {}",
                        one_line(capability.as_str()),
                        level_name(level)
                    ));
                }
            }
        }
    }
    Ok(ExitStatus::Success)
}

fn level_name(level: &SupportLevel) -> String {
    match level {
        SupportLevel::Native => "native".to_owned(),
        SupportLevel::Emulated => "emulated".to_owned(),
        SupportLevel::Restricted { reason } => format!("restricted: {}", one_line(reason)),
        SupportLevel::Unsupported => "unsupported".to_owned(),
    }
}
