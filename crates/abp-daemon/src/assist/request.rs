//! What is asked: an agent request, or the input of an AG-UI client.

use abp_core::{AgentRequest, ContextSnippet, PartialCapabilities, RequestLineage, read_document};
use abp_error::ErrorCode;
use abp_gateway::Refusal;
use abp_stream::Conversation;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::accept::Profile;

/// A request, whichever form it had.
#[derive(Debug)]
pub(super) struct AssistRequest {
    pub(super) id: Uuid,
    pub(super) task: String,
    pub(super) snippets: Vec<ContextSnippet>,
    pub(super) backend: Option<String>,
    pub(super) model: Option<String>,
    /// What the sender says it can render.
    pub(super) capabilities: Option<PartialCapabilities>,
    /// What the sender expects where its headers do not say.
    pub(super) profile: Profile,
    pub(super) conversation: Conversation,
    /// The place of the request among others, where the sender names it.
    pub(super) lineage: Option<RequestLineage>,
    /// What of the request the agent does not get, in words.
    pub(super) left_out: Vec<String>,
}

/// What tells the forms of a request apart, and which ids it has.
#[derive(Deserialize)]
struct Shape {
    #[serde(rename = "threadId")]
    thread_id: Option<IgnoredAny>,
    request_id: Option<IgnoredAny>,
    root_request_id: Option<IgnoredAny>,
}

impl AssistRequest {
    /// Reads a request. What is not known is ignored; what has the wrong type is refused. A request without
    /// an id of its own gets one; with an idempotency key that is the same when it is sent again.
    pub(super) fn read(body: &[u8], key: Option<&str>) -> Result<Self, Refusal> {
        let own_id = key.map_or_else(Uuid::new_v4, id_of);
        match document::<Shape>(body)?.thread_id {
            Some(IgnoredAny) => Self::of_run_input(body, own_id),
            None => Self::of_agent_request(body, own_id),
        }
    }

    fn of_agent_request(body: &[u8], own_id: Uuid) -> Result<Self, Refusal> {
        let mut request: AgentRequest = document(body)?;
        let shape: Shape = document(body)?;
        if shape.request_id.is_none() {
            request.request_id = own_id;
        }
        if shape.root_request_id.is_none() {
            request.root_request_id = request.request_id;
        }
        let AgentFields {
            payload,
            capabilities,
        } = document(body)?;
        if payload.input.trim().is_empty() {
            return Err(missing("/payload/input is empty"));
        }
        Ok(Self {
            id: request.request_id,
            task: payload.input,
            snippets: Vec::new(),
            backend: payload.backend,
            model: payload.model,
            capabilities,
            profile: Profile::Packets,
            conversation: Conversation {
                thread_id: request.session_id.to_string(),
                run_id: request.request_id.to_string(),
            },
            lineage: Some(RequestLineage::from(&request)),
            left_out: unused_members(&request.payload),
        })
    }

    fn of_run_input(body: &[u8], own_id: Uuid) -> Result<Self, Refusal> {
        let input: RunAgentInput = document(body)?;
        // Whatever else is forwarded there is not for us.
        let forwarded = match input.forwarded_props {
            Value::Object(_) => document::<Forwarding>(body)?.forwarded_props,
            _ => Forwarded::default(),
        };
        let left_out = input.left_out();
        let mut snippets: Vec<_> = input.context.into_iter().map(Into::into).collect();
        let (task, before) = split(&input.messages)?;
        if !before.is_empty() {
            snippets.push(ContextSnippet {
                name: "conversation".to_owned(),
                content: before.join("\n\n"),
            });
        }
        Ok(Self {
            id: own_id,
            task,
            snippets,
            backend: forwarded.backend,
            model: forwarded.model,
            capabilities: forwarded.capabilities,
            profile: Profile::AgUi,
            conversation: Conversation {
                thread_id: input.thread_id,
                run_id: input.run_id,
            },
            lineage: None,
            left_out,
        })
    }
}

/// What an agent request has besides the envelope.
#[derive(Deserialize)]
struct AgentFields {
    payload: AgentPayload,
    #[serde(default)]
    capabilities: Option<PartialCapabilities>,
}

