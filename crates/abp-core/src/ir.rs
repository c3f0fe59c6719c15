//! The intermediate representation: a conversation in no vendor's terms.
//!
//! Dialects lower their requests into it and raise it into their own; emulation changes it between
//! the two. Enums here are `non_exhaustive`: dialects add what they need.

mod conversation;
mod message;

pub use conversation::{IrConversation, IrToolDefinition, IrUsage};
pub use message::{IrContentBlock, IrMessage, IrRole};
