//! The intermediate representation: requests, answers and streams in no vendor's terms.
//!
//! A dialect reads its own JSON into these types and writes them in its own form; emulation changes
//! them between the two. Every value that was read remembers where ([`Origin`]), so that whoever
//! writes it can say what became of each part of the source. What was not read is not in here: it is
//! still on the source's tape, and known to be missing.
//!
//! Conventions that every dialect keeps:
//!
//! - Instructions are messages of role `system` or `developer`, in their place; those that a vendor
//!   keeps outside the conversation come first.
//! - A tool's answer is a [`IrContentBlock::ToolResult`] in a message of role `tool`; a message that
//!   holds results and other content is split into one of role `tool` and one of role `user`.
//! - `plain` says that content was, or can be, written as one string instead of a list of parts.
//! - Token counts are inclusive: `input_tokens` counts cached tokens, `output_tokens` counts
//!   reasoning. Unknown is `None`, never zero.
//! - What a dialect knows but no other can express travels as an [`IrVendorField`] next to the value
//!   it belongs to, under its own name.

mod conversation;
mod delta;
mod leaf;
mod media;
mod message;
mod response;
mod settings;
mod tool;
mod usage;

pub use conversation::IrConversation;
pub use delta::{IrBlockStart, IrDelta};
pub use leaf::{IrVendorField, Leaf, Origin, RawJson};
pub use media::{IrMedia, IrMediaData};
pub use message::{
    IrBlock, IrCitation, IrContentBlock, IrMessage, IrRange, IrRole, IrThinkingKind, IrToolInput,
};
pub use response::{IrChoice, IrError, IrErrorKind, IrFinish, IrFinishReason, IrResponse};
pub use settings::{
    IrReasoning, IrReasoningMode, IrResponseFormat, IrResponseFormatKind, IrSettings, IrStop,
};
pub use tool::{IrToolChoice, IrToolChoiceMode, IrToolDefinition, IrToolKind, custom_tool_names};
pub use usage::IrUsage;
