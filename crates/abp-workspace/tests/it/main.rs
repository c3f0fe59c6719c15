//! Workspaces on real directories, through the public interface. Cases named after a row of the
//! security checks (`d1_…`, `D6 …`) are the ones that row asks for.
//!
//! The modules say `cfg(test)` for clippy, which otherwise takes their helpers for library code.

#[cfg(test)]
mod application;
#[cfg(test)]
mod apply;
#[cfg(test)]
mod apply_random;
#[cfg(test)]
mod changes;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod git_apply;
#[cfg(test)]
mod git_baseline;
#[cfg(test)]
mod hidden;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod merge;
#[cfg(test)]
mod notes;
#[cfg(test)]
mod overlay;
#[cfg(test)]
mod patterns;
#[cfg(test)]
mod recovery;
#[cfg(test)]
mod staging;
#[cfg(test)]
mod tools;
