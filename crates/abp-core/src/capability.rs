//! Capabilities, support levels and requirements: the vocabulary of negotiation.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! capabilities {
    ($($variant:ident = $wire:literal $(| $alias:literal)*, $description:literal;)+) => {
        /// A feature that a backend may have and a work order may need.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Capability {
            $(#[doc = $description] $variant,)+
            /// A capability this version does not know, kept under its wire name.
            Other(String),
        }

        impl Capability {
            /// Every capability this version knows, in the order of the documentation.
            pub const KNOWN: &'static [Self] = &[$(Self::$variant,)+];

            /// The wire name (snake_case).
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $wire,)+
                    Self::Other(name) => name,
                }
            }

            /// Reads a wire name or one of its aliases; unknown names are kept.
            #[must_use]
            pub fn from_wire(name: &str) -> Self {
                match name {
                    $($wire $(| $alias)* => Self::$variant,)+
                    other => Self::Other(other.to_owned()),
                }
            }

            /// Other wire names that mean the same.
            #[must_use]
            pub const fn aliases(&self) -> &'static [&'static str] {
                match self {
                    $(Self::$variant => &[$($alias),*],)+
                    Self::Other(_) => &[],
                }
            }

            /// What the capability means, in one sentence.
            #[must_use]
            pub const fn description(&self) -> &'static str {
                match self {
                    $(Self::$variant => $description,)+
                    Self::Other(_) => "Not known to this version.",
                }
            }

            const fn variant_name(&self) -> Option<&'static str> {
                match self {
                    $(Self::$variant => Some(stringify!($variant)),)+
                    Self::Other(_) => None,
                }
            }
        }
    };
}

capabilities! {
    Streaming = "streaming", "Backend can stream incremental `AssistantDelta` events.";
    ToolRead = "tool_read", "File-read tool (e.g. `Read`).";
    ToolWrite = "tool_write", "File-write / create tool (e.g. `Write`).";
    ToolEdit = "tool_edit", "In-place file editing tool (e.g. `Edit`, `MultiEdit`).";
    ToolBash = "tool_bash", "Shell / command execution tool.";
    ToolGlob = "tool_glob", "Glob-pattern file search.";
    ToolGrep = "tool_grep", "Content search / ripgrep.";
    ToolWebSearch = "tool_web_search", "Web search capability.";
    ToolWebFetch = "tool_web_fetch", "Fetch a URL and return contents.";
    ToolAskUser = "tool_ask_user", "Interactive prompt to the human operator.";
    HooksPreToolUse = "hooks_pre_tool_use", "Fire a hook **before** every tool invocation.";
    HooksPostToolUse = "hooks_post_tool_use", "Fire a hook **after** every tool invocation.";
    SessionResume = "session_resume", "Resume a previously-started session/conversation.";
    SessionFork = "session_fork", "Fork/branch an existing session into a new one.";
    Checkpointing = "checkpointing", "Save and restore execution checkpoints.";
    StructuredOutputJsonSchema = "structured_output_json_schema", "Constrain model output to a JSON Schema.";
    McpClient = "mcp_client", "Connect to external MCP servers as a client.";
    McpServer = "mcp_server", "Expose MCP server endpoints.";
    ToolUse = "tool_use" | "function_calling", "Call functions that the caller defines.";
    ExtendedThinking = "extended_thinking", "Reason at length before answering.";
    ImageInput = "image_input" | "vision", "Take images as input.";
    PdfInput = "pdf_input", "Take PDF documents as input.";
    Audio = "audio", "Take or give audio.";
    CodeExecution = "code_execution", "Run code in a sandbox of the vendor.";
    Logprobs = "logprobs", "Report log probabilities of tokens.";
    SeedDeterminism = "seed_determinism", "Take a seed for repeatable sampling.";
    StopSequences = "stop_sequences", "Stop at strings that the caller names.";
    JsonMode = "json_mode", "Answer with syntactically valid JSON.";
    SystemMessage = "system_message", "Take instructions apart from the conversation.";
    Temperature = "temperature", "Take a sampling temperature.";
    TopP = "top_p", "Take a nucleus-sampling threshold.";
    TopK = "top_k", "Take a limit on the tokens considered.";
    MaxTokens = "max_tokens", "Take a limit on the tokens of the answer.";
    FrequencyPenalty = "frequency_penalty", "Take a penalty on repeated tokens.";
    PresencePenalty = "presence_penalty", "Take a penalty on tokens already present.";
    CacheControl = "cache_control", "Take marks for prompt caching.";
    BatchMode = "batch_mode", "Take requests to be answered later, in bulk.";
    Embeddings = "embeddings", "Turn text into vectors.";
    ImageGeneration = "image_generation", "Produce images.";
}

impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.variant_name(), self) {
            (Some(name), _) => f.write_str(name),
            (None, other) => write!(f, "Other({:?})", other.as_str()),
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Capability {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Capability {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from_wire(&Cow::<'de, str>::deserialize(
            deserializer,
        )?))
    }
}

impl JsonSchema for Capability {
    fn schema_name() -> Cow<'static, str> {
        "Capability".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let known: Vec<_> = Self::KNOWN
            .iter()
            .flat_map(|capability| {
                std::iter::once(capability.as_str()).chain(capability.aliases().iter().copied())
            })
            .collect();
        json_schema!({
            "description": "A capability's wire name. Names this version does not know are kept.",
            "anyOf": [{ "type": "string", "enum": known }, { "type": "string" }],
        })
    }
}

/// How well a backend supports a capability.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SupportLevel {
    /// First-class support: no translation or emulation needed.
    Native,
    /// Supported through a translation layer with acceptable fidelity.
    Emulated,
    /// Supported in principle but limited by policy or environment.
    Restricted {
        /// Why it is limited.
        reason: String,
    },
    /// Cannot be provided.
    Unsupported,
}

impl SupportLevel {
    /// Whether this level meets the threshold. `Restricted` meets `Emulated` but not `Native`.
    #[must_use]
    pub fn satisfies(&self, min: &MinSupport) -> bool {
        match min {
            MinSupport::Native => matches!(self, Self::Native),
            MinSupport::Emulated => !matches!(self, Self::Unsupported),
            MinSupport::Any => true,
        }
    }
}

/// The least support a work order accepts for a capability.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum MinSupport {
    /// The capability is wished for; a backend without it is accepted.
    Any,
    /// Native, emulated or restricted support.
    Emulated,
    /// Native support only.
    Native,
}

/// What a backend can do, and how well.
pub type CapabilityManifest = BTreeMap<Capability, SupportLevel>;

/// One capability a work order needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CapabilityRequirement {
    /// The capability.
    pub capability: Capability,
    /// The least support accepted; `emulated` when omitted.
    #[serde(default = "default_min_support")]
    pub min_support: MinSupport,
}

/// Everything a work order needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CapabilityRequirements {
    /// The requirements; all of them must be met.
    pub required: Vec<CapabilityRequirement>,
}

const fn default_min_support() -> MinSupport {
    MinSupport::Emulated
}
