//! Supervision of sidecars: programs in any language that do the work of a backend.
//!
//! [`SidecarClient::spawn`] starts one and reads its hello; [`SidecarClient::run`] gives it one work
//! order and follows it. Whatever the program does, it ends in one typed [`HostError`], and nothing
//! of it stays: not when it ends, not when the run is cancelled or dropped, and not when the host
//! itself is killed. What survives even that is found by its [`record`](records) at the next start.
//!
//! `sidecar-kit` knows the protocol's shape; this crate knows what the messages mean.

mod agent;
mod check;
mod client;
mod egress;
mod environment;
mod error;
mod event;
pub mod records;
mod run;
mod sandbox;
mod spec;

pub use abp_egress::{EgressEvent, EgressReport, EgressRule, EgressVerdict};
pub use abp_sandbox::{
    Confinement, ContainedProcess, Containment, Engine, EngineChoice, Exit, GivenStreams, Launcher,
    Machine, Network, Overlay, PROXY_PORT, ProcessSpec, ProgramError, ResourceLimits, SearchPath,
    is_base_variable, run_if_launcher,
};
pub use agent::{AgentExit, AgentProcess, AgentStreams};
pub use check::{CheckCommand, CheckPlace, check_failed, check_not_run};
pub use client::SidecarClient;
pub use egress::Egress;
pub use environment::SIDECAR_ID;
pub use error::{HostError, SidecarFailure, with_process_end};
pub use run::{Claim, RunEnded, RunItem, SidecarRun};
pub use sandbox::{ConfinedProgram, RunSandbox, SandboxSettings, without_parent_components};
pub use sidecar_kit::session::{Grace, Timing};
pub use sidecar_kit::{PermissionRequest, PermissionResponse};
pub use spec::SidecarSpec;
