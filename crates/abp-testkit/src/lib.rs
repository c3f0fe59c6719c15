//! What the tests of several crates share: skipping with a reason, the optional data directory, a
//! private Postgres, and a fake vendor.
//!
//! Only dev-dependencies name this crate, and `xtask`, which reads back what [`skip`] wrote.
//! Nothing here may depend on the crates under test, or they could not use it in their own tests.

mod postgres;
mod shared;
mod skip;
mod vendor;

pub use postgres::PrivatePostgres;
pub use shared::shared_dir;
pub use skip::{SKIP_LOG_ENV, Skip, parse_skip_log, skip};
pub use vendor::{Cut, ExchangeEnd, FakeVendor, Reply, Script, VendorRequest, fixture};
