//! The fidelity ledger: what became of every part of a source.
//!
//! Every leaf of the source gets exactly one fate, alone or together with the subtree it is in.
//! Dialects explain, they do not decide: a value that was read and not written is missing, and a
//! value that was written as it is has to be equal to what was read. Where a dialect gave no reason
//! the entry says [`UNEXPLAINED`], which tests treat as a defect.

mod account;
mod known;
mod restored;
mod stream;

use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher as _, Hash, Hasher};
use std::sync::{Arc, LazyLock};

use abp_dialect::{Dialect, DocumentKind, Mark, Note, Reader};
use abp_error::{AbpError, ErrorCode};
use foldhash::fast::RandomState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use known::KnownLedgers;
pub(crate) use stream::StreamLedger;

use known::Written;

/// The label of a loss that no dialect gave a reason for.
pub const UNEXPLAINED: &str = "unexplained";

/// The label of values that belong to a form and say nothing of their own.
pub const STRUCTURE: &str = "structure";

/// Labels of synthesised values that change what the target is asked to do.
const CONSEQUENTIAL: [&str; 6] = [
    "broken_off",
    "max_tokens_default",
    "missing_result",
    "placeholder_message",
    "system_marker",
    "tool_stub",
];

/// Labels of losses that are bookkeeping: ids, times, fingerprints and accounts of the vendor. Nothing that
/// was said, asked or answered is among them.
pub const BOOKKEEPING: [&str; 32] = [
    "accepted_prediction_tokens",
    "audio_tokens",
    "billing",
    "cache_creation",
    "cache_creation_tokens",
    "candidatesTokensDetails",
    "completed_at",
    "completion_time",
    "copilot_usage",
    "cost",
    "cost_details",
    "createTime",
    "created",
    "id",
    "image_tokens",
    "is_byok",
    "item_id",
    "native_finish_reason",
    "promptTokensDetails",
    "prompt_cache_miss_tokens",
    "prompt_time",
    "provider",
    "queue_time",
    "reasoning_item_id",
    "rejected_prediction_tokens",
    "request_id",
    "response_id",
    "system_fingerprint",
    "total_time",
    "trafficType",
    "video_tokens",
    "x_groq",
];

/// Labels of an answer's members that repeat its request (OpenAI Responses); in a request they are settings.
pub const REPEATED_SETTINGS: [&str; 24] = [
    "background",
    "frequency_penalty",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "parallel_tool_calls",
    "presence_penalty",
    "previous_response_id",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "serviceTier",
    "service_tier",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
];

/// The label of a `null` that was not carried.
const EXPLICIT_NULL: &str = "explicit_null";

/// The label of an empty list or object that was not carried.
const EMPTY_VALUE: &str = "empty_value";

/// What became of a part of the source, or where a part of the target comes from.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It is in the target, at the same place.
    Kept,
    /// It is in the target, at another place or in another form that can be undone.
    Renamed,
    /// It was put into the target that the source does not have.
    Synthesised,
    /// It is reached by other means.
    Emulated,
    /// It is in the target in part, or with another meaning.
    Degraded,
    /// It is not in the target.
    Dropped,
}

impl Action {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Renamed => "renamed",
            Self::Synthesised => "synthesised",
            Self::Emulated => "emulated",
            Self::Degraded => "degraded",
            Self::Dropped => "dropped",
        }
    }
}

/// How true a translation is as a whole.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FidelityLevel {
    /// Nothing is missing and nothing changed its meaning.
    #[default]
    Lossless,
    /// Something is, and the ledger names it.
    LossyLabeled,
    /// Something is without which the request is another one.
    Unsupported,
}

impl fmt::Display for FidelityLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lossless => "lossless",
            Self::LossyLabeled => "lossy_labeled",
            Self::Unsupported => "unsupported",
        })
    }
}

/// One line of the ledger. A pointer to a container speaks for everything below it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct LedgerEntry {
    /// What happened.
    pub action: Action,
    /// Where in the source, as a JSON pointer.
    pub source: Option<String>,
    /// Where in the target, as a JSON pointer.
    pub target: Option<String>,
    /// A word for it.
    pub label: Option<Cow<'static, str>>,
    /// Why.
    pub reason: Option<Cow<'static, str>>,
    /// Whether the request is another one because of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsupported: bool,
    /// How often it happened, in a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

impl LedgerEntry {
    /// Whether meaning was lost or changed.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        match self.action {
            Action::Kept | Action::Renamed => self.unsupported,
            Action::Emulated | Action::Degraded => true,
            // Where nothing was said, nothing is lost.
            Action::Dropped => !self.is_labelled(&[EXPLICIT_NULL, EMPTY_VALUE, STRUCTURE]),
            Action::Synthesised => self.is_labelled(&CONSEQUENTIAL),
        }
    }

    /// Whether a loss is of bookkeeping only, in a document of this kind.
    #[must_use]
    pub fn is_bookkeeping(&self, kind: DocumentKind) -> bool {
        self.is_loss()
            && !self.unsupported
            && (self.is_labelled(&BOOKKEEPING)
                || (kind != DocumentKind::Request && self.is_labelled(&REPEATED_SETTINGS)))
    }

    /// Whether the entry only says that forms differ.
    #[must_use]
    pub fn is_structure(&self) -> bool {
        self.is_labelled(&[STRUCTURE])
    }

    fn is_labelled(&self, labels: &[&str]) -> bool {
        self.label
            .as_deref()
            .is_some_and(|label| labels.contains(&label))
    }

    fn fidelity(&self) -> FidelityLevel {
        match (self.unsupported, self.is_loss()) {
            (true, _) => FidelityLevel::Unsupported,
            (false, true) => FidelityLevel::LossyLabeled,
            (false, false) => FidelityLevel::Lossless,
        }
    }
}

