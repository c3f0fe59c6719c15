//! Landlock: the second layer over the file system, and the only one where there are no namespaces.
//!
//! It grants and never denies beneath a grant, so a protected path inside the workspace is not its matter.
//! It covers neither UDP nor the attributes of a file; [`SandboxPlan::gaps`] lists what it leaves open.

use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, LandlockStatus, NetPort,
    PathBeneath, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError,
    RulesetStatus, Scope,
};
use rustix::fs::{CWD, FileType, fstat};
use rustix::io::Errno;

use super::trees::{DEVICES, open_path};
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

fn grant(ruleset: RulesetCreated, plan: &SandboxPlan) -> Result<RulesetCreated, String> {
    match plan.engine() {
        Engine::Namespaces => grant_own_root(ruleset, plan),
        Engine::Landlock => grant_machine(ruleset, plan),
    }
}

/// In a root of its own, everything is meant to be read.
fn grant_own_root(ruleset: RulesetCreated, plan: &SandboxPlan) -> Result<RulesetCreated, String> {
    let mut ruleset = add(ruleset, Path::new("/"), AccessFs::from_read(VERSION))?;
    for (target, kind) in plan.mounts() {
        match kind {
            MountKind::Writable(_)
            | MountKind::Overlay(_)
            | MountKind::Temporary(_)
            | MountKind::Devices
            | MountKind::Processes => {
                ruleset = add(ruleset, target, AccessFs::from_all(VERSION))?;
            }
            MountKind::ReadOnly(_)
            | MountKind::File(_)
            | MountKind::Concealed(_)
            | MountKind::Link(_) => {}
        }
    }
    Ok(ruleset)
}

/// On the file system as it is: the machine's devices, processes and temporary files are there too, and not
/// for the program. User id 0 could write to the disks and to the settings of the kernel.
fn grant_machine(
    mut ruleset: RulesetCreated,
    plan: &SandboxPlan,
) -> Result<RulesetCreated, String> {
    for (target, kind) in plan.mounts() {
        ruleset = match kind {
            MountKind::ReadOnly(_) | MountKind::Processes => {
                add(ruleset, target, AccessFs::from_read(VERSION))?
            }
            MountKind::Writable(_) => add(ruleset, target, AccessFs::from_all(VERSION))?,
            MountKind::Devices => grant_devices(ruleset, target)?,
            // No plan for Landlock alone has overlays.
            MountKind::Overlay(_)
            | MountKind::Temporary(_)
            | MountKind::File(_)
            | MountKind::Concealed(_)
            | MountKind::Link(_) => ruleset,
        };
    }
    Ok(ruleset)
}

fn grant_devices(mut ruleset: RulesetCreated, directory: &Path) -> Result<RulesetCreated, String> {
    for name in DEVICES {
        let path = directory.join(name);
        if path.exists() {
            ruleset = add(ruleset, &path, AccessFs::from_all(VERSION))?;
        }
    }
    Ok(ruleset)
}

fn add(
    ruleset: RulesetCreated,
    path: &Path,
    access: landlock::BitFlags<AccessFs>,
) -> Result<RulesetCreated, String> {
    let cannot = |error: &dyn std::fmt::Display| format!("Landlock: {}: {error}", path.display());
    // A link that took the place of a path since it was planned would open another one.
    let opened = open_path(CWD, path).map_err(|error: Errno| cannot(&error))?;
    let known = fstat(&opened).map_err(|error| cannot(&error))?;
    let access = match FileType::from_raw_mode(known.st_mode) {
        FileType::Directory => access,
        _ => access & AccessFs::from_file(VERSION),
    };
    let rule = PathBeneath::new(opened, access);
    ruleset.add_rule(rule).map_err(|error| cannot(&error))
}
