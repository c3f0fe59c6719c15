//! What is handed to a backend.

use std::borrow::Cow;

use abp_core::ir::IrConversation;
use abp_core::{ContractError, RuntimeConfig};
use serde::Serialize;
use serde_json::Value;

use crate::PlanError;

/// What is handed to a backend.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Payload {
    /// Mapped: a conversation, with ABP's emulations applied.
    Conversation {
        /// The conversation.
        conversation: IrConversation,
    },
    /// Passthrough: the vendor's own request.
    VendorRequest {
        /// The request's text.
        request: String,
    },
}

impl Payload {
    /// The vendor's request named by `config.vendor.abp.request`.
    ///
    /// A string is the request's text and stays as it is, byte for byte; any other JSON is written
    /// compactly.
    pub(crate) fn passthrough(config: &RuntimeConfig) -> Result<Self, PlanError> {
        let request = match config.abp_setting("request") {
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => {
                return Err(PlanError::Setting {
                    key: "request",
                    problem: "passthrough needs the vendor's request here".to_owned(),
                });
            }
        };
        Ok(Self::VendorRequest { request })
    }

    /// The payload's bytes, as a backend receives them.
    ///
    /// # Errors
    /// Fails where the conversation cannot be serialised.
    pub fn bytes(&self) -> Result<Cow<'_, [u8]>, ContractError> {
        match self {
            Self::VendorRequest { request } => Ok(Cow::Borrowed(request.as_bytes())),
            Self::Conversation { conversation } => serde_json::to_vec(conversation)
                .map(Cow::Owned)
                .map_err(|error| ContractError::Schema {
                    pointer: String::new(),
                    problem: format!("cannot serialise the conversation: {error}"),
                }),
        }
    }
}
