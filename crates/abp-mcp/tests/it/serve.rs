//! Serving clients: over lines and over HTTP, in both eras.

use std::sync::Arc;
use std::time::Duration;

use abp_mcp::{
    Agreement, Change, ClientCapabilities, ClientHandle, ConnectionOptions, Era, HttpOptions,
    Implementation, McpAnswer, McpBody, McpConnection, McpFuture, McpHttp, McpSession, Method,
    Offer, Profile, ProtocolVersion, ServedCall, ServerCapabilities, ServerFlag, StateKey,
    SubscriptionFilter, Watch, serve_lines,
};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::{broadcast, mpsc};

/// A server with tools that do what their names say.
pub(crate) struct Bench {
    changes: broadcast::Sender<Change>,
    /// Told when a call of `wait` is dropped before its end.
    dropped: mpsc::UnboundedSender<()>,
}

struct Tell(mpsc::UnboundedSender<()>);

impl Drop for Tell {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

impl Bench {
    pub(crate) fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<()>) {
        let (dropped, was_dropped) = mpsc::unbounded_channel();
        let changes = broadcast::channel(8).0;
        (Arc::new(Self { changes, dropped }), was_dropped)
    }

    async fn answer(&self, call: ServedCall, client: ClientHandle) -> McpAnswer {
        let params: Value = serde_json::from_str(call.params.as_deref().unwrap_or("{}")).unwrap();
        let done = McpAnswer::Result(r#"{"content":[]}"#.to_owned());
        match params["name"].as_str() {
            Some("progress") => {
                let progress = json!({ "progressToken": 1, "progress": 1 });
                client
                    .tell(Method::Progress, &progress.to_string())
                    .unwrap();
                done
            }
            Some("wait") => {
                let _tell = Tell(self.dropped.clone());
                client
                    .tell(Method::Progress, r#"{"progressToken":1,"progress":1}"#)
                    .unwrap();
                std::future::pending().await
            }
            Some("ask") if client.era() == Era::Modern => ask_modern(&params),
            Some("ask") => match client.ask(Method::RootsList, None).await {
                Ok(roots) => McpAnswer::Result(format!("{{\"content\":[],\"asked\":{roots}}}")),
                Err(error) => McpAnswer::internal(error.to_string()),
            },
            _ if call.method == Method::ToolsList => {
                let tool = |name| json!({ "name": name, "inputSchema": { "type": "object" } });
                let tools = ["progress", "wait", "ask"].map(tool);
                McpAnswer::Result(json!({ "tools": tools }).to_string())
            }
            _ => done,
        }
    }
}

fn ask_modern(params: &Value) -> McpAnswer {
    let given = &params["inputResponses"]["roots"];
    let result = match (given.is_null(), params["requestState"].as_str()) {
        (true, _) => json!({
            "resultType": "input_required",
            "inputRequests": { "roots": { "method": "roots/list" } },
        }),
        (false, _) => json!({ "content": [], "asked": given }),
    };
    McpAnswer::Result(result.to_string())
}

impl McpSession for Bench {
    fn capabilities<'a>(
        &'a self,
        _client: &'a ClientCapabilities,
        _version: Option<ProtocolVersion>,
    ) -> McpFuture<'a, ServerCapabilities> {
        Box::pin(async { ServerCapabilities::of([ServerFlag::ToolsListChanged]) })
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

fn offer() -> Offer {
    Offer {
        versions: ProtocolVersion::ALL.to_vec(),
        capabilities: ServerCapabilities::none(),
        info: Implementation::new("bench", "1"),
        instructions: None,
        profile: Profile::Strict,
    }
}

pub(crate) fn initialize(id: u64) -> Value {
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": { "roots": {} },
        "clientInfo": { "name": "test", "version": "1" },
    });
    json!({ "jsonrpc": "2.0", "id": id, "method": "initialize", "params": params })
}

pub(crate) fn modern(id: u64, method: &str, mut params: Value) -> Value {
    let token = params["_meta"]["progressToken"].take();
    params["_meta"] = json!({
        "progressToken": token,
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "roots": {} },
    });
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

