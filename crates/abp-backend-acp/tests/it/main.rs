//! Agents, good and bad, through the public interface of the runtime.
//!
//! The modules say `cfg(test)` for clippy, which otherwise takes their helpers for library code.

#[cfg(test)]
mod bad_agents;
#[cfg(test)]
mod lab;
#[cfg(test)]
mod permissions;
#[cfg(test)]
mod sessions;
