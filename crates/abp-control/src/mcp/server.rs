//! The backplane as an MCP server: who answers which request.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use abp_core::CancelReason;
use abp_error::{AbpError, ErrorCode};
use abp_mcp::{
    Agreement, Change, ClientCapabilities, ClientHandle, McpAnswer, McpFuture, McpSession, Method,
    ProtocolVersion, ServedCall, ServerCapabilities, ServerFlag, SubscriptionFilter, Watch,
};
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;

use crate::{ControlPlane, Principal};

/// How a model uses it best.
pub const ABP_INSTRUCTIONS: &str = "Runs agents on tasks. abp_run starts one and returns its id; \
abp_status tells how it is, the resources abp://runs/{id}/events, diff and receipt what came of it. \
Changes to files are proposals until a person applies them with `abp apply`.";
/// How long runs may take to end when the server does.
const GRACE: Duration = Duration::from_secs(10);
/// How many changes may wait for somebody who is told of them.
const CHANGES: usize = 256;

/// The backplane as an MCP server, for the clients of one principal.
#[derive(Debug)]
pub struct AbpServer {
    pub(super) plane: ControlPlane,
    pub(super) principal: Principal,
    pub(super) start: RunStart,
    /// Runs work on directories below these; on the first where nothing is said.
    pub(super) roots: Vec<PathBuf>,
    pub(super) changes: broadcast::Sender<Change>,
}

/// The process that carries the runs of a server out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunStart {
    /// This one: nothing else goes on in it, and the runs end with it.
    Here,
    /// Whichever claims them from the queue.
    Queue,
}

/// What a tool gives: a value, or an error that a model can read.
pub(super) type ToolResult = Result<Value, AbpError>;

impl AbpServer {
    /// A server of the local user whose runs work below directories and are carried out by this process.
    ///
    /// # Errors
    /// Fails where one of them is not there.
    pub fn new(plane: ControlPlane, roots: &[PathBuf]) -> Result<Arc<Self>, AbpError> {
        let roots = roots.iter().map(|root| {
            std::fs::canonicalize(root).map_err(|error| {
                let message = format!("{} cannot be worked on", root.display());
                AbpError::new(ErrorCode::ConfigInvalid, message).with_source(error)
            })
        });
        Ok(Arc::new(Self {
            plane,
            principal: Principal::local("mcp client").via("mcp"),
            start: RunStart::Here,
            roots: roots.collect::<Result<_, _>>()?,
            changes: broadcast::channel(CHANGES).0,
        }))
    }

    /// The same server for the clients of a principal. Their runs are queued; they see their own.
    #[must_use]
    pub fn for_principal(&self, principal: Principal) -> Arc<Self> {
        Arc::new(Self {
            plane: self.plane.clone(),
            principal: principal.via("mcp"),
            start: RunStart::Queue,
            roots: self.roots.clone(),
            changes: broadcast::channel(CHANGES).0,
        })
    }

    /// Cancels the runs that go on in this process and waits for their ends.
    pub async fn finish(&self) {
        let runtime = self.plane.runtime();
        let left = runtime.finish(CancelReason::Disconnect, GRACE).await;
        if left > 0 {
            tracing::warn!(target: "abp.mcp", left, "runs did not end in time");
        }
    }

    async fn answer(&self, call: ServedCall, client: ClientHandle) -> McpAnswer {
        let params = call.params.as_deref().unwrap_or("{}");
        let params: Map<String, Value> = match serde_json::from_str(params) {
            Ok(params) => params,
            Err(error) => return McpAnswer::invalid(error.to_string()),
        };
        if params.contains_key("cursor") {
            return McpAnswer::invalid("no list has a second page");
        }
        match call.method {
            Method::ToolsList => result(&json!({ "tools": super::tools::all() })),
            Method::ToolsCall => self.call_tool(&params, &client).await,
            Method::ResourcesList => told(self.list_resources().await),
            Method::ResourceTemplatesList => result(&super::resources::templates()),
            Method::ResourcesRead => self.read_resource(&params).await,
            Method::ResourcesSubscribe | Method::ResourcesUnsubscribe => result(&json!({})),
            other => McpAnswer::internal(format!("{other} is not served")),
        }
    }

    async fn call_tool(&self, params: &Map<String, Value>, client: &ClientHandle) -> McpAnswer {
        let name = params.get("name").and_then(Value::as_str);
        let Some(name) = name else {
            return McpAnswer::invalid("a call needs the name of a tool");
        };
        let empty = Map::new();
        let arguments = match params.get("arguments") {
            None => &empty,
            Some(Value::Object(arguments)) => arguments,
            Some(_) => return McpAnswer::invalid("arguments is not an object"),
        };
        let token = params
            .get("_meta")
            .and_then(|meta| meta.get("progressToken"));
        match self.tool(name, arguments, token, client).await {
            Some(given) => result(&tool_result(given)),
            None => McpAnswer::invalid(format!("there is no tool {name:?}")),
        }
    }
}

impl McpSession for AbpServer {
    fn capabilities<'a>(
        &'a self,
        _client: &'a ClientCapabilities,
        _version: Option<ProtocolVersion>,
    ) -> McpFuture<'a, ServerCapabilities> {
        let flags = [
            ServerFlag::Tools,
            ServerFlag::ResourcesSubscribe,
            ServerFlag::ResourcesListChanged,
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
        // Every change is told; the connection knows who asked for it.
        None
    }
}

/// What a tool gave, for programs and for models. An error is a result too: a model can do better.
fn tool_result(given: ToolResult) -> Value {
    let (value, is_error) = match given {
        Ok(value) => (value, false),
        Err(error) => (json!({ "error": error.to_dto() }), true),
    };
    json!({
        "content": [{ "type": "text", "text": value.to_string() }],
        "structuredContent": value,
        "isError": is_error,
    })
}

fn told(listed: ToolResult) -> McpAnswer {
    match listed {
        Ok(value) => result(&value),
        Err(error) => McpAnswer::internal(error.to_string()),
    }
}

pub(super) fn result(value: &Value) -> McpAnswer {
    McpAnswer::Result(value.to_string())
}
