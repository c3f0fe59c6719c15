//! What the tests of several crates share: skipping with a reason, and the optional data directory.
//!
//! Only dev-dependencies name this crate, and `xtask`, which reads back what [`skip`] wrote.
//! Nothing here may depend on the crates under test, or they could not use it in their own tests.

mod shared;
mod skip;

pub use shared::shared_dir;
pub use skip::{SKIP_LOG_ENV, Skip, parse_skip_log, skip};
