//! What a dialect can do.

use std::collections::BTreeMap;

use abp_core::ir::{IrConversation, IrDelta, IrError, IrResponse, IrUsage, RawJson};
use abp_json::View;

use crate::{Dialect, DialectError, DialectRules, EventSink, Item, Lowering};

/// What is known of a target besides its dialect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TargetProfile {
    /// The model to ask for; the source's where there is none.
    pub model: Option<String>,
    /// The version of the wire (`anthropic-version`); the dialect's usual one where there is none.
    pub wire_version: Option<String>,
    /// The target takes plain strings only where its dialect allows parts.
    pub plain_text_only: bool,
    /// The longest answer, in tokens, to ask for where the source names no limit.
    pub max_output: Option<u64>,
    /// A stream has to tell what it used, whether or not the source asks for that.
    pub stream_usage: bool,
}

impl TargetProfile {
    /// Whether a request of the target's own dialect can stay as it is.
    #[must_use]
    pub fn keeps_requests(&self) -> bool {
        self.model.is_none() && self.max_output.is_none() && !self.stream_usage
    }
}

/// What a request's translation decided, and its answer's translation has to undo.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exchange {
    /// Tools that had to be renamed: the target's name to the source's.
    pub tool_names: BTreeMap<String, String>,
    /// Calls whose ids had to be changed: the target's id to the source's.
    pub tool_ids: BTreeMap<String, String>,
    /// Tools that take free text and were written as functions, by the source's name.
    pub custom_tools: Vec<String>,
    /// The caller used functions, which predate tools, and expects them in the answer.
    pub legacy_functions: bool,
    /// The caller asked for the usage of a stream. `None` where nobody knows what was asked.
    pub include_usage: Option<bool>,
    /// The model as the caller named it, where another one was asked.
    pub model: Option<String>,
    /// Where the answer is to be cut, because the target has no stop sequences.
    pub stop_at: Vec<String>,
    /// What is known of the answer before it comes.
    pub expected: Expected,
}

/// What is known of an answer before it comes. It is told where the answer's vendor does not tell it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expected {
    /// An id that no other answer has.
    pub id: Option<String>,
    /// When it is given, as seconds since 1970.
    pub created: Option<u64>,
    /// The model that was asked.
    pub model: Option<String>,
    /// What it repeats of its request.
    pub echo: Vec<(String, RawJson)>,
}

/// A dialect: how its documents are read and written.
///
/// Reading is tolerant: what is unknown is left unread, an unknown word is no error; only what makes
/// the document meaningless fails. Writing cannot fail: what has no form in the target is remarked
/// on and left out.
pub trait Codec: Sync {
    /// The dialect.
    fn dialect(&self) -> Dialect;

    /// What it asks of every request to this target.
    fn rules(&self, profile: &TargetProfile) -> DialectRules;

    /// Reads a request.
    ///
    /// # Errors
    /// Fails where the document is none.
    fn read_request(&self, root: Item<'_>) -> Result<IrConversation, DialectError>;

    /// What an answer repeats of its request.
    fn echo(&self, _request: View<'_>) -> Vec<(String, RawJson)> {
        Vec::new()
    }

    /// Writes a request.
    fn write_request(&self, conversation: &IrConversation, out: &mut Lowering<'_>);

    /// Reads an answer.
    ///
    /// # Errors
    /// Fails where the document is none.
    fn read_response(&self, root: Item<'_>) -> Result<IrResponse, DialectError>;

    /// Reads what an answer says was used, and nothing else of it.
    ///
    /// # Errors
    /// Fails where it is said otherwise than the dialect says it.
    fn read_usage(&self, root: Item<'_>) -> Result<Option<IrUsage>, DialectError>;

    /// Writes an answer.
    fn write_response(&self, response: &IrResponse, exchange: &Exchange, out: &mut Lowering<'_>);

    /// Reads an error's body; `status` where it is known.
    ///
    /// # Errors
    /// Fails where the document is none.
    fn read_error(&self, root: Item<'_>, status: Option<u16>) -> Result<IrError, DialectError>;

    /// Writes an error's body. Returns its HTTP status.
    fn write_error(&self, error: &IrError, out: &mut Lowering<'_>) -> u16;

    /// Starts to read a stream.
    fn stream_decoder(&self) -> Box<dyn StreamDecoder>;

    /// Starts to write a stream.
    fn stream_encoder(&self, exchange: &Exchange) -> Box<dyn StreamEncoder>;
}

/// How many blocks of an answer may be open at once, and so what a stream may make anybody remember.
/// Vendors open no more than a few.
pub const MAX_OPEN_BLOCKS: usize = 1024;

/// Reads a stream, event by event. State is constant per open block.
pub trait StreamDecoder: Send {
    /// Reads one event: its name, where it has one, and its data.
    ///
    /// # Errors
    /// Fails where the data is no event of the dialect; the stream cannot be read on.
    fn event(
        &mut self,
        name: Option<&str>,
        data: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError>;

    /// Reads a terminator that is no JSON, such as `[DONE]`.
    fn terminator(&mut self, deltas: &mut Vec<IrDelta>);

    /// The bytes have ended. Where the source's own end was not seen, this closes what is open and
    /// says that the answer broke off.
    fn end(&mut self, deltas: &mut Vec<IrDelta>);
}

/// Writes a stream, event by event.
pub trait StreamEncoder: Send {
    /// Writes what a delta means in the target's terms: no, one or several events.
    ///
    /// Each event is started with [`EventSink::event`]. Leaves that are kept for a later event are
    /// handed to [`EventSink::hold`], because the source they come from is gone by then.
    fn delta(&mut self, delta: &IrDelta, out: &mut EventSink<'_>);

    /// So many events have gone before that somebody else wrote; where events are numbered, the next one
    /// goes on from there.
    fn follow(&mut self, _events: u64) {}
}
