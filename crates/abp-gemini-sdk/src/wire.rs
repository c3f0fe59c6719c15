//! The names and words of the wire; and its documents as types, for those who write requests and read
//! answers in Rust.
//!
//! Types are as open as the vendor is: what has no member of its own is kept in `extra` or in a
//! variant `Other`, and is written back as it was read.

mod answer;
mod request;

use abp_core::ir::{IrErrorKind, IrFinishReason, IrVendorField, Leaf, RawJson};
use abp_dialect::{DialectError, How, Item};
use abp_json::{Kind, View};

pub use answer::{
    Candidate, CountTokensResponse, ErrorResponse, ErrorStatus, FinishReason,
    GenerateContentResponse, ListModelsResponse, Model, PromptFeedback, UsageMetadata,
};
pub use request::{
    Blob, Content, CountTokensRequest, FileData, FunctionCall, FunctionCallingConfig,
    FunctionCallingMode, FunctionDeclaration, FunctionResponse, GenerateContentRequest,
    GenerationConfig, Part, ThinkingConfig, Tool, ToolConfig,
};

/// Members that have no type of their own, by name. They are sent, and kept, as they are.
pub type Extra = serde_json::Map<String, serde_json::Value>;

/// Members that no other dialect has, by the object they belong to.
pub(crate) mod vendor {
    pub(crate) const REQUEST: &[&str] = &[
        "cachedContent",
        "labels",
        "safetySettings",
        "serviceTier",
        "store",
    ];
    pub(crate) const TOOL_CONFIG: &[&str] =
        &["includeServerSideToolInvocations", "retrievalConfig"];
    pub(crate) const FUNCTION_CALLING: &[&str] = &["streamFunctionCallArguments"];
    pub(crate) const GENERATION: &[&str] = &[
        "audioTimestamp",
        "enableAffectiveDialog",
        "enableEnhancedCivicAnswers",
        "imageConfig",
        "mediaResolution",
        "modelSelectionConfig",
        "responseFormat",
        "responseModalities",
        "routingConfig",
        "speechConfig",
        "translationConfig",
    ];
    pub(crate) const PART: &[&str] = &["mediaResolution", "partMetadata", "videoMetadata"];
    pub(crate) const FUNCTION_CALL: &[&str] = &["partialArgs", "willContinue"];
    pub(crate) const FUNCTION_RESPONSE: &[&str] = &["scheduling", "willContinue"];
    pub(crate) const DECLARATION: &[&str] = &["behavior", "response", "responseJsonSchema"];
    pub(crate) const RESPONSE: &[&str] = &["createTime", "modelStatus"];
    pub(crate) const PROMPT_FEEDBACK: &[&str] = &["blockReasonMessage", "safetyRatings"];
    pub(crate) const CANDIDATE: &[&str] = &[
        "avgLogprobs",
        "groundingAttributions",
        "logprobsResult",
        "safetyRatings",
        "tokenCount",
        "urlContextMetadata",
    ];
    pub(crate) const GROUNDING: &[&str] = &[
        "googleMapsWidgetContextToken",
        "imageSearchQueries",
        "retrievalMetadata",
        "retrievalQueries",
        "searchEntryPoint",
        "sourceFlaggingUris",
        "webSearchQueries",
    ];
    pub(crate) const USAGE: &[&str] = &[
        "cacheTokensDetails",
        "candidatesTokensDetails",
        "promptTokensDetails",
        "serviceTier",
        "toolUsePromptTokensDetails",
        "trafficType",
    ];
    pub(crate) const ERROR: &[&str] = &["details", "errors"];
}

/// The name of the proof that the model's own reasoning carries.
pub(crate) const SIGNATURE: &str = "thoughtSignature";

/// Sent in place of a proof that nobody has; the vendor accepts it and skips the check.
pub(crate) const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// The member under which arguments that are no JSON object are kept.
pub(crate) const INVALID_ARGUMENTS: &str = "_invalid_arguments";

