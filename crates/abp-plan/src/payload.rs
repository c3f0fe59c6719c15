//! What is handed to a backend.

use std::borrow::Cow;

use abp_core::ContractError;
use abp_core::ir::IrConversation;
use abp_dialect::{Dialect, Exchange};
use serde::Serialize;

/// What is handed to a backend.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Payload {
    /// Mapped: a conversation, with ABP's emulations applied.
    Conversation {
        /// The conversation.
        conversation: Box<IrConversation>,
    },
    /// Mapped, for a model: the conversation in the model's own dialect.
    Lowered {
        /// The dialect.
        dialect: Dialect,
        /// The request's text.
        request: String,
        /// What the answer has to undo.
        #[serde(skip)]
        exchange: Box<Exchange>,
    },
    /// Passthrough: the vendor's own request.
    VendorRequest {
        /// The request's text.
        request: String,
    },
}

impl Payload {
    /// The payload's bytes, as a backend receives them.
    ///
    /// # Errors
    /// Fails where the conversation cannot be serialised.
    pub fn bytes(&self) -> Result<Cow<'_, [u8]>, ContractError> {
        match self {
            Self::VendorRequest { request } | Self::Lowered { request, .. } => {
                Ok(Cow::Borrowed(request.as_bytes()))
            }
            Self::Conversation { conversation } => serde_json::to_vec(conversation)
                .map(Cow::Owned)
                .map_err(|error| ContractError::Schema {
                    pointer: String::new(),
                    problem: format!("cannot serialise the conversation: {error}"),
                }),
        }
    }
}
