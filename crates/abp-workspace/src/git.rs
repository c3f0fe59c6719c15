//! The repository a stage starts with.

/// Whether a stage started as a git repository.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GitBaseline {
    /// It did, with everything in one commit.
    Made,
    /// It did not.
    Skipped {
        /// Why.
        reason: String,
    },
}
