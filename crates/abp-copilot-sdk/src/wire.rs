//! Copilot's words: its members and its events.

/// Members of a request that have no common form.
pub(crate) const REQUEST_MEMBERS: &[&str] = &[
    "agent",
    "copilot_skills",
    "copilot_thread_id",
    "intent",
    "intent_model",
    "intent_threshold",
    "intent_tokenizer",
    "logit_bias",
    "prediction",
    "snippy",
    "thinking_budget",
];

/// Members of a message besides its content. What Copilot keeps of a model's reasoning goes back to
/// Copilot only.
pub(crate) const MESSAGE_MEMBERS: &[&str] = &[
    "copilot_annotations",
    "copilot_cache_control",
    "copilot_confirmations",
    "copilot_references",
    "cot_id",
    "cot_summary",
    "name",
    "reasoning_opaque",
];

/// Members of an answer, and names of events, that Copilot's extensions use.
pub(crate) const EXTENSIONS: &[&str] = &[
    "copilot_confirmation",
    "copilot_confirmations",
    "copilot_errors",
    "copilot_references",
];
