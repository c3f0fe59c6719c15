//! Configuration: `backplane.toml` in layers, values with their origin, problems with their place.
//!
//! [`load`] merges defaults, the user's file, the project's file, the operator's file, environment
//! and flags, in that order; [`Sources`] says where they are. The result is a plain [`Config`] and,
//! for each value, the [`SettingOrigin`] it came from. What is wrong is reported all at once, as
//! [`Diagnostic`]s that point at the line.
//!
//! A single value is taken from the highest layer that sets it. A named table (a backend, an
//! upstream, an MCP server, a policy, a price table, an emulation) is taken whole from the highest layer that has
//! the name, so that two layers never blend into a policy or a command that nobody wrote.
//! Restrictions add up.
//!
//! Unknown keys are warnings, and errors in [`Sources::strict`] mode. An unknown key that restricts, or
//! resembles a setting that does, is always an error, because a rule that is not read leaves a run
//! freer than its author meant it to be. Keys of earlier versions are never reinterpreted: they have
//! no effect, and the warning names what replaces them.
//!
//! Invariants:
//! - A project file comes with a repository, so it is somebody else's input. It can choose one of
//!   the backends that are there, unless the user chose one, and it can restrict what runs may do.
//!   Everything else in it is ignored with a warning: commands, addresses, keys and where state
//!   lives because they run or redirect things, policies and prices because they could loosen a
//!   limit, emulations because they put text into prompts.
//! - Every path is absolute after loading. A relative path of a file starts at the directory of that
//!   file, never at the current directory or the workspace; one of a variable or a flag starts at the
//!   process's directory. A command without a separator stays a name to be looked up.
//! - The state directory and the directory of stages are never inside one another. Loading makes
//!   neither.
//! - Values of environment variables for backends, and lines that seem to hold a secret, are not
//!   repeated in messages or in [`render_toml`] and [`render_json`].

mod address;
mod check;
mod control;
mod diagnostic;
mod directories;
mod document;
mod env_value;
mod load;
mod mcp;
mod model;
mod retention;
mod safety;
mod sandbox;
mod server;
mod settings;
mod show;
mod sources;
mod store;
mod telemetry;
mod template;
mod upstream;
mod upstream_preset;
mod walk;
mod webhook;

pub use control::ControlConfig;
pub use diagnostic::{ConfigErrors, Diagnostic, Excerpt, Problem, Severity, render};
pub use directories::{LEGACY_STATE_DIR, is_legacy_state_dir};
pub use env_value::EnvValue;
pub use load::{Loaded, load};
pub use mcp::{
    McpConfig, McpElicitationConfig, McpEmulateConfig, McpEra, McpSamplingConfig, McpSandboxConfig,
    McpServerConfig,
};
pub use model::{AgentModels, BackendConfig, Config, LogLevel, Restrictions};
pub use retention::RetentionConfig;
pub use sandbox::{SandboxConfig, SandboxEngine, SandboxNetwork};
pub use server::ServerConfig;
pub use settings::{Setting, settings};
pub use show::{render_json, render_toml};
pub use sources::{Layer, Override, SettingOrigin, Sources};
pub use store::StoreConfig;
pub use telemetry::TelemetryConfig;
pub use template::{project_template, template};
pub use upstream::{UpstreamAuthKind, UpstreamConfig};
pub use upstream_preset::{
    PresetChoices, UpstreamPreset, upstream_presets, with_table, without_upstream,
};
pub use webhook::{WebhookAddresses, WebhookConfig};
