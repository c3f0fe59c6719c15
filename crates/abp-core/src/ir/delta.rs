//! A streamed answer, piece by piece.

use super::{
    IrCitation, IrError, IrFinish, IrRole, IrThinkingKind, IrUsage, IrVendorField, Leaf, RawJson,
};

/// A piece of a streamed answer.
///
/// Blocks are numbered from 0 within their choice, in the order in which they start; several may be
/// open at once. Every block is started before its first delta and stopped before `Finish`. After
/// `End` or `Error` nothing follows.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum IrDelta {
    /// The answer begins.
    Start {
        /// The answer's id.
        id: Option<Leaf<String>>,
        /// The model that gives it.
        model: Option<Leaf<String>>,
        /// When, as seconds since 1970.
        created: Option<Leaf<RawJson>>,
        /// What only the source's dialect knows.
        vendor: Vec<IrVendorField>,
    },
    /// A choice's message begins. Choices that are never begun are the assistant's.
    Role {
        /// The choice.
        choice: u32,
        /// Who speaks.
        role: Leaf<IrRole>,
    },
    /// A block begins.
    BlockStart {
        /// The choice.
        choice: u32,
        /// The block.
        block: u32,
        /// What it is.
        start: IrBlockStart,
    },
    /// More of a text, a refusal, some reasoning, or a call's arguments: whatever the block is.
    Append {
        /// The choice.
        choice: u32,
        /// The block.
        block: u32,
        /// The piece.
        text: Leaf<String>,
    },
    /// The vendor's proof of reasoning or of a call; the whole of it, or a piece to append.
    Signature {
        /// The choice.
        choice: u32,
        /// The block.
        block: u32,
        /// The piece.
        signature: Leaf<String>,
    },
    /// A source that a text block names.
    Citation {
        /// The choice.
        choice: u32,
        /// The block.
        block: u32,
        /// The source.
        citation: IrCitation,
    },
    /// A block ends.
    BlockStop {
        /// The choice.
        choice: u32,
        /// The block.
        block: u32,
    },
    /// A choice ends. A source may repeat it; the last one counts.
    Finish {
        /// The choice.
        choice: u32,
        /// Why.
        finish: IrFinish,
    },
    /// Token counts so far; a later one replaces the fields it has.
    Usage(IrUsage),
    /// Something of the answer as a whole that only the source's dialect knows; the last one of a
    /// name counts.
    Vendor(IrVendorField),
    /// A sign of life.
    Ping,
    /// The answer is complete: the source's own terminator was seen.
    End,
    /// The answer failed, or broke off.
    Error(IrError),
}

/// What a block is when it begins.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum IrBlockStart {
    /// Text.
    Text,
    /// The model's words when it declines.
    Refusal,
    /// Reasoning.
    Thinking {
        /// Whether it is the reasoning itself.
        kind: IrThinkingKind,
        /// Its id as an item of its own.
        item_id: Option<Leaf<String>>,
        /// The reasoning as only the vendor can read it.
        encrypted: Option<Leaf<String>>,
    },
    /// Reasoning that the vendor hides.
    RedactedThinking {
        /// The data.
        data: Leaf<String>,
    },
    /// A call of a tool; its arguments follow as text.
    ToolUse {
        /// The id that the answer names.
        id: Option<Leaf<String>>,
        /// The tool.
        name: Leaf<String>,
        /// Whether the arguments are free text instead of JSON.
        custom: bool,
        /// The id of the call as an item of its own.
        item_id: Option<Leaf<String>>,
    },
    /// Something that exists in one dialect only, complete; nothing is appended to it.
    Opaque {
        /// The dialect's name for it.
        kind: String,
        /// All of it, as it was spelled.
        native: Leaf<RawJson>,
    },
}
