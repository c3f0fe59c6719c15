//! What a document is.

use std::fmt;

use abp_json::{Kind, View};

use super::has;
use crate::WireFamily;

/// What a document is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DocumentKind {
    /// What a caller asks.
    Request,
    /// A whole answer.
    Response,
    /// A part of an answer.
    StreamEvent,
    /// A refusal or a failure, instead of an answer.
    Error,
}

impl fmt::Display for DocumentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "request",
            Self::Response => "response",
            Self::StreamEvent => "stream event",
            Self::Error => "error",
        })
    }
}

pub(super) fn of(document: View<'_>, family: WireFamily) -> DocumentKind {
    // Gemini sends a stream, or an error in its stead, as an array.
    let root = document.items().next().unwrap_or(document);
    let word = |key| root.get(key).and_then(View::as_str).unwrap_or_default();
    match family {
        WireFamily::Chat => chat(root, &word("object")),
        WireFamily::Responses => responses(root, &word("type"), &word("object")),
        WireFamily::Messages => messages(root, &word("type")),
        WireFamily::GenerateContent => generate_content(root),
    }
}

fn chat(root: View<'_>, object: &str) -> DocumentKind {
    let choices = root
        .get("choices")
        .filter(|value| value.kind() == Kind::Array);
    // Not every vendor names the object; a chunk without choices tells the usage.
    let is_whole = |choice| has(choice, "message") && !has(choice, "delta");
    match choices {
        Some(_) if object == "chat.completion.chunk" => DocumentKind::StreamEvent,
        Some(choices) if !choices.items().any(is_whole) => DocumentKind::StreamEvent,
        Some(_) => DocumentKind::Response,
        None if has(root, "error") => DocumentKind::Error,
        None => DocumentKind::Request,
    }
}

fn responses(root: View<'_>, word: &str, object: &str) -> DocumentKind {
    if word.starts_with("response.") || has(root, "sequence_number") || word == "error" {
        DocumentKind::StreamEvent
    } else if object.starts_with("response") || has(root, "output") {
        DocumentKind::Response
    } else if has(root, "error") {
        DocumentKind::Error
    } else {
        DocumentKind::Request
    }
}

fn messages(root: View<'_>, word: &str) -> DocumentKind {
    match word {
        "message" => DocumentKind::Response,
        "error" => DocumentKind::Error,
        "" if has(root, "messages") => DocumentKind::Request,
        "" if has(root, "input_tokens") || has(root, "content") => DocumentKind::Response,
        "" if has(root, "error") => DocumentKind::Error,
        "" => DocumentKind::Request,
        _ => DocumentKind::StreamEvent,
    }
}

fn generate_content(root: View<'_>) -> DocumentKind {
    if has(root, "error") {
        DocumentKind::Error
    } else if [
        "candidates",
        "promptFeedback",
        "usageMetadata",
        "totalTokens",
    ]
    .into_iter()
    .any(|key| has(root, key))
    {
        DocumentKind::Response
    } else {
        DocumentKind::Request
    }
}
