//! Sampling from a model behind this end.
//!
//! A server's wishes are followed or refused by name; what the protocol lets a client ignore is ignored
//! and named in the answer.

use std::sync::Arc;

use abp_json::{Kind, View, Writer};

use super::{Used, begin_labelled, json};
use crate::negotiate::Emulation;
use crate::serve::{ForeignError, McpAnswer, McpFuture};

/// What a server gets that may not sample, as in the protocol's own example.
const REJECTED: i64 = -1;

/// How servers may sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamplingRules {
    /// The models: the first, unless a server asks for another of them.
    pub models: Vec<String>,
    /// The longest answer, in tokens.
    pub max_tokens: u64,
    /// How often a server may sample within one request.
    pub max_per_call: u32,
}

/// What a server asks a model.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleRequest {
    /// The model.
    pub model: String,
    /// What the model is told first.
    pub system: Option<String>,
    /// What was said so far.
    pub messages: Vec<SampleMessage>,
    /// The longest answer, in tokens.
    pub max_tokens: u64,
    /// How much chance there is.
    pub temperature: Option<f64>,
    /// Where the answer ends.
    pub stop_sequences: Vec<String>,
}

/// Something that was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleMessage {
    /// By whom.
    pub role: SampleRole,
    /// What.
    pub parts: Vec<SamplePart>,
}

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleRole {
    /// Whoever asks.
    User,
    /// The model.
    Assistant,
}

/// A part of what is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SamplePart {
    /// Words.
    Text(String),
    /// A picture.
    Image {
        /// Of which kind.
        mime_type: String,
        /// Itself, in base64.
        data: String,
    },
}

/// What a model says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Its words.
    pub text: String,
    /// Its name.
    pub model: String,
    /// Why it ended.
    pub stop: SampleStop,
    /// What the exchange is recorded as.
    pub record: Option<String>,
}

/// Why a model ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleStop {
    /// It has said everything.
    EndTurn,
    /// It came to a text where it was to end.
    StopSequence,
    /// It was to say no more.
    MaxTokens,
}

/// Asks a model. Whoever makes one keeps a budget; what is refused says why.
pub type Sampler =
    Arc<dyn Fn(SampleRequest) -> McpFuture<'static, Result<Sample, String>> + Send + Sync>;

/// Sampling in the place of a client.
#[derive(Clone)]
pub(in crate::gateway) struct Sampling {
    pub(super) rules: SamplingRules,
    pub(super) sampler: Sampler,
}

impl SamplingRules {
    pub(super) fn limits(&self) -> String {
        let Self {
            models,
            max_tokens,
            max_per_call,
        } = self;
        let models = models.join(", ");
        format!(
            "model {models}, {max_tokens} tokens, {max_per_call} times in a request, no tools, no context"
        )
    }

    /// The first model that fits one of a server's hints, which are parts of names; else the usual one.
    fn choose(&self, params: View<'_>) -> Option<&String> {
        let hints = params
            .get("modelPreferences")
            .and_then(|preferences| preferences.get("hints"));
        let hints = hints.into_iter().flat_map(View::items);
        let mut names = hints.filter_map(|hint| hint.get("name")?.as_str());
        let hinted = names.find_map(|name| self.models.iter().find(|model| model.contains(&*name)));
        hinted.or(self.models.first())
    }
}

impl Sampling {
    /// Answers a server that wants to sample.
    pub(super) async fn answer(&self, params: Option<&str>, used: &Used) -> McpAnswer {
        let read = json::read(params, |params| {
            read_request(params, &self.rules).map(|request| (request, ignored(params)))
        });
        let (request, ignored) = match read {
            Some(Ok(read)) => read,
            Some(Err(why)) => return McpAnswer::invalid(why),
            None => return McpAnswer::invalid("sampling needs parameters"),
        };
        let most = self.rules.max_per_call;
        if !used.take_sample(most) {
            return rejected(format!("a server may sample {most} times in a request"));
        }
        match (self.sampler)(request).await {
            Ok(sample) => McpAnswer::Result(result(&sample, &ignored)),
            Err(why) => rejected(why),
        }
    }
}

fn rejected(message: String) -> McpAnswer {
    McpAnswer::Error(ForeignError {
        code: REJECTED,
        message,
        data: None,
    })
}

