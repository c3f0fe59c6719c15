//! The contract: work orders, events, receipts, capabilities, policy and the intermediate representation.
//!
//! Everything else in the workspace exists to carry these types faithfully between a client and an
//! agent. They are plain data: no I/O, no clock. Reading is forgiving towards peers (every list and
//! map has a default, unknown fields are ignored, unknown event kinds and capabilities are kept);
//! writing is always complete.
//!
//! ```
//! use abp_core::{Capability, CapabilityManifest, MinSupport, SupportLevel, WorkOrderBuilder};
//!
//! let mut manifest = CapabilityManifest::new();
//! manifest.insert(Capability::Streaming, SupportLevel::Native);
//! assert!(manifest[&Capability::Streaming].satisfies(&MinSupport::Native));
//!
//! let order = WorkOrderBuilder::new("say hello").require(Capability::Streaming, MinSupport::Native).build();
//! assert_eq!(order.requirements.required.len(), 1);
//! ```

mod capability;
mod client;
mod document;
mod event;
mod exchange;
mod hash;
pub mod ir;
mod mcp;
mod money;
mod policy;
mod receipt;
mod report;
pub mod schema;
mod time;
mod validate;
mod version;
mod work_order;

pub use capability::{
    Capability, CapabilityManifest, CapabilityRequirement, CapabilityRequirements, MinSupport,
    SupportLevel,
};
pub use client::{
    AgentRequest, CapabilityOrigins, CapabilitySource, ClientCapabilities, ClientProfile,
    ErrorSeverity, ImageResolution, PacketOp, PacketWriter, PartialCapabilities, PresentationType,
    RequestLineage, StreamError, StreamPacket,
};
pub use document::{ContractError, read_document};
pub use event::{
    AgentEvent, AgentEventKind, EventOrigin, OpaqueEvent, PermissionOutcome, PlanEntry,
};
pub use exchange::ExchangeReport;
pub use hash::{
    EventDigest, document_hash, member_digests, receipt_hash, verify_receipt_document,
    work_order_hash,
};
pub use mcp::{
    McpAsk, McpFlagLevel, McpFlagReport, McpNegotiationReport, McpProtocolEra, McpReport,
    McpServerReport, McpToolReport,
};
pub use money::{MicroUsd, ModelPrice, PriceTable};
pub use policy::PolicyProfile;
pub use receipt::{
    ArtifactRef, Attestation, BackendIdentity, CancelReason, ChangeSummary, CheckReport,
    ExchangeFidelity, LeftOut, ModelReport, Outcome, PathChange, PathState, Receipt, RunExchange,
    RunMetadata, SourceView, StageKind, TraceDigest, UsageNormalized, VerificationReport,
    WorkspaceReport,
};
pub use report::{
    Adaptation, CandidateReport, EmulationEntry, EmulationReport, EmulationStrategy, EnforcedRule,
    EnforcementLevel, EnforcementReport, FidelityScore, Loss, LossKind, NegotiationResult,
    PlanReport, SandboxReport, SelectionReport, StateAccess,
};
pub use time::Timestamp;
pub use validate::{ValidationError, validate_receipt, validate_work_order};
pub use version::CONTRACT_VERSION;
pub use work_order::{
    ContextPacket, ContextSnippet, ExecutionLane, ExecutionMode, RuntimeConfig, WorkOrder,
    WorkOrderBuilder, WorkspaceMode, WorkspaceSpec,
};

/// The snippets of the documentation compile and hold.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/capabilities.md")]
struct CapabilitiesDocument;
