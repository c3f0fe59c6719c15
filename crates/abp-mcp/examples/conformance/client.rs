//! The client of the suite: it lists what a server has, uses all of it, and answers what it is asked.

use std::io::{self, Write as _};
use std::time::Duration;

use abp_mcp::{
    ClientCapabilities, ClientFlag, ClientOffer, ClientTimeouts, Era, HttpServer, Implementation,
    McpAnswer, McpUpstream, McpUpstreamError, Method, ProtocolVersion, ServerAddress,
    UpstreamEvent, VersionSpan,
};
use secrecy::SecretString;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::{Outcome, versions};

const EVENTS: usize = 64;
/// How often a server may ask within one call.
const MAX_ROUNDS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(20);
const SETTLING: Duration = Duration::from_secs(1);

/// Plays against the server of a scenario.
pub(crate) async fn play(url: &str) -> Outcome<()> {
    let capabilities = ClientCapabilities::of([ClientFlag::ElicitationForm]);
    let (server, events) = open(url, None, capabilities, span()).await?;
    let answering = tokio::spawn(answer_all(server.clone(), events));
    use_tools(&server).await?;
    use_each(&server, Method::ResourcesList, Method::ResourcesRead, "uri").await?;
    use_each(&server, Method::PromptsList, Method::PromptsGet, "name").await?;
    answering.abort();
    Ok(())
}

/// Prints the names of the tools that a server has for a client with a handshake that declares this.
pub(crate) async fn print_tools(url: &str, key: &str, capabilities: &str) -> Outcome<()> {
    let capabilities = ClientCapabilities::from_json(capabilities)?;
    let key = Some(SecretString::from(key));
    let (server, events) = open(url, key, capabilities, VersionSpan::LEGACY).await?;
    let answering = tokio::spawn(answer_all(server.clone(), events));
    // Some servers look at the capabilities only after the handshake.
    tokio::time::sleep(SETTLING).await;
    for tool in list(&server, Method::ToolsList).await? {
        let name = tool.get("name").and_then(Value::as_str);
        writeln!(io::stdout(), "{}", name.unwrap_or_default())?;
    }
    answering.abort();
    Ok(())
}

async fn open(
    url: &str,
    bearer: Option<SecretString>,
    capabilities: ClientCapabilities,
    span: VersionSpan,
) -> Outcome<(McpUpstream, mpsc::Receiver<UpstreamEvent>)> {
    let address = ServerAddress::Http(HttpServer {
        url: url.to_owned(),
        bearer,
    });
    let offer = ClientOffer {
        versions: versions(span),
        capabilities,
        info: Implementation::new("abp-conformance", env!("CARGO_PKG_VERSION")),
    };
    let timeouts = ClientTimeouts {
        probe: PATIENCE,
        initialize: PATIENCE,
        request: PATIENCE,
    };
    let (sender, events) = mpsc::channel(EVENTS);
    let server = McpUpstream::open(&address, offer, timeouts, sender).await?;
    Ok((server, events))
}

/// The era that the suite is about.
fn span() -> VersionSpan {
    let version = std::env::var("MCP_CONFORMANCE_PROTOCOL_VERSION");
    let version = version.ok().and_then(|text| ProtocolVersion::parse(&text));
    match version.map(ProtocolVersion::era) {
        Some(Era::Legacy) => VersionSpan::LEGACY,
        Some(Era::Modern) => VersionSpan::MODERN,
        None => VersionSpan::ALL,
    }
}

async fn use_tools(server: &McpUpstream) -> Outcome<()> {
    let tools = list(server, Method::ToolsList).await?;
    let calls = match calls_of_suite()? {
        Some(calls) => calls,
        None => tools.iter().map(call_of).collect(),
    };
    for call in calls {
        call_tool(server, call).await?;
    }
    Ok(())
}

