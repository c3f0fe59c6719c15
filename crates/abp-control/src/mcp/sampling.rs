//! Models for MCP servers whose clients have none.
//!
//! A server's question is an exchange of the gateway like any other: it is routed, recorded and paid by a
//! key, whose budget is reserved before anything is sent. So servers that ask at the same time cannot
//! spend more than the key has. What an upstream cannot follow is refused.

use std::sync::Arc;

use abp_backend_core::ModelOperation;
use abp_dialect::Dialect;
use abp_gateway::{AnswerBody, Ask, Gateway, current_time};
use abp_mcp::{Sample, SampleMessage, SamplePart, SampleRequest, SampleRole, SampleStop, Sampler};
use abp_plan::OnLoss;
use http::HeaderMap;
use serde_json::{Value, json};

/// Asks models of a gateway, in the name of the key with this id.
pub(super) fn sampler(models: &Gateway, key: &str) -> Sampler {
    let (models, key) = (models.clone(), key.to_owned());
    Arc::new(move |request| {
        let (models, key) = (models.clone(), key.clone());
        Box::pin(async move { sample(&models, &key, &request).await })
    })
}

async fn sample(models: &Gateway, key: &str, request: &SampleRequest) -> Result<Sample, String> {
    let principal = models.keys().by_id(key, current_time());
    let principal = principal.ok_or_else(|| format!("the key {key} is not valid"))?;
    if !principal.has_budget() {
        return Err(format!("the key {key} has no budget, so nothing is spent"));
    }
    let admitted = models.admit(&principal);
    let admitted = admitted.map_err(|refusal| refusal.error.to_string())?;
    let answer = models
        .exchange(Ask {
            admitted: Arc::new(admitted),
            dialect: Dialect::Claude,
            operation: ModelOperation::Generate { stream: false },
            model: None,
            query: None,
            headers: HeaderMap::new(),
            body: document(request).to_string().into(),
            on_loss: OnLoss::Reject,
        })
        .await;
    let AnswerBody::Whole(bytes) = answer.body else {
        return Err("the model's answer does not end".to_owned());
    };
    let document: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if !answer.status.is_success() {
        let why = text(&document, "/error/message");
        return Err(why.unwrap_or_else(|| format!("the model answers {}", answer.status)));
    }
    let record = answer.headers.get("x-abp-run-id");
    let record = record.and_then(|id| Some(id.to_str().ok()?.to_owned()));
    read(&document, record).ok_or_else(|| "the model's answer has no words".to_owned())
}

fn document(request: &SampleRequest) -> Value {
    let messages: Vec<_> = request.messages.iter().map(message).collect();
    let mut document = json!({
        "model": request.model,
        "max_tokens": request.max_tokens,
        "messages": messages,
    });
    let optional = [
        (
            "system",
            request.system.as_ref().map(|system| json!(system)),
        ),
        ("temperature", request.temperature.map(|one| json!(one))),
        (
            "stop_sequences",
            (!request.stop_sequences.is_empty()).then(|| json!(request.stop_sequences)),
        ),
    ];
    if let Some(members) = document.as_object_mut() {
        let given = optional.into_iter();
        members.extend(given.filter_map(|(key, value)| Some((key.to_owned(), value?))));
    }
    document
}

fn message(message: &SampleMessage) -> Value {
    let parts: Vec<_> = message.parts.iter().map(part).collect();
    let role = match message.role {
        SampleRole::User => "user",
        SampleRole::Assistant => "assistant",
    };
    json!({ "role": role, "content": parts })
}

fn part(part: &SamplePart) -> Value {
    match part {
        SamplePart::Text(text) => json!({ "type": "text", "text": text }),
        SamplePart::Image { mime_type, data } => json!({
            "type": "image",
            "source": { "type": "base64", "media_type": mime_type, "data": data },
        }),
    }
}

fn read(answer: &Value, record: Option<String>) -> Option<Sample> {
    let parts = answer.get("content")?.as_array()?.iter();
    let words: Vec<_> = parts
        .filter_map(|part| part.get("text")?.as_str())
        .collect();
    Some(Sample {
        text: (!words.is_empty()).then(|| words.concat())?,
        model: text(answer, "/model")?,
        stop: match answer.get("stop_reason")?.as_str()? {
            "max_tokens" => SampleStop::MaxTokens,
            "stop_sequence" => SampleStop::StopSequence,
            _ => SampleStop::EndTurn,
        },
        record,
    })
}

fn text(document: &Value, pointer: &str) -> Option<String> {
    Some(document.pointer(pointer)?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> SampleRequest {
        SampleRequest {
            model: "m".to_owned(),
            system: None,
            messages: Vec::new(),
            max_tokens: 5,
            temperature: None,
            stop_sequences: Vec::new(),
        }
    }

    /// Everything that a server says reaches the model, and nothing is said that it did not say.
    #[test]
    fn a_question_is_written_whole() {
        let bare = json!({"model": "m", "max_tokens": 5, "messages": []});
        assert_eq!(document(&request()), bare);
        let said = |role, parts| SampleMessage { role, parts };
        let image = SamplePart::Image {
            mime_type: "image/png".to_owned(),
            data: "AA==".to_owned(),
        };
        let full = SampleRequest {
            system: Some("s".to_owned()),
            messages: vec![
                said(
                    SampleRole::User,
                    vec![SamplePart::Text("t".to_owned()), image],
                ),
                said(
                    SampleRole::Assistant,
                    vec![SamplePart::Text("a".to_owned())],
                ),
            ],
            temperature: Some(0.5),
            stop_sequences: vec!["x".to_owned()],
            ..request()
        };
        let expected = json!({
            "model": "m", "max_tokens": 5, "system": "s", "temperature": 0.5, "stop_sequences": ["x"],
            "messages": [
                {"role": "user", "content": [
                    {"type": "text", "text": "t"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                ]},
                {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
            ],
        });
        assert_eq!(document(&full), expected);
    }

    #[test]
    fn an_answer_is_read_with_its_end() {
        let answer = |content: Value, stop: &str| json!({"model": "m", "content": content, "stop_reason": stop});
        let words =
            json!([{"type": "text", "text": "a"}, {"type": "x"}, {"type": "text", "text": "b"}]);
        let cases = [
            (
                answer(words.clone(), "end_turn"),
                Some(("ab", SampleStop::EndTurn)),
            ),
            (
                answer(words.clone(), "max_tokens"),
                Some(("ab", SampleStop::MaxTokens)),
            ),
            (
                answer(words.clone(), "stop_sequence"),
                Some(("ab", SampleStop::StopSequence)),
            ),
            (answer(json!([]), "end_turn"), None),
            (json!({"content": words, "stop_reason": "end_turn"}), None),
            (json!({}), None),
        ];
        for (document, expected) in cases {
            let expected = expected.map(|(text, stop)| Sample {
                text: text.to_owned(),
                model: "m".to_owned(),
                stop,
                record: Some("r".to_owned()),
            });
            assert_eq!(
                read(&document, Some("r".to_owned())),
                expected,
                "{document}"
            );
        }
    }
}
