//! The backends that come with ABP, and the registry a runtime looks them up in.

mod registry;

pub use abp_backend_core::{self, Backend};
pub use abp_backend_mock::{self, MockBackend};
pub use abp_backend_sidecar::{self, SidecarBackend};
pub use registry::BackendRegistry;