/// Enumerations whose values some clients send as their numbers in the vendor's Protobuf definition. Numbers
/// that the vendor's two APIs do not agree on are left out.
pub(crate) mod numbered {
    pub(crate) const FINISH_REASON: &[&str] = &[
        "FINISH_REASON_UNSPECIFIED",
        "STOP",
        "MAX_TOKENS",
        "SAFETY",
        "RECITATION",
        "OTHER",
    ];
    pub(crate) const BLOCK_REASON: &[&str] = &["BLOCK_REASON_UNSPECIFIED", "SAFETY", "OTHER"];
    pub(crate) const CALLING_MODE: &[&str] = &["MODE_UNSPECIFIED", "AUTO", "ANY", "NONE"];
    pub(crate) const TYPE: &[&str] = &[
        "TYPE_UNSPECIFIED",
        "STRING",
        "NUMBER",
        "INTEGER",
        "BOOLEAN",
        "ARRAY",
        "OBJECT",
        "NULL",
    ];
}

/// The word that a number stands for.
pub(crate) fn numbered_word(
    value: View<'_>,
    words: &'static [&'static str],
) -> Option<&'static str> {
    let number = usize::try_from(value.as_u64()?).ok()?;
    words.get(number).copied()
}

/// An object of the wire.
///
/// Members are found under their name in lower camel case and in snake case; `null` is absent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'t>(Item<'t>);

impl<'t> Fields<'t> {
    pub(crate) fn of(item: Item<'t>) -> Result<Self, DialectError> {
        item.object().map(Self)
    }

    pub(crate) fn item(self) -> Item<'t> {
        self.0
    }

    pub(crate) fn get(self, name: &str) -> Option<Item<'t>> {
        let snake = || {
            let mut entries = self.0.entries();
            entries.find_map(|(key, value)| is_snake_case(&key, name).then_some(value))
        };
        let found = self.0.get(name).or_else(snake)?;
        if found.view().is_null() {
            found.structure();
            return None;
        }
        Some(found)
    }

    pub(crate) fn has(self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(crate) fn text(self, name: &str) -> Result<Option<Leaf<String>>, DialectError> {
        self.optional(name, Item::text)
    }

    /// A word of an enumeration, which may be written as its number.
    pub(crate) fn word(
        self,
        name: &str,
        words: &'static [&'static str],
    ) -> Result<Option<Leaf<String>>, DialectError> {
        self.optional(name, |item| {
            if item.kind() != Kind::Number {
                return item.text();
            }
            item.note(How::Converted("enumeration_number"));
            let number = item.raw();
            let word = numbered_word(item.view(), words).unwrap_or(number.text());
            Ok(number.with(word.to_owned()))
        })
    }

    pub(crate) fn flag(self, name: &str) -> Result<Option<Leaf<bool>>, DialectError> {
        self.optional(name, Item::flag)
    }

    pub(crate) fn number(self, name: &str) -> Result<Option<Leaf<RawJson>>, DialectError> {
        self.optional(name, Item::number)
    }

    pub(crate) fn count(self, name: &str) -> Result<Option<Leaf<u64>>, DialectError> {
        self.optional(name, Item::count)
    }

    fn optional<T>(
        self,
        name: &str,
        take: impl FnOnce(Item<'t>) -> Result<T, DialectError>,
    ) -> Result<Option<T>, DialectError> {
        match self.get(name) {
            Some(item) => item.or_left_out(take),
            None => Ok(None),
        }
    }

    pub(crate) fn fields(self, name: &str) -> Result<Option<Self>, DialectError> {
        self.optional(name, Self::of)
    }

    /// The values of a repeated member. Where a list is due the vendor takes a single value, too.
    pub(crate) fn repeated(self, name: &str) -> impl Iterator<Item = Item<'t>> {
        let found = self.get(name);
        let single = found.filter(|item| item.kind() != Kind::Array);
        found.into_iter().flat_map(Item::items).chain(single)
    }

    /// Takes members that only this dialect knows, under their names in lower camel case.
    pub(crate) fn vendor(self, names: &[&str]) -> Vec<IrVendorField> {
        let mut fields = Vec::new();
        for (key, value) in self.0.entries() {
            let known = names.iter().find(|name| is_named(&key, name));
            match known {
                Some(_) if value.view().is_null() => value.structure(),
                Some(name) => fields.push(value.vendor(name)),
                None => {}
            }
        }
        fields
    }
}

