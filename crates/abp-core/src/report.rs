//! What was decided and done on the way from work order to backend, as receipts carry it.
//!
//! These types are filled by the crates whose job they are (`abp-capability`, `abp-emulation`,
//! `abp-projection`, `abp-policy`) and re-exported there; they live here because they are part of
//! the receipt and so of the contract.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Capability, CapabilityRequirements};

/// How a manifest answers a set of requirements.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NegotiationResult {
    /// Natively supported.
    pub native: Vec<Capability>,
    /// Supported by emulation or with restrictions.
    pub emulatable: Vec<Capability>,
    /// Not provided by the backend.
    pub unsupported: Vec<Capability>,
}

impl NegotiationResult {
    /// Whether nothing is unsupported.
    #[must_use]
    pub fn is_compatible(&self) -> bool {
        self.unsupported.is_empty()
    }

    /// How many capabilities were classified.
    #[must_use]
    pub fn total(&self) -> usize {
        self.native.len() + self.emulatable.len() + self.unsupported.len()
    }
}

/// How a missing capability is approximated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EmulationStrategy {
    /// Text is added to the system prompt.
    SystemPromptInjection {
        /// The text.
        prompt: String,
    },
    /// The answer is checked or changed after it was given.
    PostProcessing {
        /// How.
        detail: String,
    },
    /// The capability cannot be emulated.
    Disabled {
        /// Why.
        reason: String,
    },
}

/// One emulation that was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EmulationEntry {
    /// The capability emulated.
    pub capability: Capability,
    /// How.
    pub strategy: EmulationStrategy,
}

/// Every emulation that was applied, and what could not be emulated.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EmulationReport {
    /// Applied.
    pub applied: Vec<EmulationEntry>,
    /// Capabilities asked for that could not be emulated.
    pub warnings: Vec<String>,
}

impl EmulationReport {
    /// Whether nothing was applied and nothing failed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.applied.is_empty() && self.warnings.is_empty()
    }

    /// Whether a requested capability could not be emulated.
    #[must_use]
    pub fn has_unemulatable(&self) -> bool {
        !self.warnings.is_empty()
    }
}

/// Something of the source that does not reach the target as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Loss {
    /// Where, as a JSON pointer into the source.
    pub pointer: String,
    /// What happened to it.
    pub kind: LossKind,
    /// Why.
    pub reason: String,
}

/// What happened to a part of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LossKind {
    /// Kept under another name or form.
    Renamed,
    /// Approximated by other means.
    Emulated,
    /// Kept in part.
    Degraded,
    /// Not carried.
    Dropped,
}

/// Something that was changed to fit the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Adaptation {
    /// The event or block concerned.
    pub event: String,
    /// The form it had.
    pub from: String,
    /// The form it was given.
    pub to: String,
    /// Why.
    pub reason: String,
    /// How many times; absent for once.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub count: u64,
    /// The SHA-256 of what was replaced, where that was an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_sha256: Option<String>,
}

impl Adaptation {
    /// Something that was changed once.
    #[must_use]
    pub fn new(
        event: impl Into<String>,
        from: impl Into<String>,
        to: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self {
            event: event.into(),
            from: from.into(),
            to: to.into(),
            reason: reason.into(),
            count: once(),
            original_sha256: None,
        }
    }

    /// Whether the other is the same change, however often either happened.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        self.event == other.event
            && self.from == other.from
            && self.to == other.to
            && self.reason == other.reason
            && self.original_sha256 == other.original_sha256
    }
}

fn once() -> u64 {
    1
}

fn is_once(count: &u64) -> bool {
    *count == once()
}

/// Who makes sure that a policy rule holds. Ordered from weakest to strongest.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum EnforcementLevel {
    /// Nothing evaluates the rule.
    None,
    /// Breaches are only observed.
    Advisory,
    /// The host refuses the action before it happens.
    Host,
    /// The kernel refuses the action.
    Kernel,
}

/// How one policy rule was held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EnforcedRule {
    /// The list of the policy profile, e.g. `deny_write`.
    pub list: String,
    /// The pattern.
    pub pattern: String,
    /// Who made sure of it.
    pub enforced_by: EnforcementLevel,
    /// The mechanism that held it, e.g. `not staged`, `verification` or `tool proxy`; empty where
    /// nothing did.
    #[serde(default)]
    pub by: String,
    /// How many actions it refused, or breaches it found, in this run.
    pub denied: u64,
}

/// Whether an agent's processes can reach the host's own state (keys, store, other stages).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StateAccess {
    /// The processes cannot reach the state: it is not mounted where they run, or Landlock denies it.
    Hidden,
    /// Nothing keeps the processes from the state but file permissions.
    Reachable,
}

/// How the policy was held, rule by rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EnforcementReport {
    /// The rules, in the order of the profile.
    pub rules: Vec<EnforcedRule>,
    /// What kept the backend's processes from outliving the run, e.g. `pid_namespace`; absent where it
    /// had none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contained_by: Option<String>,
    /// Whether the backend's processes could reach the host's state; absent where it had none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<StateAccess>,
    /// The sandbox of the backend's processes; absent where it had none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxReport>,
}

/// The sandbox that confined the processes of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxReport {
    /// `namespaces`, `landlock`, or `none` where the operator switched the sandbox off.
    pub engine: String,
    /// The layers that were in place before the first instruction of the program, e.g. `mount namespace`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<String>,
    /// The way to the network: `closed`, `proxied` or `open`.
    pub network: String,
}

impl SandboxReport {
    /// No sandbox, because the operator switched it off.
    #[must_use]
    pub fn none() -> Self {
        Self {
            engine: "none".to_owned(),
            layers: Vec::new(),
            network: "open".to_owned(),
        }
    }
}

/// How well a backend fits, each part between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FidelityScore {
    /// The share of requirements that are met.
    pub capability_coverage: f64,
    /// How much of what is met is met without approximation. Receipts of older versions lack it and
    /// give this figure as `mapping_fidelity`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability_fidelity: Option<f64>,
    /// How much of the vendor's request survives its translation into the backend's dialect, by the
    /// table of mapping rules; 1 where nothing is translated.
    pub mapping_fidelity: f64,
    /// The operator's preference.
    pub priority: f64,
    /// The weighted sum.
    pub total: f64,
}

/// One backend that was considered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CandidateReport {
    /// The backend.
    pub backend: String,
    /// Whether it can do the work.
    pub eligible: bool,
    /// Its score.
    pub score: FidelityScore,
    /// Why it was chosen or not, and then how it would provide each requirement. Each is a sentence.
    pub reasons: Vec<String>,
    /// Whether it only demonstrates the way of an order and does no work of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_demonstration: bool,
}

/// Which backend was chosen, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SelectionReport {
    /// The chosen backend.
    pub selected: String,
    /// Why it was chosen, as a sentence; empty in receipts of older versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Every backend considered, best first.
    pub candidates: Vec<CandidateReport>,
    /// The backends to turn to when the chosen one cannot be opened.
    pub fallback_chain: Vec<String>,
}

/// The plan a run followed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanReport {
    /// What was required, by the order or by the conversation itself.
    pub requirements: CapabilityRequirements,
    /// How the chosen backend's manifest answers that.
    pub negotiation: NegotiationResult,
    /// Which backend was chosen, and why.
    pub selection: SelectionReport,
    /// What ABP emulated.
    pub emulation: EmulationReport,
    /// What was lost in translation.
    #[serde(default)]
    pub losses: Vec<Loss>,
    /// Wishes (`any`) that nobody provides, and other things the reader should know.
    #[serde(default)]
    pub notes: Vec<String>,
}
