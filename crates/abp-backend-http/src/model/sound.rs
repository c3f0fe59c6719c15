//! Sound in an answer of chat completions: one object beside the text, or pieces of it in a stream.

use abp_core::{AgentEventKind, PresentationType};
use abp_json::View;
use serde_json::json;

/// The media type of a sound whose format the request does not name.
const UNKNOWN_FORMAT: &str = "audio/x-unknown";

/// Gathers the sound of an answer.
#[derive(Debug, Default)]
pub(super) struct Sound {
    media_type: Option<String>,
    /// Base64, each piece encoded by itself.
    pieces: Vec<String>,
    transcript: String,
}

impl Sound {
    /// The sound of the answer to a request, which says in what format it wants it.
    pub(super) fn asked_by(request: View<'_>) -> Self {
        let format = request.get("audio").and_then(|audio| audio.get("format"));
        let format = format.and_then(View::as_str);
        Self {
            media_type: format.map(|format| format!("audio/{format}")),
            ..Self::default()
        }
    }

    /// Takes what a document holds of it, and returns the part that was taken.
    pub(super) fn observe<'t>(&mut self, document: View<'t>) -> Option<View<'t>> {
        let choice = document.get("choices")?.items().next()?;
        let said = choice.get("message").or_else(|| choice.get("delta"))?;
        let audio = said.get("audio").filter(|audio| !audio.is_null())?;
        let text = |name: &str| audio.get(name).and_then(View::as_str);
        if let Some(data) = text("data").filter(|data| !data.is_empty()) {
            self.pieces.push(data.into_owned());
        }
        if let Some(transcript) = text("transcript") {
            self.transcript.push_str(&transcript);
        }
        Some(audio)
    }

    /// The sound as a block; `None` where there is none.
    pub(super) fn into_event(self) -> Option<AgentEventKind> {
        if self.pieces.is_empty() && self.transcript.is_empty() {
            return None;
        }
        let media_type = self.media_type.as_deref().unwrap_or(UNKNOWN_FORMAT);
        let (form, content) = if joins(&self.pieces) {
            let joined = self.pieces.concat();
            ("url", json!(format!("data:{media_type};base64,{joined}")))
        } else {
            ("pieces", json!(self.pieces))
        };
        let item = json!({ "mime_type": media_type, form: content, "alt_text": self.transcript });
        Some(AgentEventKind::ContentBlock {
            block_type: PresentationType::MediaCarousel.as_str().to_owned(),
            data: json!({ "items": [item] }),
        })
    }
}

/// Whether pieces of base64 are base64 together: only the last one may be filled up.
fn joins(pieces: &[String]) -> bool {
    let Some((_, before)) = pieces.split_last() else {
        return false;
    };
    before
        .iter()
        .all(|piece| piece.len().is_multiple_of(4) && !piece.ends_with('='))
}
