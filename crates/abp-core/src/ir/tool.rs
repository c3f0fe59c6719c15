//! Tools and the choice among them.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{IrVendorField, Leaf, Origin, RawJson};

/// A tool the model may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IrToolDefinition {
    /// Its name.
    pub name: Leaf<String>,
    /// What it does.
    #[serde(default)]
    pub description: Option<Leaf<String>>,
    /// The JSON schema of its arguments.
    #[serde(default, alias = "parameters")]
    pub parameters_schema: Option<Leaf<RawJson>>,
    /// Who carries it out, and what it takes.
    #[serde(default)]
    pub kind: IrToolKind,
    /// Whether arguments must follow the schema exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<Leaf<bool>>,
    /// What only the source's dialect knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vendor: Vec<IrVendorField>,
    /// The definition in the source.
    #[serde(skip)]
    pub origin: Origin,
}

impl IrToolDefinition {
    /// A function with arguments.
    pub fn function(
        name: impl Into<Leaf<String>>,
        description: Option<Leaf<String>>,
        parameters_schema: Option<Leaf<RawJson>>,
    ) -> Self {
        Self {
            name: name.into(),
            description,
            parameters_schema,
            kind: IrToolKind::Function,
            strict: None,
            vendor: Vec::new(),
            origin: Origin::Host,
        }
    }
}

/// The names of the tools that take a text instead of JSON. A choice names tools without their kinds,
/// and some vendors want both.
#[must_use]
pub fn custom_tool_names(tools: &[IrToolDefinition]) -> HashSet<&str> {
    let is_custom = |tool: &&IrToolDefinition| matches!(tool.kind, IrToolKind::Custom { .. });
    let custom = tools.iter().filter(is_custom);
    custom.map(|tool| tool.name.as_str()).collect()
}

/// Who carries a tool out, and what it takes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum IrToolKind {
    /// The client carries it out; it takes JSON.
    #[default]
    Function,
    /// The client carries it out; it takes free text.
    Custom {
        /// The grammar of the text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<Leaf<RawJson>>,
    },
    /// The vendor carries it out.
    Server {
        /// The vendor's name for it.
        kind: String,
        /// Its definition, as it was spelled.
        native: Leaf<RawJson>,
    },
}

/// Which tools the model may or must call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IrToolChoice {
    /// The choice.
    #[serde(flatten)]
    pub mode: IrToolChoiceMode,
    /// The choice in the source.
    #[serde(skip)]
    pub origin: Origin,
}

/// Which tools the model may or must call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "mode", rename_all = "snake_case")]
#[non_exhaustive]
pub enum IrToolChoiceMode {
    /// As the model likes.
    Auto,
    /// None.
    None,
    /// At least one, whichever.
    Required,
    /// This one.
    Named {
        /// Its name.
        name: Leaf<String>,
    },
    /// Only these.
    Allowed {
        /// Their names.
        names: Vec<Leaf<String>>,
        /// Whether one of them must be called.
        required: bool,
    },
    /// A choice that exists in one dialect only.
    Other {
        /// All of it, as it was spelled.
        native: Leaf<RawJson>,
    },
}
