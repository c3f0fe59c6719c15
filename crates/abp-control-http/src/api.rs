//! The documents of the control plane's HTTP interface.
//!
//! Both sides use them: the server's rows name them as the types of bodies and answers, and a remote
//! command line reads and writes them. Documents that a server sends may grow; readers ignore members they
//! do not know.

mod approvals;
mod codes;
mod events;
mod info;
mod keys;
mod log;
mod runs;
mod traffic;
mod translate;
mod workspaces;

pub use approvals::{AnswerRequest, ApprovalPage, ApprovalView, ApprovalsQuery};
pub use codes::{OneTimeCode, RedeemedKey};
pub use events::{ClientView, EventItem, EventPage, EventsQuery, SocketCommand, SocketMessage};
pub use info::{
    BackendPage, BackendView, CapabilityPage, CapabilityView, ConfigView, NodePage, NodeView,
    ValidateRequest, ValidationFinding, ValidationReport,
};
pub use keys::{
    CreateKeyRequest, CreatedKey, KeyPage, KeyView, RevokedKey, UsageReport, UsageView,
};
pub use log::{
    CheckpointView, ConsistencyProof, ConsistencyQuery, InclusionProof, ProofQuery, ReceiptItem,
    ReceiptPage, ReceiptsQuery, VerifyReport,
};
pub use runs::{
    ApplyReport, ApplyRequestBody, CancelRequestBody, ChangeProgress, ChangesView, DeletedRun,
    DiscardReport, RunFigures, RunList, RunStateView, RunView, RunsQuery, SessionPage, SessionView,
    SessionsQuery, SteerRequest, SubmitOptions, SubmitQuery, SubmitRequest, SubmittedRun,
    WorkspaceSource, run_view, session_view,
};
pub use traffic::{
    ExchangePage, ExchangeView, ExchangesQuery, FieldLoss, LossReport, LossesQuery, SeriesBy,
    SeriesQuery, UpstreamPage, UpstreamView, UsagePoint, UsageSeries, UsageSeriesReport,
};
pub use translate::{
    TranslateAllRequest, TranslationFailure, TranslationInput, TranslationReport, TranslationResult,
};
pub use workspaces::{
    BlobStored, BlobsStored, MAX_BUNDLED_BLOB, ManifestEntry, WorkspaceManifest, WorkspaceView,
};
