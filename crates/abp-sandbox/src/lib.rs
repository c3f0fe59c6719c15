//! Programs in a sandbox, and nothing left of them when they end.
//!
//! - [`SandboxPlan`] says what a program will see and may do: computed from a [`SandboxRequest`], from the
//!   machine ([`SystemLayout`]) and from what the kernel offers ([`KernelFeatures`]), and printable.
//! - [`ContainedProcess`] starts a program as its plan says, so that no descendant of it outlives it, or us.

mod environment;
mod error;
mod kernel;
mod launcher;
mod machine;
mod plan;
mod process;
pub mod procfs;
mod program;
mod system;
mod wire;

pub use environment::is_base_variable;
pub use error::SpawnError;
pub use kernel::KernelFeatures;
pub use launcher::run_if_launcher;
pub use machine::Machine;
pub use plan::{
    Engine, EngineChoice, MountKind, Network, Overlay, PROXY_PORT, SandboxError, SandboxPlan,
    SandboxRequest,
};
pub use process::{
    Concealment, Confinement, ContainedProcess, Containment, Exit, GivenStreams, Launcher, Pipes,
    ProcessSpec, ResourceLimits,
};
pub use program::{ProgramError, SearchPath};
pub use system::SystemLayout;
