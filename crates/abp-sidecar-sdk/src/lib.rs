//! Sidecars by name: those of the configuration and those that come with ABP, in the registry; and
//! the check that tells an author whether a program is one.

mod check;
mod hosts;
mod register;
mod secrets;

pub use check::{Check, CheckResult, CheckSettings, Finding, check};
pub use hosts::{BuiltInHost, HostInstallation, built_in_hosts};
pub use register::{Place, register_sidecars, sandbox_settings};
pub use secrets::secret_values;
