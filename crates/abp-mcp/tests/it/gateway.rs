//! The gateway in front of servers over HTTP, for clients and servers of both eras.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use abp_glob::GlobList;
use abp_mcp::{
    ClientTimeouts, Emulations, GatewayServer, HttpServer, Implementation, McpGateway,
    ProtocolVersion, ServerAddress, VersionSpan,
};
use http_body_util::BodyExt as _;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::serve::{Lines, call, endpoint, initialize, modern};

/// A server at a port of this machine.
pub(crate) async fn listen() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let endpoint = Arc::new(endpoint().0);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let endpoint = Arc::clone(&endpoint);
            let serve = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let endpoint = Arc::clone(&endpoint);
                async move {
                    let (parts, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes();
                    Ok::<_, Infallible>(endpoint.handle(parts, body, "").await)
                }
            });
            let serving = hyper::server::conn::http1::Builder::new();
            tokio::spawn(serving.serve_connection(TokioIo::new(stream), serve));
        }
    });
    url
}

fn behind(url: String, versions: VersionSpan) -> McpGateway {
    filling(url, versions, Emulations::default())
}

/// A gateway in front of a server over HTTP, which fills in what is allowed.
pub(crate) fn filling(url: String, versions: VersionSpan, emulations: Emulations) -> McpGateway {
    let all = GlobList::new(&["*".to_owned()]).unwrap();
    let none = GlobList::new(&[]).unwrap();
    let versions = ProtocolVersion::ALL
        .into_iter()
        .filter(|one| versions.contains(*one));
    let server = GatewayServer {
        name: "bench".to_owned(),
        address: ServerAddress::Http(HttpServer { url, bearer: None }),
        versions: versions.collect(),
        timeouts: ClientTimeouts::USUAL,
        open_timeout: Duration::from_secs(5),
        allow_tools: all,
        deny_tools: none,
    };
    let info = Implementation::new("gateway", "1");
    McpGateway::emulating(vec![server], info, emulations, None)
}

/// The next message that is no notification.
async fn answer(lines: &mut Lines, notices: &mut Vec<Value>) -> Value {
    loop {
        let next = lines.next().await;
        if next.get("id").is_some() {
            return next;
        }
        notices.push(next);
    }
}

#[tokio::test]
async fn servers_over_http_serve_clients_of_both_eras() {
    let roots = json!({ "roots": [{ "uri": "file:///here" }] });
    for versions in [VersionSpan::LEGACY, VersionSpan::MODERN, VersionSpan::ALL] {
        let gateway = behind(listen().await, versions);
        let mut notices = Vec::new();

        // With a handshake.
        let mut lines = Lines::open(gateway.session(""), 8);
        lines.send(&initialize(1)).await;
        let opened = answer(&mut lines, &mut notices).await;
        assert_eq!(
            opened["result"]["capabilities"],
            json!({ "tools": { "listChanged": true } })
        );
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        lines.send(&ready).await;
        let list = json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/list" });
        lines.send(&list).await;
        let listed = answer(&mut lines, &mut notices).await;
        let listed = listed["result"]["tools"].as_array().map(Vec::len);
        assert_eq!(listed, Some(3), "{versions:?}");
        lines.send(&call(2, "progress")).await;
        let done = answer(&mut lines, &mut notices).await;
        assert_eq!(done["result"]["content"], json!([]), "{versions:?}: {done}");
        lines.send(&call(3, "ask")).await;
        let asked = answer(&mut lines, &mut notices).await;
        assert_eq!(asked["method"], "roots/list", "{versions:?}: {asked}");
        let given = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": roots });
        lines.send(&given).await;
        let done = answer(&mut lines, &mut notices).await;
        assert_eq!(done["result"]["asked"], roots, "{versions:?}");

        // Without one.
        let mut lines = Lines::open(gateway.session(""), 8);
        let params = json!({ "name": "ask" });
        lines.send(&modern(1, "tools/call", params.clone())).await;
        let asked = answer(&mut lines, &mut notices).await;
        let asked = &asked["result"];
        assert_eq!(
            asked["resultType"], "input_required",
            "{versions:?}: {asked}"
        );
        let mut again = params;
        for (key, request) in asked["inputRequests"].as_object().unwrap() {
            assert_eq!(request["method"], "roots/list");
            again["inputResponses"][key] = roots.clone();
        }
        again["requestState"] = asked["requestState"].clone();
        let mut forged = again.clone();
        forged["name"] = json!("wait");
        lines.send(&modern(2, "tools/call", forged)).await;
        let refused = answer(&mut lines, &mut notices).await;
        assert_eq!(refused["error"]["code"], -32602, "{versions:?}");
        lines.send(&modern(3, "tools/call", again)).await;
        let done = answer(&mut lines, &mut notices).await;
        assert_eq!(done["result"]["asked"], roots, "{versions:?}: {done}");
        gateway.close();
    }
}

#[tokio::test]
async fn nobody_at_the_address_is_an_empty_server() {
    let gateway = behind("http://127.0.0.1:1/mcp".to_owned(), VersionSpan::ALL);
    let mut lines = Lines::open(gateway.session(""), 8);
    lines.send(&initialize(1)).await;
    let opened = lines.next().await;
    assert_eq!(opened["result"]["capabilities"], json!({}));
    lines.send(&call(2, "anything")).await;
    assert_eq!(lines.next().await["error"]["code"], -32601);
}
