//! The table of error codes.
//!
//! One row per code: wire name, category, HTTP status, exit status, explanation, remedy. Wire names
//! are SCREAMING_SNAKE_CASE; on input the snake_case spelling is accepted as well, because some
//! peers send it.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The area of the system an error belongs to.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorCategory {
    /// Messages between host and sidecar.
    Protocol,
    /// The agent or model behind the backplane.
    Backend,
    /// What a backend can do, against what was asked.
    Capability,
    /// What the operator allows.
    Policy,
    /// Staging, verification and application of files.
    Workspace,
    /// The vendor-neutral representation of a conversation.
    Ir,
    /// Receipts and their log.
    Receipt,
    /// Recognising and reading a vendor's format.
    Dialect,
    /// Translating between two vendors' formats.
    Mapping,
    /// What happens inside a run.
    Execution,
    /// Documents that do not follow the contract.
    Contract,
    /// Budgets, rates and turn counts.
    Limit,
    /// Event streams.
    Stream,
    /// Command line and configuration files.
    Config,
    /// A defect of the backplane itself.
    Internal,
}

/// The exit status of the `abp` process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ExitStatus {
    /// Everything worked.
    Success = 0,
    /// The run failed.
    RunFailed = 1,
    /// Wrong usage, invalid input or configuration.
    Usage = 2,
    /// A required capability cannot be provided.
    CapabilityUnsupported = 3,
    /// Policy refused the work.
    PolicyDenied = 4,
    /// A budget or limit was reached.
    BudgetExceeded = 5,
    /// The backend cannot be reached or took too long.
    BackendUnavailable = 6,
    /// A receipt, hash or signature does not verify.
    VerificationFailed = 7,
    /// The workspace changed under the run.
    WorkspaceConflict = 8,
    /// A receipt is consistent with itself, and nothing proves that it is the run's.
    NotProven = 9,
    /// Cancelled by the user.
    Cancelled = 130,
}

impl ExitStatus {
    /// The number the process exits with.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }
}

/// A wire name that is no error code of this version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownErrorCode(pub String);

impl fmt::Display for UnknownErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown error code {:?}", self.0)
    }
}

impl std::error::Error for UnknownErrorCode {}

macro_rules! error_codes {
    ($($variant:ident = $wire:literal, $category:ident, $http:literal, $exit:ident, $explanation:literal, $remedy:literal;)+) => {
        /// A stable, machine-readable error code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $(#[doc = $explanation] $variant,)+
        }

        impl ErrorCode {
            /// Every code, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The wire name.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $wire,)+ }
            }

            /// The area the error belongs to.
            #[must_use]
            pub const fn category(self) -> ErrorCategory {
                match self { $(Self::$variant => ErrorCategory::$category,)+ }
            }

            /// The HTTP status a server answers with.
            #[must_use]
            pub const fn http_status(self) -> u16 {
                match self { $(Self::$variant => $http,)+ }
            }

            /// The exit status a command ends with.
            #[must_use]
            pub const fn exit_status(self) -> ExitStatus {
                match self { $(Self::$variant => ExitStatus::$exit,)+ }
            }

            /// What the code means, in one sentence.
            #[must_use]
            pub const fn explanation(self) -> &'static str {
                match self { $(Self::$variant => $explanation,)+ }
            }

            /// What a user can do about it.
            #[must_use]
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$variant => $remedy,)+ }
            }
        }
    };
}

