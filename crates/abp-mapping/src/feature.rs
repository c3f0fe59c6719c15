//! The features that dialects have in common, more or less.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A feature of requests that clients rely on.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Feature {
    /// Instructions before the conversation.
    SystemPrompt,
    /// Functions, calls and their answers.
    ToolUse,
    /// A tool that has to be called.
    ToolChoice,
    /// One call at a time.
    SingleToolCalls,
    /// Tools that take free text.
    CustomTools,
    /// Tools that the vendor carries out.
    ServerTools,
    /// Code that the vendor executes.
    CodeExec,
    /// An answer piece by piece.
    Streaming,
    /// Reasoning of earlier turns.
    Thinking,
    /// How much the model should reason.
    ReasoningControl,
    /// Images, inline.
    ImageInput,
    /// Images by their address.
    ImageUrl,
    /// Documents, inline.
    DocumentInput,
    /// Sound, inline.
    AudioInput,
    /// Answers that follow a JSON schema.
    StructuredOutput,
    /// Texts that end the answer.
    StopSequences,
    /// Temperature and nucleus sampling.
    Sampling,
    /// A seed for sampling.
    Seed,
    /// Log probabilities of tokens.
    Logprobs,
    /// Several answers to one request.
    MultipleCandidates,
    /// Marks where a prompt may be cached.
    PromptCaching,
    /// Conversations that the vendor keeps.
    StoredConversation,
}

impl Feature {
    /// Every feature.
    pub const ALL: [Self; 22] = [
        Self::SystemPrompt,
        Self::ToolUse,
        Self::ToolChoice,
        Self::SingleToolCalls,
        Self::CustomTools,
        Self::ServerTools,
        Self::CodeExec,
        Self::Streaming,
        Self::Thinking,
        Self::ReasoningControl,
        Self::ImageInput,
        Self::ImageUrl,
        Self::DocumentInput,
        Self::AudioInput,
        Self::StructuredOutput,
        Self::StopSequences,
        Self::Sampling,
        Self::Seed,
        Self::Logprobs,
        Self::MultipleCandidates,
        Self::PromptCaching,
        Self::StoredConversation,
    ];

    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SystemPrompt => "system_prompt",
            Self::ToolUse => "tool_use",
            Self::ToolChoice => "tool_choice",
            Self::SingleToolCalls => "single_tool_calls",
            Self::CustomTools => "custom_tools",
            Self::ServerTools => "server_tools",
            Self::CodeExec => "code_exec",
            Self::Streaming => "streaming",
            Self::Thinking => "thinking",
            Self::ReasoningControl => "reasoning_control",
            Self::ImageInput => "image_input",
            Self::ImageUrl => "image_url",
            Self::DocumentInput => "document_input",
            Self::AudioInput => "audio_input",
            Self::StructuredOutput => "structured_output",
            Self::StopSequences => "stop_sequences",
            Self::Sampling => "sampling",
            Self::Seed => "seed",
            Self::Logprobs => "logprobs",
            Self::MultipleCandidates => "multiple_candidates",
            Self::PromptCaching => "prompt_caching",
            Self::StoredConversation => "stored_conversation",
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
