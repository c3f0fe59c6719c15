//! Which events end a stream, and how.

use abp_claude_sdk::wire::{ErrorResponse, MessageStreamEvent};
use abp_shim_core::{StreamReader, StreamStep, Unreadable, read_json};

/// Reads streams of Messages.
#[derive(Debug, Default)]
pub struct MessageReader;

impl StreamReader for MessageReader {
    type Event = MessageStreamEvent;
    type ErrorBody = ErrorResponse;

    fn read(
        &mut self,
        data: &str,
    ) -> Result<StreamStep<MessageStreamEvent, ErrorResponse>, Unreadable> {
        let event: MessageStreamEvent = read_json(data)?;
        Ok(match event {
            MessageStreamEvent::MessageStop { .. } => StreamStep::End(Some(event)),
            MessageStreamEvent::Other(ref other) if other["type"] == "error" => {
                StreamStep::Failed(None, read_json(data)?)
            }
            _ => StreamStep::More(event),
        })
    }

    fn may_end(&self) -> bool {
        false
    }
}
