//! Which events end a stream, and how.

use abp_openai_sdk::wire::{
    ChatCompletionChunk, ErrorObject, ErrorResponse, Extra, ResponseStreamEvent,
};
use abp_shim_core::{OpenAnswers, StreamReader, StreamStep, Unreadable, read_json};

/// Reads streams of Chat Completions.
#[derive(Debug, Default)]
pub struct ChatReader {
    answers: OpenAnswers,
}

impl StreamReader for ChatReader {
    type Event = ChatCompletionChunk;
    type ErrorBody = ErrorResponse;

    fn read(
        &mut self,
        data: &str,
    ) -> Result<StreamStep<ChatCompletionChunk, ErrorResponse>, Unreadable> {
        if data == "[DONE]" {
            return Ok(StreamStep::End(None));
        }
        let chunk: ChatCompletionChunk = match read_json(data) {
            Ok(chunk) => chunk,
            Err(problem) => {
                let error = read_json(data).map_err(|_| problem)?;
                return Ok(StreamStep::Failed(None, error));
            }
        };
        if chunk
            .extra
            .get("error")
            .is_some_and(|error| !error.is_null())
        {
            return Ok(StreamStep::Failed(None, read_json(data)?));
        }
        for choice in &chunk.choices {
            self.answers
                .see(choice.index, choice.finish_reason.is_some());
        }
        Ok(StreamStep::More(chunk))
    }

    /// Compatible servers leave the terminator out; then the answers say that they have ended.
    fn may_end(&self) -> bool {
        self.answers.all_ended()
    }
}

/// Reads streams of Responses.
#[derive(Debug, Default)]
pub struct ResponseReader;

impl StreamReader for ResponseReader {
    type Event = ResponseStreamEvent;
    type ErrorBody = ErrorResponse;

    fn read(
        &mut self,
        data: &str,
    ) -> Result<StreamStep<ResponseStreamEvent, ErrorResponse>, Unreadable> {
        let event: ResponseStreamEvent = read_json(data)?;
        Ok(match event {
            ResponseStreamEvent::Completed(_) | ResponseStreamEvent::Incomplete(_) => {
                StreamStep::End(Some(event))
            }
            ResponseStreamEvent::Failed(ref failed) => {
                let error = failed.response.error.clone().unwrap_or_default();
                StreamStep::Failed(Some(event), body(error))
            }
            ResponseStreamEvent::Other(ref other) if other["type"] == "error" => {
                StreamStep::Failed(None, error_event(data)?)
            }
            _ => StreamStep::More(event),
        })
    }

    fn may_end(&self) -> bool {
        false
    }
}

/// The members of an error are in an object of their own, or in the event itself.
fn error_event(data: &str) -> Result<ErrorResponse, Unreadable> {
    read_json(data).or_else(|_| read_json(data).map(body))
}

fn body(error: ErrorObject) -> ErrorResponse {
    ErrorResponse {
        error,
        extra: Extra::new(),
    }
}