error_codes! {
    ProtocolInvalidEnvelope = "PROTOCOL_INVALID_ENVELOPE", Protocol, 502, RunFailed,
        "A message from a sidecar is not a valid envelope.",
        "Check that the sidecar writes one JSON object per line to standard output and nothing else; logs belong on standard error.";
    ProtocolUnexpectedMessage = "PROTOCOL_UNEXPECTED_MESSAGE", Protocol, 502, RunFailed,
        "A valid message arrived in a state in which it is not allowed.",
        "The order is hello, run, events, then exactly one final or fatal, all with the run's ref_id.";
    ProtocolVersionMismatch = "PROTOCOL_VERSION_MISMATCH", Protocol, 502, RunFailed,
        "The peer speaks another major version of the contract.",
        "Upgrade the older side: versions with the same major number work together.";
    ProtocolHandshakeFailed = "PROTOCOL_HANDSHAKE_FAILED", Protocol, 502, BackendUnavailable,
        "The sidecar did not complete its hello in time or in form.",
        "Start the sidecar by hand and look at its first line of output and at its standard error.";
    ProtocolMissingRefId = "PROTOCOL_MISSING_REF_ID", Protocol, 502, RunFailed,
        "An event or final message does not name the run it belongs to.",
        "Copy the id of the run message into ref_id of every answer.";
    BackendNotFound = "BACKEND_NOT_FOUND", Backend, 404, Usage,
        "No backend of that name is registered.",
        "List the registered backends with `abp backends`.";
    BackendTimeout = "BACKEND_TIMEOUT", Backend, 504, BackendUnavailable,
        "The backend did not finish within the time allowed.",
        "Raise --timeout, or find out with --debug where the backend is waiting.";
    BackendConnectTimeout = "BACKEND_CONNECT_TIMEOUT", Backend, 504, BackendUnavailable,
        "No connection to the vendor came about in time.",
        "Check the upstream's base_url and the network; raise its connect_timeout_ms if it is far away.";
    BackendFirstByteTimeout = "BACKEND_FIRST_BYTE_TIMEOUT", Backend, 504, BackendUnavailable,
        "The vendor took the request and did not begin to answer in time.",
        "Raise the upstream's first_byte_timeout_secs for models that think long, or use another upstream.";
    BackendStalled = "BACKEND_STALLED", Backend, 504, BackendUnavailable,
        "The vendor began to answer and then sent nothing more.",
        "Repeat the request; raise the upstream's idle_timeout_secs if its pauses are normal.";
    BackendBrokenAnswer = "BACKEND_BROKEN_ANSWER", Backend, 502, BackendUnavailable,
        "The vendor's answer broke off or cannot be used.",
        "Repeat the request. What came before the break was delivered, and is not the whole answer.";
    BackendCrashed = "BACKEND_CRASHED", Backend, 502, RunFailed,
        "The backend ended without a result.",
        "Read the receipt's trace and the backend's log; the run can be repeated safely because the source was not changed.";
    BackendUnavailable = "BACKEND_UNAVAILABLE", Backend, 503, BackendUnavailable,
        "The backend cannot be started or reached.",
        "Check the backend with `abp backends --json` and its command or endpoint.";
    BackendRateLimited = "BACKEND_RATE_LIMITED", Backend, 429, BackendUnavailable,
        "The vendor refuses requests because of its rate limit.",
        "Wait for the time given in the error's context, or use another backend.";
    BackendAuthFailed = "BACKEND_AUTH_FAILED", Backend, 502, BackendUnavailable,
        "The vendor refused the configured credentials.",
        "Check the key of this backend; keys of callers are never sent to vendors.";
    BackendModelNotFound = "BACKEND_MODEL_NOT_FOUND", Backend, 404, Usage,
        "The vendor does not know the model.",
        "Check the model's name, or configure an alias for it.";
    BackendContentFiltered = "BACKEND_CONTENT_FILTERED", Backend, 422, RunFailed,
        "The vendor's filter refused the content.",
        "Rephrase the request, or use a backend with another filter.";
    BackendContextLength = "BACKEND_CONTEXT_LENGTH", Backend, 413, RunFailed,
        "The conversation is longer than the model accepts.",
        "Shorten the context or choose a model with a larger window.";
    CapabilityUnsupported = "CAPABILITY_UNSUPPORTED", Capability, 422, CapabilityUnsupported,
        "A required capability cannot be provided by any candidate backend.",
        "See the reasons per backend with --dry-run; lower the requirement to `emulated`, or use a backend that has the capability.";
    CapabilityEmulationFailed = "CAPABILITY_EMULATION_FAILED", Capability, 502, RunFailed,
        "A capability was emulated and the result does not hold what was asked.",
        "Use a backend that has the capability natively, or relax the requirement.";
    PolicyDenied = "POLICY_DENIED", Policy, 403, PolicyDenied,
        "The policy forbids the action.",
        "The context names the rule; change the policy if the action is wanted.";
    Unauthenticated = "UNAUTHENTICATED", Policy, 401, PolicyDenied,
        "The request has no key of this backplane, or one that it does not know.",
        "Send a key from `abp keys create` where the vendor's client sends its own; vendors' keys are not taken.";
    OriginDenied = "ORIGIN_DENIED", Policy, 403, PolicyDenied,
        "The request is for a host, or from a page, that is not allowed.",
        "Use the address the server printed, or add the name to allowed_hosts or allowed_origins.";
    ModelNotAllowed = "MODEL_NOT_ALLOWED", Policy, 403, PolicyDenied,
        "The key may not use the model.",
        "Use a model the key allows (`abp models`), or give the key another list of models.";
    ApprovalRequired = "APPROVAL_REQUIRED", Policy, 403, PolicyDenied,
        "A person has to agree before this is done.",
        "Look at the paths named in the message, then repeat the command with the flag that agrees to them.";
    PolicyInvalid = "POLICY_INVALID", Policy, 400, Usage,
        "The policy cannot be compiled.",
        "Correct the pattern named in the context.";
    WorkspaceInitFailed = "WORKSPACE_INIT_FAILED", Workspace, 500, RunFailed,
        "The workspace could not be prepared.",
        "Check that the root exists, is a directory and can be read, and that the state directory can be written.";
    WorkspaceStagingFailed = "WORKSPACE_STAGING_FAILED", Workspace, 500, RunFailed,
        "Copying the workspace failed; nothing of it is kept.",
        "Check disk space and permissions, or exclude what is too large.";
    WorkspaceConflict = "WORKSPACE_CONFLICT", Workspace, 409, WorkspaceConflict,
        "The source and the result changed the same places, so the result was not applied; nothing was changed.",
        "The message lists every conflict; change the source, run again, or apply the diff by hand.";
    WorkspaceBusy = "WORKSPACE_BUSY", Workspace, 409, RunFailed,
        "Another run or application works in the same directory or stage.",
        "Wait until it is over and repeat the command; `abp runs list` shows what is under way.";
    WorkspaceStageChanged = "WORKSPACE_STAGE_CHANGED", Workspace, 409, VerificationFailed,
        "The result of the run is no longer what was verified at its end, so nothing of it is used.",
        "Throw the result away with `abp discard RUN` and run the order again; find out who wrote to the stage named in the message.";
    ChangeSetDecided = "CHANGE_SET_DECIDED", Workspace, 409, Usage,
        "The changes of the run were decided already, or are being decided.",
        "The message says how and by whom; run the order again to get new changes.";
    BlobHashMismatch = "BLOB_HASH_MISMATCH", Workspace, 422, VerificationFailed,
        "The uploaded bytes do not have the hash of their address; nothing of them is kept.",
        "Hash the bytes that are sent with SHA-256 and send them again.";
    BlobsMissing = "BLOBS_MISSING", Workspace, 409, Usage,
        "Files of the workspace have not been uploaded.",
        "Upload the hashes named in the context, then send the request again.";
    IrLoweringFailed = "IR_LOWERING_FAILED", Ir, 422, RunFailed,
        "A conversation cannot be written in the target format.",
        "The context names the part that has no counterpart.";
    IrInvalid = "IR_INVALID", Ir, 400, Usage,
        "A conversation is not well formed.",
        "The context names the message that breaks the rules.";
    ReceiptHashMismatch = "RECEIPT_HASH_MISMATCH", Receipt, 422, VerificationFailed,
        "A receipt was changed after it was made.",
        "Do not trust the receipt; fetch the original from the log.";
    ReceiptChainBroken = "RECEIPT_CHAIN_BROKEN", Receipt, 422, VerificationFailed,
        "The log of receipts is not the one that was signed.",
        "The context says which promise failed: edit, truncation, rewrite, reorder or a missing end.";
    ReceiptStoreFailed = "RECEIPT_STORE_FAILED", Receipt, 500, RunFailed,
        "A receipt could not be stored.",
        "Check disk space and permissions of the receipts directory.";
    DialectUnknown = "DIALECT_UNKNOWN", Dialect, 400, Usage,
        "The request's vendor format was not recognised.",
        "Use the vendor's own route, or name the dialect.";
    DialectMappingFailed = "DIALECT_MAPPING_FAILED", Dialect, 422, RunFailed,
        "A request cannot be translated to the target's format.",
        "The context names the JSON pointer that stands in the way.";
    MappingUnsupportedCapability = "MAPPING_UNSUPPORTED_CAPABILITY", Mapping, 422, CapabilityUnsupported,
        "The target format has no form for a feature of the request.",
        "Use a target that has it, or remove the feature from the request.";
    MappingDialectMismatch = "MAPPING_DIALECT_MISMATCH", Mapping, 400, Usage,
        "The document is not of the dialect it was said to be.",
        "Name the right dialect, or leave it out to have it detected.";
    MappingLossyConversion = "MAPPING_LOSSY_CONVERSION", Mapping, 422, CapabilityUnsupported,
        "The translation would lose something and the caller asked for none to be lost.",
        "The context lists the losses; allow them, or choose another target.";
    MappingUnmappableTool = "MAPPING_UNMAPPABLE_TOOL", Mapping, 422, CapabilityUnsupported,
        "A tool has no counterpart at the target.",
        "Replace the tool by a function tool, or use a target that has it.";
    ExecutionToolFailed = "EXECUTION_TOOL_FAILED", Execution, 500, RunFailed,
        "A tool failed.",
        "The event before the end names the tool and what it said.";
    ExecutionWorkspaceError = "EXECUTION_WORKSPACE_ERROR", Execution, 500, RunFailed,
        "The workspace could not be used during the run.",
        "Check disk space and permissions.";
    ExecutionPermissionDenied = "EXECUTION_PERMISSION_DENIED", Execution, 403, PolicyDenied,
        "The operating system refused access.",
        "Check the permissions of the path named in the context.";
    RunCancelled = "RUN_CANCELLED", Execution, 409, Cancelled,
        "The run was cancelled.",
        "The receipt says by whom and why; run again when wanted.";
    RunNotEnded = "RUN_NOT_ENDED", Execution, 409, Usage,
        "The run has not ended yet.",
        "Wait for its end or cancel it, then send the request again.";
    NothingToDecide = "NOTHING_TO_DECIDE", Workspace, 409, Usage,
        "The run has no changes that could be decided about: they were decided before, or it has not ended.",
        "`abp runs show RUN` says what became of them.";
    RunIncomplete = "RUN_INCOMPLETE", Execution, 500, RunFailed,
        "The backend ended in order and says that its work is not complete.",
        "Look at what was done with `abp diff`, and run again for the rest.";
    RunInterrupted = "RUN_INTERRUPTED", Execution, 500, RunFailed,
        "The host ended before the run did; its receipt was made when the host started again.",
        "The receipt holds every event that was recorded; run again when wanted.";
    IdempotencyKeyReused = "IDEMPOTENCY_KEY_REUSED", Execution, 409, Usage,
        "The idempotency key belongs to a run that was asked for with another request.",
        "Send the first request again to get its run, or use another key.";
    ContractVersionMismatch = "CONTRACT_VERSION_MISMATCH", Contract, 400, Usage,
        "The document is of another contract version.",
        "Convert the document, or use the release that wrote it.";
    ContractSchemaViolation = "CONTRACT_SCHEMA_VIOLATION", Contract, 400, Usage,
        "The document does not follow its schema.",
        "The context holds the JSON pointer; `abp schema` prints the schema.";
    ContractInvalidReceipt = "CONTRACT_INVALID_RECEIPT", Contract, 422, VerificationFailed,
        "The document is not a valid receipt.",
        "Every problem found is listed.";
    BudgetExceeded = "BUDGET_EXCEEDED", Limit, 402, BudgetExceeded,
        "The run reached its budget and was stopped, or the key's budget has no room for the request.",
        "Raise --max-budget-usd of the run, or use a key with more left (`abp keys list`); the receipt holds what was done until then.";
    TurnLimitExceeded = "TURN_LIMIT_EXCEEDED", Limit, 402, BudgetExceeded,
        "The run reached its number of turns and was stopped.",
        "Raise --max-turns; the receipt holds what was done until then.";
    RateLimitExceeded = "RATE_LIMIT_EXCEEDED", Limit, 429, BudgetExceeded,
        "The caller sends more requests than its key allows.",
        "Wait for the time given in the error's context.";
    RequestTooLarge = "REQUEST_TOO_LARGE", Limit, 413, BudgetExceeded,
        "The request is larger than the server takes.",
        "Send less, or raise max_body_mb.";
    RequestTimeout = "REQUEST_TIMEOUT", Limit, 408, BudgetExceeded,
        "The request did not arrive in full in time.",
        "Send it again; raise body_timeout_secs if the connection is slow.";
    ApprovalAnswered = "APPROVAL_ANSWERED", Execution, 409, Usage,
        "The approval has an answer already, or its time is over.",
        "The first answer counts; `abp approvals --answered` shows it.";
    RunLimitReached = "RUN_LIMIT_REACHED", Limit, 429, BudgetExceeded,
        "As many runs wait or go on as may, of this principal or in all; the message names what is full.",
        "Wait until some have ended, cancel some with `abp cancel`, or raise the limit.";
    Overloaded = "OVERLOADED", Limit, 503, BackendUnavailable,
        "The server has as much to do as it takes at once.",
        "Wait for the time given in Retry-After and send the request again.";
    CircuitBreakerOpen = "CIRCUIT_BREAKER_OPEN", Limit, 503, BackendUnavailable,
        "The backend failed too often and is left alone for a while.",
        "Wait for the time given in the context, or use another backend.";
    StreamClosed = "STREAM_CLOSED", Stream, 499, Cancelled,
        "The stream was closed before its end.",
        "Connect again; the run's receipt is found by its id.";
    ConfigInvalid = "CONFIG_INVALID", Config, 400, Usage,
        "The configuration or the command line is not valid.",
        "The message names the place; see the command's --help.";
    StateDirUnsafe = "STATE_DIR_UNSAFE", Config, 500, Usage,
        "The state directory belongs to another user, or others can read or change it.",
        "Run `chmod 700` on it if it is yours, or name another one with --state-dir or ABP_HOME.";
    SandboxUnavailable = "SANDBOX_UNAVAILABLE", Config, 503, BackendUnavailable,
        "The kernel does not give the sandbox that the configuration or the order asks for.",
        "`abp doctor` says what is missing; `engine = \"none\"` under [sandbox] runs without, and every receipt says so.";
    ValidationFailed = "VALIDATION_FAILED", Config, 400, Usage,
        "The input is not valid.",
        "Correct what the message names; `abp validate FILE` checks a document without using it.";
    SidecarSpawnFailed = "SIDECAR_SPAWN_FAILED", Backend, 503, BackendUnavailable,
        "The sidecar's process could not be started.",
        "Check the configured command and that it can be executed.";
    McpServerNotFound = "MCP_SERVER_NOT_FOUND", Config, 404, Usage,
        "No MCP server of that name is configured, or none at all.",
        "Name servers under [mcp.servers]; `abp config show` prints those there are.";
    NotFound = "NOT_FOUND", Config, 404, Usage,
        "There is nothing under that address or id.",
        "Check the address; GET /protocol lists what there is.";
    MethodNotAllowed = "METHOD_NOT_ALLOWED", Config, 405, Usage,
        "The address does not take this method.",
        "GET /protocol lists the methods of each address.";
    UpgradeRequired = "UPGRADE_REQUIRED", Config, 426, Usage,
        "The address is not served over a WebSocket.",
        "Send a POST request; with \"stream\": true the answer comes as server-sent events.";
    UnsupportedMediaType = "UNSUPPORTED_MEDIA_TYPE", Config, 415, Usage,
        "The body is not sent as JSON, or is compressed.",
        "Send content-type: application/json and no content-encoding.";
    Internal = "INTERNAL", Internal, 500, RunFailed,
        "The backplane itself failed.",
        "This is a defect: please report it with the receipt and the output of --debug.";
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ErrorCode {
    type Err = UnknownErrorCode;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .iter()
            .find(|code| code.as_str().eq_ignore_ascii_case(name))
            .copied()
            .ok_or_else(|| UnknownErrorCode(name.to_owned()))
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ErrorCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Cow::<'de, str>::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for ErrorCode {
    fn schema_name() -> Cow<'static, str> {
        "ErrorCode".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<_> = Self::ALL.iter().map(|code| code.as_str()).collect();
        json_schema!({ "type": "string", "enum": names })
    }
}