pub(crate) fn call(id: u64, tool: &str) -> Value {
    let params = json!({ "name": tool, "_meta": { "progressToken": 1 } });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

/// The other end of a connection over lines.
pub(crate) struct Lines {
    reader: BufReader<tokio::io::ReadHalf<tokio::io::DuplexStream>>,
    writer: tokio::io::WriteHalf<tokio::io::DuplexStream>,
}

impl Lines {
    pub(crate) fn open(session: Arc<dyn McpSession>, max_requests: usize) -> Self {
        Self::of("", session, max_requests)
    }

    pub(crate) fn of(principal: &str, session: Arc<dyn McpSession>, max_requests: usize) -> Self {
        let options = ConnectionOptions {
            principal: principal.to_owned(),
            state_key: StateKey::new([7; 32]),
            request_timeout: Duration::from_secs(5),
            max_requests,
        };
        let connection = McpConnection::new(session, offer(), options);
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(theirs);
        tokio::spawn(serve_lines(connection, reader, writer));
        let (reader, writer) = tokio::io::split(ours);
        Self {
            reader: BufReader::new(reader),
            writer,
        }
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        let line = format!("{message}\n");
        self.writer.write_all(line.as_bytes()).await.unwrap();
    }

    pub(crate) async fn next(&mut self) -> Value {
        let mut line = String::new();
        let reading = self.reader.read_line(&mut line);
        tokio::time::timeout(Duration::from_secs(15), reading)
            .await
            .expect("a message in time")
            .unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

#[tokio::test]
async fn lines_carry_both_directions() {
    let (session, mut dropped) = Bench::new();
    let changes = session.changes.clone();
    let mut lines = Lines::open(session, 2);
    lines.send(&json!("no message")).await;
    assert_eq!(lines.next().await["error"]["code"], -32600);
    lines.send(&initialize(1)).await;
    assert_eq!(
        lines.next().await["result"]["protocolVersion"],
        "2025-11-25"
    );
    lines
        .send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
        .await;
    // What the server asks while it serves.
    lines.send(&call(2, "ask")).await;
    let asked = lines.next().await;
    assert_eq!(asked["method"], "roots/list");
    let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "roots": [] } });
    lines.send(&answer).await;
    assert_eq!(
        lines.next().await["result"]["asked"],
        json!({ "roots": [] })
    );
    // More at once than are served; what is cancelled makes room and is not answered.
    lines.send(&call(3, "wait")).await;
    assert_eq!(lines.next().await["method"], "notifications/progress");
    lines.send(&call(4, "wait")).await;
    lines.next().await;
    lines.send(&call(5, "wait")).await;
    let busy = lines.next().await;
    assert_eq!(
        (&busy["id"], &busy["error"]["code"]),
        (&json!(5), &json!(-32603))
    );
    let cancel = json!({ "requestId": 3 });
    lines
        .send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel }))
        .await;
    dropped.recv().await.expect("the call is dropped");
    changes.send(Change::Tools).unwrap();
    assert_eq!(
        lines.next().await["method"],
        "notifications/tools/list_changed"
    );
    // Without a handshake, on the same connection, only who asks is told.
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    lines.send(&modern(6, "subscriptions/listen", filter)).await;
    assert_eq!(
        lines.next().await["method"],
        "notifications/subscriptions/acknowledged"
    );
    changes.send(Change::Tools).unwrap();
    let told = [lines.next().await, lines.next().await];
    let tagged = told
        .iter()
        .filter(|one| one["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == json!(6));
    assert_eq!(tagged.count(), 1, "{told:?}");
}

pub(crate) fn endpoint() -> (McpHttp, mpsc::UnboundedReceiver<()>) {
    let (session, dropped) = Bench::new();
    let options = HttpOptions {
        max_sessions: 2,
        ..HttpOptions::new(StateKey::new([7; 32]))
    };
    let open = move |_: &str| Arc::clone(&session) as Arc<dyn McpSession>;
    (McpHttp::new(offer(), options, open), dropped)
}

async fn http(
    endpoint: &McpHttp,
    method: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Response<McpBody> {
    let mut request = Request::builder().method(method).uri("/mcp");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    endpoint
        .handle(parts, body.to_owned().into(), "somebody")
        .await
}

async fn json_of(response: Response<McpBody>) -> Value {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap_or(Value::Null)
}

const JSON: (&str, &str) = ("content-type", "application/json");
const MODERN: (&str, &str) = ("mcp-protocol-version", "2026-07-28");

#[tokio::test]
async fn http_keeps_sessions_with_a_handshake() {
    let (endpoint, _dropped) = endpoint();
    let opened = http(&endpoint, "POST", &[JSON], &initialize(1).to_string()).await;
    let id = opened.headers()["mcp-session-id"]
        .to_str()
        .unwrap()
        .to_owned();
    let session = ("mcp-session-id", id.as_str());
    assert_eq!(
        json_of(opened).await["result"]["serverInfo"]["name"],
        "bench"
    );
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }).to_string();
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string();
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str, u16);
    let cases: &[Case<'_>] = &[
        ("POST", &[JSON, session], &ready, 202),
        ("POST", &[JSON, session], &list, 200),
        ("POST", &[JSON], &list, 400),
        ("POST", &[JSON, ("mcp-session-id", "other")], &list, 404),
        (
            "POST",
            &[JSON, session, ("mcp-protocol-version", "1999-01-01")],
            &list,
            400,
        ),
        ("POST", &[session], &list, 415),
        (
            "POST",
            &[JSON, session, ("accept", "application/json")],
            &list,
            406,
        ),
        ("POST", &[JSON, session], "{", 400),
        ("PUT", &[JSON, session], &list, 405),
        ("GET", &[session, ("accept", "text/event-stream")], "", 200),
        ("DELETE", &[session], "", 204),
        ("POST", &[JSON, session], &list, 404),
    ];
    for (method, headers, body, status) in cases {
        let response = http(&endpoint, method, headers, body).await;
        assert_eq!(
            response.status().as_u16(),
            *status,
            "{method} {headers:?} {body}"
        );
    }
    for status in [200, 200, 503] {
        let response = http(&endpoint, "POST", &[JSON], &initialize(1).to_string()).await;
        assert_eq!(response.status().as_u16(), status);
    }
}

