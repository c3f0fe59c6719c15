//! Landlock: the second layer over the file system, and the only one where there are no namespaces.
//!
//! It grants and never denies beneath a grant, so a protected path inside the workspace is not its matter.
//! It covers neither UDP nor looking at the attributes of a file.

use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, LandlockStatus, NetPort,
    PathBeneath, PathFd, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _,
    RulesetError, RulesetStatus, Scope,
};

use crate::plan::{Engine, MountKind, Network, SandboxPlan};

/// The newest version whose rights we know; older kernels have fewer.
const VERSION: ABI = ABI::V7;

/// Restricts this process and everything it will start to the paths of the plan, and to the port of the
/// proxy where the network is not its own.
///
/// # Errors
/// Fails where Landlock is not there or is less than planned.
pub(super) fn restrict(plan: &SandboxPlan) -> Result<(), String> {
    let Some(planned) = plan.landlock() else {
        return Ok(());
    };
    let cannot = |error: RulesetError| format!("Landlock: {error}");
    let ruleset = ruleset(plan).map_err(cannot)?;
    let ruleset = grant(ruleset, plan)?;
    let ruleset = match plan.network() {
        Network::Proxied(port) if restricts_ports(plan) => ruleset
            .add_rule(NetPort::new(port, AccessNet::ConnectTcp))
            .map_err(cannot)?,
        Network::Proxied(_) | Network::Closed | Network::Open => ruleset,
    };
    let status = ruleset.restrict_self().map_err(cannot)?;
    match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, _) => Err("Landlock enforces nothing here".to_owned()),
        (_, LandlockStatus::Available { effective_abi, .. }) if effective_abi as u32 >= planned => {
            Ok(())
        }
        (_, other) => Err(format!("Landlock: {other:?}")),
    }
}

/// Tries Landlock on this process, which has to end afterwards.
pub(super) fn probe() -> Result<u32, String> {
    let made = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::Execute)
        .and_then(Ruleset::create)
        .and_then(RulesetCreated::restrict_self);
    match made.map_err(|error| error.to_string())?.landlock {
        LandlockStatus::Available { effective_abi, .. } => Ok(effective_abi as u32),
        LandlockStatus::NotEnabled => {
            Err("Landlock is switched off; add landlock to the kernel's lsm= option".to_owned())
        }
        LandlockStatus::NotImplemented => Err("the kernel has no Landlock".to_owned()),
    }
}

fn ruleset(plan: &SandboxPlan) -> Result<RulesetCreated, RulesetError> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(VERSION))?
        .scope(Scope::from_all(VERSION))?;
    if restricts_ports(plan) {
        return ruleset
            .handle_access(AccessNet::ConnectTcp)?
            .handle_access(AccessNet::BindTcp)?
            .create();
    }
    ruleset.create()
}

/// In a network namespace of its own a program may use every port: nobody else is there.
fn restricts_ports(plan: &SandboxPlan) -> bool {
    plan.engine() == Engine::Landlock && plan.network() != Network::Open
}

fn grant(mut ruleset: RulesetCreated, plan: &SandboxPlan) -> Result<RulesetCreated, String> {
    let own_root = plan.engine() == Engine::Namespaces;
    if own_root {
        // Everything there is meant to be read.
        ruleset = add(ruleset, Path::new("/"), AccessFs::from_read(VERSION))?;
    }
    for (target, kind) in plan.mounts() {
        let access = match kind {
            MountKind::ReadOnly(_) | MountKind::File(_) | MountKind::Concealed(_) => {
                AccessFs::from_read(VERSION)
            }
            MountKind::Writable(_)
            | MountKind::Temporary(_)
            | MountKind::Devices
            | MountKind::Processes => AccessFs::from_all(VERSION),
            MountKind::Link(_) => continue,
        };
        // Landlock alone has no root of its own: what a plan makes there is the machine's.
        let is_machines = matches!(
            kind,
            MountKind::File(_) | MountKind::Temporary(_) | MountKind::Concealed(_)
        );
        if !own_root && is_machines {
            continue;
        }
        ruleset = add(ruleset, target, access)?;
    }
    Ok(ruleset)
}

fn add(
    ruleset: RulesetCreated,
    path: &Path,
    access: landlock::BitFlags<AccessFs>,
) -> Result<RulesetCreated, String> {
    let cannot = |error: &dyn std::fmt::Display| format!("Landlock: {}: {error}", path.display());
    let opened = PathFd::new(path).map_err(|error| cannot(&error))?;
    let access = if path.is_dir() {
        access
    } else {
        access & AccessFs::from_file(VERSION)
    };
    let rule = PathBeneath::new(opened, access);
    ruleset.add_rule(rule).map_err(|error| cannot(&error))
}