/// How much was lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LossCount {
    /// Losses of something that was said, asked or answered.
    pub meaning: usize,
    /// Losses of ids, times, fingerprints and the like, and of what an answer repeats of its request.
    pub bookkeeping: usize,
}

impl LossCount {
    /// Both together.
    #[must_use]
    pub const fn total(self) -> usize {
        self.meaning.saturating_add(self.bookkeeping)
    }
}

impl std::ops::AddAssign for LossCount {
    fn add_assign(&mut self, other: Self) {
        self.meaning = self.meaning.saturating_add(other.meaning);
        self.bookkeeping = self.bookkeeping.saturating_add(other.bookkeeping);
    }
}

/// What became of every part of a source. Cheap to copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    account: Arc<Account>,
}

/// Entries, and what they come to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Account {
    entries: Vec<LedgerEntry>,
    fidelity: FidelityLevel,
    losses: usize,
    /// Losses of bookkeeping, were it a request and were it an answer.
    bookkeeping: [usize; 2],
    /// Of the entries, so that they need not be gone through again.
    hash: u64,
}

/// Its seed is random, so that nobody can make many ledgers with one hash.
static HASHING: LazyLock<RandomState> = LazyLock::new(RandomState::default);

impl Hash for Ledger {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.account.hash);
    }
}

impl Ledger {
    /// The ledger of one document: what was read, what was written, and what was remarked. Documents of
    /// a form that is known need no other.
    pub(crate) fn of(
        reader: &Reader<'_>,
        target: Dialect,
        output: &str,
        marks: &[Mark],
        notes: &[Note],
        known: Option<&KnownLedgers>,
    ) -> Self {
        let (output, remarks) = (account::parsed(output), reader.notes());
        let written = Written {
            reader,
            target,
            output: output.as_ref(),
            marks,
            notes: [&remarks, notes],
        };
        match known {
            Some(known) => known.ledger(written),
            None => Self::from_entries(account::account(written)),
        }
    }

    /// A ledger of entries made elsewhere.
    #[must_use]
    pub fn from_entries(entries: Vec<LedgerEntry>) -> Self {
        let fidelity = entries.iter().map(LedgerEntry::fidelity).max();
        let account = Account {
            fidelity: fidelity.unwrap_or_default(),
            losses: entries.iter().filter(|entry| entry.is_loss()).count(),
            bookkeeping: [DocumentKind::Request, DocumentKind::Response].map(|kind| {
                let bookkeeping = entries.iter().filter(|entry| entry.is_bookkeeping(kind));
                bookkeeping.count()
            }),
            hash: HASHING.hash_one(&entries),
            entries,
        };
        Self {
            account: Arc::new(account),
        }
    }

    /// The entries: the source in document order, then what was synthesised.
    #[must_use]
    pub fn entries(&self) -> &[LedgerEntry] {
        &self.account.entries
    }

    /// Those entries that tell of a loss.
    pub fn losses(&self) -> impl Iterator<Item = &LedgerEntry> {
        self.entries().iter().filter(|entry| entry.is_loss())
    }

    /// How many entries tell of a loss.
    #[must_use]
    pub fn loss_count(&self) -> usize {
        self.account.losses
    }

    /// How much was lost of a document of this kind, by whether it matters.
    #[must_use]
    pub fn count_losses(&self, kind: DocumentKind) -> LossCount {
        let [of_request, of_answer] = self.account.bookkeeping;
        let bookkeeping = match kind {
            DocumentKind::Request => of_request,
            DocumentKind::Response | DocumentKind::StreamEvent | DocumentKind::Error => of_answer,
        };
        LossCount {
            meaning: self.account.losses.saturating_sub(bookkeeping),
            bookkeeping,
        }
    }

    /// Refuses a translation that loses something of its source. What a target needs besides, such as a
    /// limit that the source does not name, is no loss of the source.
    ///
    /// # Errors
    /// Fails with the pointers of what would be lost.
    pub fn require_lossless(&self) -> Result<(), AbpError> {
        let of_source = |entry: &&LedgerEntry| entry.source.is_some() || entry.unsupported;
        let lost: Vec<_> = self.losses().filter(of_source).collect();
        let fidelity = lost.iter().map(|entry| entry.fidelity()).max();
        let code = match fidelity.unwrap_or_default() {
            FidelityLevel::Lossless => return Ok(()),
            FidelityLevel::LossyLabeled => ErrorCode::MappingLossyConversion,
            FidelityLevel::Unsupported => ErrorCode::MappingUnsupportedCapability,
        };
        let losses: Vec<_> = lost
            .into_iter()
            .map(|entry| {
                let place = entry.source.as_deref().or(entry.target.as_deref());
                let label = entry.label.as_deref().unwrap_or(entry.action.as_str());
                format!("{} ({label})", place.unwrap_or_default())
            })
            .collect();
        let message = format!("the translation would lose {}", losses.join(", "));
        Err(AbpError::new(code, message).with_context("losses", losses))
    }

    /// How true the translation is as a whole.
    #[must_use]
    pub fn fidelity(&self) -> FidelityLevel {
        self.account.fidelity
    }
}
