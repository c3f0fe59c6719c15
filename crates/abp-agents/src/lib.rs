//! The coding agents that ABP knows: how each is installed, started and pointed at a gateway.
//!
//! [`presets`] is the table. [`AgentsDirectory`] installs what it names, in the pinned version, from the
//! package registry, by a lock file of ours with the hash of every package, without running any script of a
//! package, and with a Node of its own where the system's is too old.

mod install;
mod preset;
mod presets;
mod scripted_model;
mod template;

pub use install::{AgentsDirectory, InstallState, InstalledAgent};
pub use preset::{AgentPreset, AgentProgram, PackageSource, PermissionBehaviour};
pub use presets::{find_preset, presets};
pub use scripted_model::ScriptedModel;
pub use template::{GatewayTarget, fill, fill_pairs};