/// The members of a payload that the order is made from.
const PAYLOAD_MEMBERS: [&str; 3] = ["input", "backend", "model"];

/// Says which members of a payload nothing is made from.
fn unused_members(payload: &Map<String, Value>) -> Vec<String> {
    let unused = payload.keys().map(String::as_str);
    let unused: Vec<_> = unused
        .filter(|name| !PAYLOAD_MEMBERS.contains(name))
        .collect();
    if unused.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "these members of the payload are not given to the agent: {}",
        unused.join(", ")
    )]
}

#[derive(Deserialize)]
struct AgentPayload {
    input: String,
    #[serde(default)]
    backend: Option<String>,
    #[serde(default)]
    model: Option<String>,
}

/// The input of an AG-UI client, as far as it matters.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RunAgentInput {
    thread_id: String,
    run_id: String,
    messages: Vec<InputMessage>,
    #[serde(default)]
    tools: Vec<IgnoredAny>,
    #[serde(default)]
    state: Value,
    #[serde(default)]
    context: Vec<InputContext>,
    #[serde(default)]
    forwarded_props: Value,
}

#[derive(Deserialize)]
struct InputMessage {
    role: String,
    /// A text, or parts of which some are texts.
    #[serde(default)]
    content: Value,
}

#[derive(Deserialize)]
struct InputContext {
    description: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Forwarding {
    forwarded_props: Forwarded,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Forwarded {
    backend: Option<String>,
    model: Option<String>,
    capabilities: Option<PartialCapabilities>,
}

impl From<InputContext> for ContextSnippet {
    fn from(context: InputContext) -> Self {
        Self {
            name: context.description,
            content: context.value,
        }
    }
}

impl RunAgentInput {
    /// What the agent does not get.
    fn left_out(&self) -> Vec<String> {
        let has_state = match &self.state {
            Value::Null => false,
            Value::Object(state) => !state.is_empty(),
            _ => true,
        };
        let parts = self
            .messages
            .iter()
            .filter_map(|one| one.content.as_array());
        let has_media = parts.flatten().any(|part| text_of(part).is_none());
        let cases = [
            (
                !self.tools.is_empty(),
                "the client's tools are not offered to the agent",
            ),
            (has_state, "the client's state is not given to the agent"),
            (has_media, "only the text of messages is given to the agent"),
        ];
        let told = cases.into_iter().filter(|(is_so, _)| *is_so);
        told.map(|(_, what)| what.to_owned()).collect()
    }
}

impl InputMessage {
    fn text(&self) -> String {
        match &self.content {
            Value::String(text) => text.clone(),
            Value::Array(parts) => parts
                .iter()
                .filter_map(text_of)
                .collect::<Vec<_>>()
                .join("\n"),
            _ => String::new(),
        }
    }
}

/// The text of a part of a message, where it is one.
fn text_of(part: &Value) -> Option<&str> {
    let is_text = part.get("type").and_then(Value::as_str) == Some("text");
    part.get("text").and_then(Value::as_str).filter(|_| is_text)
}

/// The last thing the user said, which is the task, and everything else that was said.
fn split(messages: &[InputMessage]) -> Result<(String, Vec<String>), Refusal> {
    let mut said: Vec<_> = messages
        .iter()
        .map(|message| (message.role.as_str(), message.text()))
        .filter(|(_, text)| !text.trim().is_empty())
        .collect();
    let last = said.iter().rposition(|(role, _)| *role == "user");
    let last = last.ok_or_else(|| missing("/messages has no text of the user"))?;
    let (_, task) = said.remove(last);
    let others = said
        .into_iter()
        .map(|(role, text)| format!("{role}: {text}"));
    Ok((task, others.collect()))
}

/// The id of a request that has none but its idempotency key.
fn id_of(key: &str) -> Uuid {
    let digest = Sha256::digest(key.as_bytes());
    let mut bytes = [0; 16];
    for (byte, taken) in bytes.iter_mut().zip(digest) {
        *byte = taken;
    }
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

fn document<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    read_document(body).map_err(|error| Refusal::new(error.code(), error.to_string()))
}

fn missing(what: &str) -> Refusal {
    Refusal::new(ErrorCode::ContractSchemaViolation, what)
}
