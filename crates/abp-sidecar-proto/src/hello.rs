//! Who a sidecar is.

use abp_core::{
    BackendIdentity, CONTRACT_VERSION, Capability, CapabilityManifest, ExecutionMode, SupportLevel,
};
use abp_protocol::Envelope;

/// Who a sidecar is and what it can do.
#[derive(Debug, Clone)]
pub struct Hello {
    backend: BackendIdentity,
    capabilities: CapabilityManifest,
    mode: ExecutionMode,
}

impl Hello {
    /// A sidecar that takes mapped requests and can do nothing special.
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            backend: BackendIdentity {
                id: id.into(),
                backend_version: None,
                adapter_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            },
            capabilities: CapabilityManifest::new(),
            mode: ExecutionMode::Mapped,
        }
    }

    /// The version of the agent behind it.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.backend.backend_version = Some(version.into());
        self
    }

    /// Something it can do.
    #[must_use]
    pub fn can(mut self, capability: Capability, level: SupportLevel) -> Self {
        self.capabilities.insert(capability, level);
        self
    }

    /// How it takes requests.
    #[must_use]
    pub fn mode(mut self, mode: ExecutionMode) -> Self {
        self.mode = mode;
        self
    }

    pub(crate) fn backend(&self) -> &BackendIdentity {
        &self.backend
    }

    pub(crate) fn envelope(&self) -> Envelope {
        Envelope::Hello {
            contract_version: CONTRACT_VERSION.to_owned(),
            backend: self.backend.clone(),
            capabilities: self.capabilities.clone(),
            mode: self.mode,
        }
    }
}