fn result(sample: &Sample, ignored: &[&str]) -> String {
    let mut out = Writer::default();
    begin_labelled(&mut out, &label(sample, ignored));
    out.key("role");
    out.string("assistant");
    out.key("content");
    out.raw(&json::object(&[("type", "text"), ("text", &sample.text)]));
    out.key("model");
    out.string(&sample.model);
    out.key("stopReason");
    out.string(match sample.stop {
        SampleStop::EndTurn => "endTurn",
        SampleStop::StopSequence => "stopSequence",
        SampleStop::MaxTokens => "maxTokens",
    });
    out.end_object();
    out.into_text()
}

/// Says who answered, where that is recorded, and what was ignored.
fn label(sample: &Sample, ignored: &[&str]) -> String {
    let mut out = Writer::default();
    out.begin_object();
    out.key("by");
    out.string(Emulation::Sampling.as_str());
    if let Some(record) = &sample.record {
        out.key("record");
        out.string(record);
    }
    if !ignored.is_empty() {
        out.key("ignored");
        out.begin_array();
        for member in ignored {
            out.string(member);
        }
        out.end_array();
    }
    out.end_object();
    out.into_text()
}

/// What the protocol lets a client ignore, and this one does.
fn ignored(params: View<'_>) -> Vec<&'static str> {
    let context = params.get("includeContext").and_then(View::as_str);
    let preferences = params.get("modelPreferences");
    let has_priority = preferences
        .into_iter()
        .flat_map(View::entries)
        .any(|(key, _)| key.as_str().is_some_and(|key| key != "hints"));
    [
        (
            context.is_some_and(|context| context != "none"),
            "includeContext",
        ),
        (has_priority, "modelPreferences priorities"),
        (params.get("metadata").is_some(), "metadata"),
    ]
    .into_iter()
    .filter_map(|(is_there, name)| is_there.then_some(name))
    .collect()
}

fn read_request(params: View<'_>, rules: &SamplingRules) -> Result<SampleRequest, String> {
    let asked = params.get("maxTokens").and_then(View::as_u64);
    let asked = asked.filter(|asked| *asked > 0);
    let messages: Result<Vec<_>, _> = params
        .get("messages")
        .into_iter()
        .flat_map(View::items)
        .map(read_message)
        .collect();
    let messages = messages?;
    if messages.is_empty() {
        return Err("sampling needs messages".to_owned());
    }
    let system = match params.get("systemPrompt").filter(|one| !one.is_null()) {
        Some(system) => Some(text(system).ok_or("systemPrompt is not a text")?),
        None => None,
    };
    let temperature = match params.get("temperature").filter(|one| !one.is_null()) {
        Some(temperature) => Some(temperature.as_f64().ok_or("temperature is not a number")?),
        None => None,
    };
    let stops = params.get("stopSequences").filter(|one| !one.is_null());
    let stops: Option<Vec<_>> = stops.into_iter().flat_map(View::items).map(text).collect();
    Ok(SampleRequest {
        model: rules.choose(params).ok_or("there is no model")?.clone(),
        system,
        messages,
        max_tokens: asked.ok_or("maxTokens is missing")?.min(rules.max_tokens),
        temperature,
        stop_sequences: stops.ok_or("stopSequences has what is no text")?,
    })
}

fn read_message(message: View<'_>) -> Result<SampleMessage, String> {
    let role = match message.get("role").and_then(View::as_str).as_deref() {
        Some("user") => SampleRole::User,
        Some("assistant") => SampleRole::Assistant,
        _ => return Err("a message is of neither user nor assistant".to_owned()),
    };
    let content = message.get("content").ok_or("a message has no content")?;
    let parts: Result<Vec<_>, _> = match content.kind() {
        Kind::Array => content.items().map(read_part).collect(),
        _ => read_part(content).map(|part| vec![part]),
    };
    Ok(SampleMessage {
        role,
        parts: parts?,
    })
}

fn read_part(part: View<'_>) -> Result<SamplePart, String> {
    let member = |key: &str| {
        let found = part.get(key).and_then(text);
        found.ok_or_else(|| format!("a message's content has no {key}"))
    };
    match member("type")?.as_str() {
        "text" => Ok(SamplePart::Text(member("text")?)),
        "image" => Ok(SamplePart::Image {
            mime_type: member("mimeType")?,
            data: member("data")?,
        }),
        other => Err(format!("content of the type {other:?} is not sampled from")),
    }
}

fn text(view: View<'_>) -> Option<String> {
    view.as_str().map(String::from)
}
