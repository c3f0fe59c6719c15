//! The traits an agent adapter implements.

use std::fmt::Debug;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use abp_core::{ArtifactRef, BackendIdentity, CapabilityManifest, EnforcementLevel};
use abp_error::AbpError;
use serde_json::Value;
use uuid::Uuid;

use crate::RunContext;

/// A future that can be kept behind a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Something that can carry out work orders: an agent, or a model with tools.
pub trait Backend: Debug + Send + Sync {
    /// What is known about the backend before it is opened.
    fn descriptor(&self) -> &BackendDescriptor;

    /// Starts or connects to the agent, without giving it any work yet.
    fn open(&self, spec: OpenSpec) -> BoxFuture<'_, Result<Box<dyn Session>, AbpError>>;
}

/// An open backend, ready for one run.
pub trait Session: Send {
    /// Who it is.
    fn identity(&self) -> &BackendIdentity;

    /// What it can really do.
    fn manifest(&self) -> &CapabilityManifest;

    /// What keeps its processes from outliving the run, where it has processes.
    fn contained_by(&self) -> Option<&'static str> {
        None
    }

    /// Carries out the plan in the context. Returns when the work is done, failed or stopped.
    fn run(self: Box<Self>, context: RunContext) -> BoxFuture<'static, RunEnd>;
}

/// What is known about a backend before it is opened.
#[derive(Debug, Clone, PartialEq)]
pub struct BackendDescriptor {
    /// The name it is registered under.
    pub name: String,
    /// What it can do; `None` where only the open backend knows.
    pub manifest: Option<CapabilityManifest>,
    /// Who makes sure that the policy holds for it.
    pub enforcement: EnforcementLevel,
    /// The operator's preference among backends; higher is better.
    pub priority: u32,
}

/// What a backend is told when it is opened.
#[derive(Debug, Clone)]
pub struct OpenSpec {
    /// The run it is opened for.
    pub run_id: Uuid,
    /// The directory it will work in.
    pub workspace_root: PathBuf,
}

/// How a session ended, in its own words. The host judges the outcome itself.
#[derive(Debug)]
pub struct RunEnd {
    /// Whether the session did its work.
    pub result: Result<(), AbpError>,
    /// The usage as the vendor reports it.
    pub usage_raw: Value,
    /// What it left behind besides changed files.
    pub artifacts: Vec<ArtifactRef>,
}

impl RunEnd {
    /// The session did its work.
    #[must_use]
    pub fn completed() -> Self {
        Self {
            result: Ok(()),
            usage_raw: Value::Null,
            artifacts: Vec::new(),
        }
    }

    /// The session could not do its work.
    #[must_use]
    pub fn failed(error: AbpError) -> Self {
        Self {
            result: Err(error),
            ..Self::completed()
        }
    }
}
