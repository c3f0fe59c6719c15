//! When a stream may end: the vendor has no event for that.

use abp_gemini_sdk::wire::{ErrorResponse, GenerateContentResponse};
use abp_shim_core::{OpenAnswers, StreamReader, StreamStep, Unreadable, read_json};

/// Reads streams of `generateContent`.
#[derive(Debug, Default)]
pub struct ContentReader {
    answers: OpenAnswers,
    /// The vendor refused the request: there are no answers to wait for.
    blocked: bool,
}

impl StreamReader for ContentReader {
    type Event = GenerateContentResponse;
    type ErrorBody = ErrorResponse;

    fn read(
        &mut self,
        data: &str,
    ) -> Result<StreamStep<GenerateContentResponse, ErrorResponse>, Unreadable> {
        let piece: GenerateContentResponse = read_json(data)?;
        if piece.extra.contains_key("error") {
            return Ok(StreamStep::Failed(None, read_json(data)?));
        }
        for candidate in &piece.candidates {
            let index = candidate.index.unwrap_or_default();
            self.answers.see(index, candidate.finish_reason.is_some());
        }
        let feedback = piece.prompt_feedback.as_ref();
        self.blocked |= feedback.is_some_and(|feedback| feedback.block_reason.is_some());
        Ok(StreamStep::More(piece))
    }

    fn may_end(&self) -> bool {
        self.blocked || self.answers.all_ended()
    }
}