#[tokio::test]
async fn http_holds_modern_headers_against_the_body() {
    let (endpoint, mut dropped) = endpoint();
    let list = modern(1, "tools/list", json!({})).to_string();
    let named = |name| [JSON, MODERN, ("mcp-method", name)];
    let wrong = http(&endpoint, "POST", &named("tools/call"), &list).await;
    assert_eq!(wrong.status(), 400);
    assert_eq!(json_of(wrong).await["error"]["code"], -32020);
    let right = json_of(http(&endpoint, "POST", &named("tools/list"), &list).await).await;
    assert_eq!(right["result"]["ttlMs"], 0, "{right}");
    let unknown = modern(2, "prompts/list", json!({})).to_string();
    let refused = http(&endpoint, "POST", &named("prompts/list"), &unknown).await;
    assert_eq!(refused.status(), 404);
    let bare = json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/list" }).to_string();
    let refused = http(&endpoint, "POST", &named("tools/list"), &bare).await;
    assert_eq!(json_of(refused).await["error"]["code"], -32602);
    assert_eq!(http(&endpoint, "GET", &[MODERN], "").await.status(), 405);
    // What comes before the answer makes it a stream, whose end cancels.
    let params = json!({ "name": "wait", "_meta": { "progressToken": 1 } });
    let waiting = modern(4, "tools/call", params).to_string();
    let headers = [
        JSON,
        MODERN,
        ("mcp-method", "tools/call"),
        ("mcp-name", "wait"),
    ];
    let stream = http(&endpoint, "POST", &headers, &waiting).await;
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    assert!(dropped.try_recv().is_err());
    drop(stream);
    dropped.recv().await.expect("the call is dropped");
}