/// The calls that the suite asks for by name.
fn calls_of_suite() -> Outcome<Option<Vec<Value>>> {
    let Ok(context) = std::env::var("MCP_CONFORMANCE_CONTEXT") else {
        return Ok(None);
    };
    let context: Value = serde_json::from_str(&context)?;
    let calls = context.get("toolCalls").and_then(Value::as_array);
    Ok(calls.cloned())
}

/// A call with an argument of the right kind for everything that a tool requires.
fn call_of(tool: &Value) -> Value {
    let schema = tool.get("inputSchema");
    let required = schema.and_then(|schema| schema.get("required"));
    let required = required.and_then(Value::as_array).into_iter().flatten();
    let arguments = required.filter_map(Value::as_str).map(|name| {
        let kind = schema.and_then(|schema| schema.get("properties")?.get(name)?.get("type"));
        let argument = match kind.and_then(Value::as_str) {
            Some("number" | "integer") => json!(1),
            Some("boolean") => json!(true),
            _ => json!("text"),
        };
        (name.to_owned(), argument)
    });
    let arguments: Map<String, Value> = arguments.collect();
    json!({ "name": tool.get("name"), "arguments": arguments })
}

/// Calls a tool, and gives it what it asks for.
async fn call_tool(server: &McpUpstream, call: Value) -> Outcome<()> {
    let mut params = call.clone();
    for _ in 0..MAX_ROUNDS {
        let result = match server
            .call(Method::ToolsCall, Some(&params.to_string()))
            .await
        {
            Ok(result) => result,
            // A tool that cannot be used is no reason to leave the others.
            Err(McpUpstreamError::Answered(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let result: Value = serde_json::from_str(&result)?;
        if result.get("resultType").and_then(Value::as_str) != Some("input_required") {
            return Ok(());
        }
        let requests = result.get("inputRequests").and_then(Value::as_object);
        let responses = requests.into_iter().flatten().map(|(key, request)| {
            let schema = request.pointer("/params/requestedSchema");
            (key.clone(), accepted(schema))
        });
        let responses: Map<String, Value> = responses.collect();
        params = call.clone();
        if let Some(members) = params.as_object_mut() {
            members.insert("inputResponses".to_owned(), Value::Object(responses));
            if let Some(state) = result.get("requestState") {
                members.insert("requestState".to_owned(), state.clone());
            }
        }
    }
    Err("a tool asks without end".into())
}

/// Uses everything that a server lists by its name or address.
async fn use_each(server: &McpUpstream, listing: Method, using: Method, key: &str) -> Outcome<()> {
    for listed in list(server, listing).await? {
        let params = json!({ key: listed.get(key) });
        server.call(using, Some(&params.to_string())).await?;
    }
    Ok(())
}

/// What a server lists; nothing where it does not say that it has any.
async fn list(server: &McpUpstream, method: Method) -> Outcome<Vec<Value>> {
    let listed = match server.call(method, None).await {
        Ok(listed) => listed,
        Err(McpUpstreamError::Closed(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let listed: Value = serde_json::from_str(&listed)?;
    let member = method.listed_member().and_then(|member| listed.get(member));
    Ok(member
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default())
}

/// Answers what a server asks by itself, up to 2025-11-25.
async fn answer_all(server: McpUpstream, mut events: mpsc::Receiver<UpstreamEvent>) {
    while let Some(event) = events.recv().await {
        let UpstreamEvent::Asks { id, params, .. } = event else {
            continue;
        };
        let params: Value =
            serde_json::from_str(params.as_deref().unwrap_or("{}")).unwrap_or_default();
        let answer = accepted(params.get("requestedSchema"));
        server
            .answer(&id, &McpAnswer::Result(answer.to_string()))
            .await;
    }
}

/// A form with its defaults.
fn accepted(schema: Option<&Value>) -> Value {
    let properties = schema.and_then(|schema| schema.get("properties")?.as_object());
    let defaults = properties
        .into_iter()
        .flatten()
        .filter_map(|(name, property)| {
            let default = property.get("default")?;
            Some((name.clone(), default.clone()))
        });
    json!({ "action": "accept", "content": defaults.collect::<Map<_, _>>() })
}
