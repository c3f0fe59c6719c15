//! Glob patterns in bounded lists: which files are staged, and which tools, paths and hosts a
//! policy names.
//!
//! Patterns have the syntax of the `globset` crate: `*` and `?` also match `/`, `**` matches whole
//! components, `[a-z]` is a class, `{a,b}` is a choice, `{,b}` one that may be absent, `\` takes the
//! meaning from the character behind it, and case matters. Paths are matched as bytes, so names that
//! are not UTF-8 work.
//!
//! Patterns come from work orders and configuration files that others wrote. Their number, length
//! and shape are therefore limited ([`MAX_PATTERNS`] and the other constants) before anything is
//! compiled. Within the limits, the worst lists found compile in a quarter of a second and
//! match the longest possible path in 0.1 s; ordinary ones match in microseconds.

mod error;
mod filter;
mod limits;
mod list;

pub use error::GlobError;
pub use filter::{IncludeExcludeGlobs, MatchDecision};
pub use limits::{
    MAX_ALTERNATES, MAX_BRACE_DEPTH, MAX_PATTERN_BYTES, MAX_PATTERNS, MAX_STARS,
    MAX_WILDCARD_BYTES, check_limits,
};
pub use list::{GlobList, GlobMatch, named_path};
