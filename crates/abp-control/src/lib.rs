//! The control plane: the one home of runs.
//!
//! [`ControlPlane`] is the composition root of a process: backends, runtime, store, MCP servers and
//! metrics are made once, from the configuration. A [`Submission`] carries everything that belongs to one
//! run (the order, the backend asked for, prices, limits, approvals), and [`ControlPlane::submit`] is the
//! only way to start one, whether the caller is the command line, an HTTP request or an MCP client. The
//! faces build their orders with one builder, [`OrderDraft`], so that protections and restrictions are
//! the same for all of them.

mod agents;
mod approvals;
mod backends;
mod content;
mod decide;
mod delete;
mod find;
mod gc;
mod health;
mod import;
mod keys;
mod limits;
mod location;
mod mcp;
mod models;
mod multiplex;
mod order;
mod plane;
mod policy;
mod principal;
mod probe;
mod reload;
mod run_gateway;
mod runs;
mod secrets;
mod session;
mod submission;
mod telemetry;
mod upstream_spec;
mod upstreams;
mod worker;
mod workspace;

pub use abp_runtime::{EventStream, FollowedEvent};
pub use abp_store::lifecycle;
pub use abp_store::{
    AnswerOutcome, ApprovalAnswer, ApprovalFilter, ApprovalRecord, ApprovalVerdict, KeyScope,
    RunFilter, RunRecord, RunState,
};
pub use abp_telemetry::TraceContext;
pub use agents::{agents_directory, homes};
pub use approvals::Answer;
pub use decide::{ApplyOutcome, DecisionProgress, DiscardOutcome, ProposedChanges, apply_all};
pub use find::{RunScope, find_run, short_run_id};
pub use gc::{GarbageCount, GarbageKind, GarbageMode, GarbageReport, uploads_directory};
pub use health::{BackendHealth, MissingBackend};
pub use import::{ImportVerdict, ImportedReceipt, LegacyImport, legacy_state_dir};
pub use keys::{new_key, operator_key, operator_key_file};
pub use location::store_location;
pub use mcp::{
    ABP_INSTRUCTIONS, AbpServer, GATEWAY_INSTRUCTIONS, mcp_emulations, mcp_gateway, mcp_offer,
};
pub use multiplex::{MultiplexedEvent, MultiplexedStream};
pub use order::{OrderDraft, PolicyChoice};
pub use plane::ControlPlane;
pub use policy::usual_policy;
pub use principal::Principal;
pub use probe::{ProbeEvidence, ProbedCapability, probe};
pub use reload::{GatewayReloader, ReloadReport};
pub use runs::{CancelOutcome, CancelRequest, RunPage};
pub use session::{EarlierSession, SessionRecord, SessionsPage};
pub use submission::{Submission, Submitted};
pub use upstream_spec::http_upstream;
pub use upstreams::{ConfiguredModel, configured_models, first_configured_model};
pub use worker::{WorkerLimits, Workers};
