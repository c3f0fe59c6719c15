//! The dialects.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A vendor's language. More may come; match with a wildcard outside this workspace.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Dialect {
    /// OpenAI Chat Completions.
    #[serde(rename = "openai", alias = "open_ai", alias = "openai-chat")]
    OpenAi,
    /// Anthropic Messages.
    #[serde(alias = "anthropic")]
    Claude,
    /// Gemini `generateContent`.
    Gemini,
    /// OpenAI Responses, the language of Codex.
    #[serde(alias = "openai-responses")]
    Codex,
    /// Kimi (Moonshot) chat completions.
    Kimi,
    /// GitHub Copilot chat completions.
    Copilot,
}

/// Dialects whose documents have the same skeleton.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WireFamily {
    /// Chat completions: OpenAI, Kimi, Copilot.
    Chat,
    /// Responses: Codex.
    Responses,
    /// Messages: Claude.
    Messages,
    /// Generate content: Gemini.
    GenerateContent,
}

impl Dialect {
    /// Every dialect, in the order in which ties are decided.
    pub const ALL: [Self; 6] = [
        Self::OpenAi,
        Self::Claude,
        Self::Gemini,
        Self::Codex,
        Self::Kimi,
        Self::Copilot,
    ];

    /// The name on the wire and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Claude => "claude",
            Self::Gemini => "gemini",
            Self::Codex => "codex",
            Self::Kimi => "kimi",
            Self::Copilot => "copilot",
        }
    }

    /// The name for people.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::OpenAi => "OpenAI Chat Completions",
            Self::Claude => "Claude",
            Self::Gemini => "Gemini",
            Self::Codex => "OpenAI Responses",
            Self::Kimi => "Kimi",
            Self::Copilot => "Copilot",
        }
    }

    /// The skeleton of its documents.
    #[must_use]
    pub fn family(self) -> WireFamily {
        match self {
            Self::OpenAi | Self::Kimi | Self::Copilot => WireFamily::Chat,
            Self::Codex => WireFamily::Responses,
            Self::Claude => WireFamily::Messages,
            Self::Gemini => WireFamily::GenerateContent,
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name.to_ascii_lowercase().as_str() {
            "openai" | "openai-chat" => Ok(Self::OpenAi),
            "claude" | "anthropic" => Ok(Self::Claude),
            "gemini" => Ok(Self::Gemini),
            "codex" | "openai-responses" => Ok(Self::Codex),
            "kimi" | "moonshot" => Ok(Self::Kimi),
            "copilot" => Ok(Self::Copilot),
            _ => Err(UnknownDialect(name.to_owned())),
        }
    }
}

/// A name that is no dialect's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no dialect; there are openai, codex, claude, gemini, kimi and copilot")]
pub struct UnknownDialect(pub String);
