//! Which processes live, whatever they left in the store.

use std::path::PathBuf;

use super::postgres;
use super::sql::Target;
use super::sqlite::owner;

/// The place in which processes say that they live.
#[derive(Debug, Clone)]
pub(crate) enum Owners {
    /// Each holds a lock on a file of this directory.
    Files(PathBuf),
    /// Each has a row in a table, and says again and again that it lives.
    Table,
}

impl Owners {
    /// Whether two processes are on one node: with a state directory they are.
    pub(crate) fn is_same_node(&self, one: &str, other: &str) -> bool {
        match self {
            Self::Files(_) => true,
            Self::Table => postgres::node_of(one) == postgres::node_of(other),
        }
    }

    /// Whether the process with that token still lives.
    pub(crate) async fn is_alive<'c>(
        &self,
        target: impl Into<Target<'c>>,
        token: &str,
    ) -> Result<bool, sqlx::Error> {
        match self {
            Self::Files(directory) => Ok(owner::is_alive(directory, token)),
            Self::Table => postgres::is_alive(target.into(), token).await,
        }
    }
}
