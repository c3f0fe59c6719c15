//! What the entry of a run's start binds of the run's row.

use abp_core::Timestamp;
use abp_receipt::{Hash, RunBinding};
use serde::Serialize;
use uuid::Uuid;

use crate::Project;

/// The columns of a run that never change. Their hash, as canonical JSON, is in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct BoundRow<'a> {
    pub(crate) accepted_at: Timestamp,
    pub(crate) backend: &'a str,
    pub(crate) backend_asked: Option<&'a str>,
    pub(crate) idempotency_key: Option<&'a str>,
    pub(crate) principal: Option<&'a str>,
    pub(crate) project: Option<BoundProject<'a>>,
    pub(crate) request_sha256: Option<&'a str>,
    pub(crate) run_id: Uuid,
    pub(crate) work_order_sha256: &'a str,
}

/// A project in which numbers are texts: canonical JSON carries none beyond 2^53.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct BoundProject<'a> {
    born: Option<String>,
    inode: String,
    path: &'a str,
}

impl<'a> From<&'a Project> for BoundProject<'a> {
    fn from(project: &'a Project) -> Self {
        Self {
            born: project.born.map(|born| born.to_string()),
            inode: project.inode.to_string(),
            path: &project.path,
        }
    }
}

impl BoundRow<'_> {
    /// The binding of this row and the stored order.
    pub(crate) fn bind(&self, order_json: &str) -> Result<RunBinding, String> {
        Ok(RunBinding {
            order_sha256: Hash::of(order_json.as_bytes()),
            row_sha256: Hash::of_canonical(self).map_err(|error| error.to_string())?,
        })
    }
}
