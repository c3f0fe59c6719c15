//! Everything that the scenarios name, from `fixture.json`.

use std::sync::Arc;
use std::time::Duration;

use abp_json::Tape;
use abp_mcp::{
    Agreement, Change, ClientCapabilities, ClientHandle, MESSAGE_LIMITS, McpAnswer, McpFuture,
    McpSession, Method, ParamHeaders, ProtocolVersion, RpcRefusal, ServedCall, ServerCapabilities,
    ServerFlag, SubscriptionFilter, Watch,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;

use crate::Outcome;
use crate::rounds;

/// Between two things that a tool tells.
const PAUSE: Duration = Duration::from_millis(50);
const CHANGES: usize = 16;

pub(crate) struct Fixture {
    contents: Contents,
    changes: broadcast::Sender<Change>,
}

#[derive(Deserialize)]
struct Contents {
    tools: Vec<Entry>,
    prompts: Vec<Entry>,
    resources: Vec<Readable>,
    templates: Vec<Readable>,
}

/// A tool or a prompt.
#[derive(Deserialize)]
pub(crate) struct Entry {
    listed: Value,
    result: Value,
    #[serde(default)]
    logs: Vec<String>,
    #[serde(default)]
    progress: Vec<u32>,
    changes: Option<Listed>,
    /// What it asks its client for, by key, round by round.
    #[serde(default)]
    pub(crate) rounds: Vec<Map<String, Value>>,
    /// Whether the client carries a state from round to round.
    #[serde(default)]
    pub(crate) keeps_state: bool,
    /// Whether it asks only for what the client declared.
    #[serde(default)]
    pub(crate) only_declared: bool,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Listed {
    Tools,
    Prompts,
}

/// A resource, or a template of some.
#[derive(Deserialize)]
struct Readable {
    listed: Value,
    contents: Map<String, Value>,
}

impl Fixture {
    pub(crate) fn load() -> Outcome<Self> {
        Ok(Self {
            contents: serde_json::from_str(include_str!("fixture.json"))?,
            changes: broadcast::channel(CHANGES).0,
        })
    }

    async fn answer(&self, call: ServedCall, client: ClientHandle) -> McpAnswer {
        let params = call.params.as_deref().unwrap_or("{}");
        let params: Value = match serde_json::from_str(params) {
            Ok(params) => params,
            Err(error) => return McpAnswer::invalid(error.to_string()),
        };
        let contents = &self.contents;
        match call.method {
            Method::ToolsList => listed("tools", contents.tools.iter().map(|one| &one.listed)),
            Method::PromptsList => {
                listed("prompts", contents.prompts.iter().map(|one| &one.listed))
            }
            Method::ResourcesList => {
                let resources = contents.resources.iter().map(|one| &one.listed);
                listed("resources", resources)
            }
            Method::ResourceTemplatesList => {
                let templates = contents.templates.iter().map(|one| &one.listed);
                listed("resourceTemplates", templates)
            }
            Method::ToolsCall => self.play(&contents.tools, &call, &params, &client).await,
            Method::PromptsGet => self.play(&contents.prompts, &call, &params, &client).await,
            Method::ResourcesRead => self.read(&params),
            Method::Complete => result(&json!({ "completion": { "values": [], "total": 0 } })),
            Method::SetLevel | Method::ResourcesSubscribe | Method::ResourcesUnsubscribe => {
                result(&json!({}))
            }
            other => McpAnswer::internal(format!("{other} is not served")),
        }
    }

    async fn play(
        &self,
        entries: &[Entry],
        call: &ServedCall,
        params: &Value,
        client: &ClientHandle,
    ) -> McpAnswer {
        let name = params.get("name").and_then(Value::as_str);
        let entry = name.and_then(|name| {
            let mut entries = entries.iter();
            entries.find(|entry| entry.listed.get("name").and_then(Value::as_str) == Some(name))
        });
        let Some(entry) = entry else {
            return McpAnswer::invalid(format!("there is no {name:?}"));
        };
        if let Err(refusal) = entry.check_headers(call) {
            return McpAnswer::Refused(refusal);
        }
        self.tell(entry, params, client).await;
        if let Err(unmet) = rounds::ask(entry, call, params, client).await {
            return unmet;
        }
        result(&filled(&entry.result, params))
    }

    /// Logs, reports progress and changes lists. What the client does not want to hear is not told.
    async fn tell(&self, entry: &Entry, params: &Value, client: &ClientHandle) {
        for text in &entry.logs {
            let said = json!({ "level": "info", "data": text });
            drop(client.tell(Method::Log, &said.to_string()));
            tokio::time::sleep(PAUSE).await;
        }
        if let Some(token) = params.pointer("/_meta/progressToken") {
            for progress in &entry.progress {
                let said = json!({ "progressToken": token, "progress": progress, "total": 100 });
                drop(client.tell(Method::Progress, &said.to_string()));
                tokio::time::sleep(PAUSE).await;
            }
        }
        let change = match entry.changes {
            Some(Listed::Tools) => Change::Tools,
            Some(Listed::Prompts) => Change::Prompts,
            None => return,
        };
        // Where nobody listens there is nobody to tell.
        drop(self.changes.send(change));
    }

    fn read(&self, params: &Value) -> McpAnswer {
        let Some(uri) = params.get("uri").and_then(Value::as_str) else {
            return McpAnswer::invalid("the uri of a resource is missing");
        };
        let mut resources = self.contents.resources.iter();
        let resource =
            resources.find(|one| one.listed.get("uri").and_then(Value::as_str) == Some(uri));
        let id = uri.strip_prefix("test://template/");
        let id = id.and_then(|rest| rest.strip_suffix("/data"));
        let template = self.contents.templates.first().filter(|_| id.is_some());
        let Some(found) = resource.or(template) else {
            let uri = uri.to_owned();
            return McpAnswer::Refused(RpcRefusal::UnknownResource { uri });
        };
        let mut contents = found.contents.clone();
        contents.insert("uri".to_owned(), json!(uri));
        contents.insert("mimeType".to_owned(), json!(found.listed.get("mimeType")));
        let arguments = json!({ "arguments": { "id": id.unwrap_or_default() } });
        result(&filled(&json!({ "contents": [contents] }), &arguments))
    }
}

impl Entry {
    /// Holds the headers that repeat parameters against them.
    fn check_headers(&self, call: &ServedCall) -> Result<(), RpcRefusal> {
        let listed = self.listed.to_string();
        let params = call.params.as_deref().unwrap_or("{}");
        let (Some(said), Ok(tool), Ok(params)) = (
            &call.said_params,
            Tape::parse_str(&listed, &MESSAGE_LIMITS),
            Tape::parse_str(params, &MESSAGE_LIMITS),
        ) else {
            return Ok(());
        };
        let headers = ParamHeaders::of(tool.root()).unwrap_or_default();
        headers.check(Some(params.root()), said)
    }
}

impl McpSession for Fixture {
    fn capabilities<'a>(
        &'a self,
        _client: &'a ClientCapabilities,
        _version: Option<ProtocolVersion>,
    ) -> McpFuture<'a, ServerCapabilities> {
        let flags = [
            ServerFlag::Logging,
            ServerFlag::Completions,
            ServerFlag::PromptsListChanged,
            ServerFlag::ResourcesSubscribe,
            ServerFlag::ToolsListChanged,
        ];
        Box::pin(async move { ServerCapabilities::of(flags) })
    }

    fn serve(&self, call: ServedCall, client: ClientHandle) -> McpFuture<'_, McpAnswer> {
        Box::pin(self.answer(call, client))
    }

    fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    fn told(&self, _method: Method, _client: ClientHandle) {}

    fn watch(&self, _client: &Arc<Agreement>, _filter: &SubscriptionFilter) -> Watch {
        None
    }
}

/// Puts arguments where `{{name}}` stands for them.
pub(crate) fn filled(value: &Value, params: &Value) -> Value {
    let fill = |text: &str| {
        let arguments = params.get("arguments").and_then(Value::as_object);
        let mut text = text.to_owned();
        for (name, argument) in arguments.into_iter().flatten() {
            let argument = argument.as_str().unwrap_or_default();
            text = text.replace(&format!("{{{{{name}}}}}"), argument);
        }
        text
    };
    match value {
        Value::String(text) => Value::String(fill(text)),
        Value::Array(items) => items.iter().map(|item| filled(item, params)).collect(),
        Value::Object(members) => {
            let members = members.iter();
            let filled = members.map(|(key, member)| (key.clone(), filled(member, params)));
            Value::Object(filled.collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn listed<'a>(member: &str, entries: impl Iterator<Item = &'a Value>) -> McpAnswer {
    let entries: Vec<_> = entries.collect();
    result(&json!({ member: entries }))
}

pub(crate) fn result(value: &Value) -> McpAnswer {
    McpAnswer::Result(value.to_string())
}
