//! The `abp` command, as a user runs it.
//!
//! The modules say `cfg(test)` for clippy, which otherwise takes their helpers for library code.

#[cfg(test)]
mod acp;
#[cfg(test)]
mod applying;
#[cfg(test)]
mod backups;
#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod console;
#[cfg(test)]
mod desk;
#[cfg(test)]
mod doctor;
#[cfg(test)]
mod durable;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod first_run;
#[cfg(test)]
mod hosts;
#[cfg(test)]
mod housekeeping;
#[cfg(test)]
mod import;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod launch;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod operating;
#[cfg(test)]
mod plans;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod postgres;
#[cfg(test)]
mod present;
#[cfg(test)]
mod questions;
#[cfg(test)]
mod queue;
#[cfg(test)]
mod race;
#[cfg(test)]
mod reading;
#[cfg(test)]
mod remote;
#[cfg(test)]
mod run_mcp;
#[cfg(test)]
mod sandbox;
#[cfg(test)]
mod served;
#[cfg(test)]
mod serving;
#[cfg(test)]
mod sidecar;
#[cfg(test)]
mod signals;
#[cfg(test)]
mod stages;
#[cfg(test)]
mod store_edits;
#[cfg(test)]
mod telemetry;
#[cfg(test)]
mod translate;
#[cfg(test)]
mod upstreams;