/// Whether a key of the wire means this member.
pub(crate) fn is_named(key: &str, name: &str) -> bool {
    key == name || is_snake_case(key, name)
}

/// Whether a key is the snake-case spelling of a name in lower camel case.
fn is_snake_case(key: &str, name: &str) -> bool {
    let mut rest = key.bytes();
    let matches = name.bytes().all(|byte| {
        if byte.is_ascii_uppercase() {
            rest.next() == Some(b'_') && rest.next() == Some(byte.to_ascii_lowercase())
        } else {
            rest.next() == Some(byte)
        }
    });
    matches && rest.next().is_none()
}

/// What a word for the end of an answer means. A call of a tool ends with `STOP`, too.
pub(crate) fn finish_reason(word: &str) -> IrFinishReason {
    match word {
        "STOP" => IrFinishReason::Stop,
        "MAX_TOKENS" => IrFinishReason::Length,
        "SAFETY"
        | "RECITATION"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION"
        | "MODEL_ARMOR" => IrFinishReason::ContentFilter,
        "MALFORMED_FUNCTION_CALL"
        | "UNEXPECTED_TOOL_CALL"
        | "TOO_MANY_TOOL_CALLS"
        | "MISSING_THOUGHT_SIGNATURE"
        | "MALFORMED_RESPONSE"
        | "IMAGE_OTHER"
        | "NO_IMAGE" => IrFinishReason::Error,
        _ => IrFinishReason::Other,
    }
}

/// The word for the end of an answer, and whether it says all that the reason says.
pub(crate) fn finish_word(reason: IrFinishReason) -> (&'static str, bool) {
    match reason {
        IrFinishReason::Stop | IrFinishReason::ToolUse | IrFinishReason::StopSequence => {
            ("STOP", true)
        }
        IrFinishReason::Length => ("MAX_TOKENS", true),
        IrFinishReason::ContentFilter => ("SAFETY", true),
        IrFinishReason::Refusal => ("SAFETY", false),
        _ => ("OTHER", false),
    }
}

/// What a word for an error means.
pub(crate) fn error_kind(word: &str) -> Option<IrErrorKind> {
    Some(match word {
        "INVALID_ARGUMENT" | "FAILED_PRECONDITION" | "OUT_OF_RANGE" => IrErrorKind::InvalidRequest,
        "UNAUTHENTICATED" => IrErrorKind::Authentication,
        "PERMISSION_DENIED" => IrErrorKind::Permission,
        "NOT_FOUND" => IrErrorKind::NotFound,
        "ABORTED" | "ALREADY_EXISTS" => IrErrorKind::Conflict,
        "RESOURCE_EXHAUSTED" => IrErrorKind::RateLimit,
        "INTERNAL" | "UNKNOWN" | "DATA_LOSS" => IrErrorKind::Server,
        "UNAVAILABLE" => IrErrorKind::Overloaded,
        "DEADLINE_EXCEEDED" => IrErrorKind::Timeout,
        _ => return None,
    })
}

/// The HTTP status and the word for an error.
pub(crate) fn error_word(kind: IrErrorKind) -> (u16, &'static str) {
    match kind {
        IrErrorKind::InvalidRequest => (400, "INVALID_ARGUMENT"),
        IrErrorKind::Authentication => (401, "UNAUTHENTICATED"),
        // A bill that was not paid takes the permission away.
        IrErrorKind::Billing | IrErrorKind::Permission => (403, "PERMISSION_DENIED"),
        IrErrorKind::NotFound => (404, "NOT_FOUND"),
        IrErrorKind::Conflict => (409, "ABORTED"),
        IrErrorKind::TooLarge => (413, "INVALID_ARGUMENT"),
        IrErrorKind::RateLimit => (429, "RESOURCE_EXHAUSTED"),
        IrErrorKind::Overloaded => (503, "UNAVAILABLE"),
        IrErrorKind::Timeout => (504, "DEADLINE_EXCEEDED"),
        IrErrorKind::Server => (500, "INTERNAL"),
        _ => (500, "UNKNOWN"),
    }
}
