//! Giving up every privilege, for good, before the program is executed; and keeping those of a new
//! user namespace until then.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    clear_ambient_capability_set, configure_capability_in_ambient_set, no_new_privs,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// The kernel numbers capabilities below this.
const CAPABILITIES: u32 = 64;
const NONE: CapabilitySets = CapabilitySets {
    effective: CapabilitySet::empty(),
    permitted: CapabilitySet::empty(),
    inheritable: CapabilitySet::empty(),
};

/// Lets the next program keep the capabilities that a new user namespace gave us. Only user id 0
/// keeps them by itself, and inside we are whoever we were.
pub(super) fn keep_over_exec() -> Result<(), String> {
    let cannot = |error| format!("cannot keep the rights of the namespace: {error}");
    let mut sets = capabilities(None).map_err(cannot)?;
    sets.inheritable = sets.permitted;
    set_capabilities(None, sets).map_err(cannot)?;
    for number in 0..CAPABILITIES {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if sets.permitted.contains(capability) {
            configure_capability_in_ambient_set(capability, true).map_err(cannot)?;
        }
    }
    Ok(())
}

/// Drops every capability from every set and forbids to gain any by executing a program.
///
/// # Errors
/// Fails where a capability or the way to one is left: then nothing may be executed.
pub(super) fn drop_all() -> Result<(), String> {
    let step = |what: &str, done: rustix::io::Result<()>| {
        done.map_err(|error| format!("cannot give up privileges: {what}: {error}"))
    };
    step("no_new_privs", set_no_new_privs(true))?;
    empty_bounding_set()?;
    step("ambient set", clear_ambient_capability_set())?;
    step("capset", set_capabilities(None, NONE))?;
    let left = capabilities(None);
    if left != Ok(NONE) || no_new_privs() != Ok(true) {
        return Err(format!("privileges are left: {left:?}"));
    }
    Ok(())
}

/// Without the right to change it (`CAP_SETPCAP`) the set stays; then there is no capability to lose
/// either, and `no_new_privs` keeps files from granting one.
fn empty_bounding_set() -> Result<(), String> {
    let may_change =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SETPCAP));
    if !may_change {
        return Ok(());
    }
    for number in 0..CAPABILITIES {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        // The first number the kernel does not know ends the list.
        let Ok(present) = capability_is_in_bounding_set(capability) else {
            return Ok(());
        };
        if present {
            remove_capability_from_bounding_set(capability).map_err(|error| {
                format!("cannot drop capability {number} from the bounding set: {error}")
            })?;
        }
    }
    Ok(())
}
