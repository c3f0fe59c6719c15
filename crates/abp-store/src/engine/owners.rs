//! Which processes live, whatever they left in the store.

use std::path::PathBuf;

use super::sql::Target;
use super::sqlite::owner;

/// Where processes say that they live.
#[derive(Debug, Clone)]
pub(crate) enum Owners {
    /// Each holds a lock on a file of this directory.
    Files(PathBuf),
}

impl Owners {
    /// Whether the process with that token still lives.
    pub(crate) async fn is_alive<'c>(
        &self,
        _target: impl Into<Target<'c>>,
        token: &str,
    ) -> Result<bool, sqlx::Error> {
        match self {
            Self::Files(directory) => Ok(owner::is_alive(directory, token)),
        }
    }
}
