//! The control plane, through its public interface.
//!
//! The modules say `cfg(test)` for clippy, which otherwise takes their helpers for library code.

#[cfg(test)]
mod choice;
#[cfg(test)]
mod decisions;
#[cfg(test)]
mod importing;
#[cfg(test)]
mod lab;
#[cfg(test)]
mod queue;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tools;
