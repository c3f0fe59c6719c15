//! Why a profile cannot be compiled.

use abp_error::ErrorCode;
use abp_glob::GlobError;

use crate::PolicyList;

/// A profile that cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("policy list {list}: {problem}")]
pub struct PolicyError {
    list: PolicyList,
    problem: GlobError,
}

impl PolicyError {
    pub(crate) fn new(list: PolicyList, problem: GlobError) -> Self {
        Self { list, problem }
    }

    /// The list with the problem.
    #[must_use]
    pub const fn list(&self) -> PolicyList {
        self.list
    }

    /// The place of the offending pattern, where one pattern is to blame.
    #[must_use]
    pub const fn index(&self) -> Option<usize> {
        self.problem.index()
    }

    /// What is wrong.
    #[must_use]
    pub const fn problem(&self) -> &GlobError {
        &self.problem
    }

    /// The error's stable code.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        ErrorCode::PolicyInvalid
    }
}
