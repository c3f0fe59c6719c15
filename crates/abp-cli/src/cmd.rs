//! The commands, one module each.

pub(crate) mod agents;
pub(crate) mod backends;
pub(crate) mod config;
pub(crate) mod control;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod import;
pub(crate) mod inspect;
pub(crate) mod keys;
pub(crate) mod launch;
pub(crate) mod matrix;
pub(crate) mod mcp;
pub(crate) mod models;
pub(crate) mod present;
pub(crate) mod receipt;
pub(crate) mod remote;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod sandbox;
pub(crate) mod schema;
pub(crate) mod serve;
pub(crate) mod shell;
pub(crate) mod sidecar;
pub(crate) mod stage;
pub(crate) mod translate;
pub(crate) mod validate;
