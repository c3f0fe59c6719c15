//! Many real servers behind one gateway, over pipes and HTTP, for clients of both eras at once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use abp_mcp::{AnyFlag, Era, McpGateway, McpScope, ServerFlag, Standing};
use serde_json::{Value, json};

use crate::serve::Lines;
use crate::upstreams::{Client, ERAS, Stage, has_python};

fn text(answer: &Value) -> &str {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("{answer}"))
}

#[tokio::test]
async fn servers_are_merged_and_it_is_known_whose_everything_is() {
    if !has_python() {
        return;
    }
    let mut stage = Stage::new();
    stage
        .server("old", Era::Legacy, "lines")
        .server("web", Era::Legacy, "http")
        .server_with(
            "new",
            Era::Modern,
            "http",
            "",
            &json!({ "capabilities": { "tools": {}, "resources": {} }, "resources": { "doc://a": "a" } }),
        );
    let gateway = stage.gateway();
    for era in ERAS {
        let scope = McpScope::with_roots(Vec::new());
        let lines = Lines::open(gateway.session_in(&scope, ""), 8);
        let mut client = Client::over(lines, era, json!({})).await;
        let mut expected = vec!["new_only".to_owned(), "old_only".into(), "web_only".into()];
        for tool in ["ask", "echo", "refuse", "seen", "slow"] {
            expected.extend(["new", "old", "web"].map(|server| format!("{server}__{tool}")));
        }
        expected.sort();
        assert_eq!(client.tools().await, expected, "{era:?}");
        for server in ["old", "web", "new"] {
            let tool = format!("{server}__echo");
            let said = client.call(&tool, json!({ "words": "hi" })).await;
            assert_eq!(text(&said), format!("{server} echo: hi"), "{era:?}");
        }
        let read = client
            .ask("resources/read", json!({ "uri": "doc://a" }))
            .await;
        assert_eq!(read["result"]["contents"][0]["text"], "a", "{era:?}");

        let negotiation = scope.negotiation().unwrap();
        let resources = AnyFlag::Server(ServerFlag::Resources);
        let found = negotiation
            .outcomes
            .iter()
            .find(|one| one.flag == resources);
        let found = found.unwrap();
        assert_eq!(found.standing, Standing::Native);
        let native: Vec<_> = found.provenance.native.keys().collect();
        let without: Vec<_> = found.provenance.without.keys().collect();
        assert_eq!(native, ["new"]);
        assert_eq!(without, ["old", "web"]);
    }
}

/// What each of them can see of a client decides what it lists; nothing of that is shared.
#[tokio::test]
async fn clients_at_the_same_time_have_their_own_connections_and_lists() {
    if !has_python() {
        return;
    }
    let mut stage = Stage::new();
    stage.server("one", Era::Legacy, "lines");
    let gateway = stage.gateway();
    let able = || json!({ "sampling": {}, "roots": {} });
    let mut clients = vec![
        (Client::of("ann", &gateway, Era::Modern, json!({})).await, 0),
        (Client::of("ann", &gateway, Era::Modern, json!({})).await, 0),
        (Client::of("ann", &gateway, Era::Modern, able()).await, 1),
        (Client::of("bob", &gateway, Era::Modern, able()).await, 2),
        (Client::of("ann", &gateway, Era::Legacy, able()).await, 3),
        (Client::of("ann", &gateway, Era::Legacy, able()).await, 4),
    ];
    let mut processes: Vec<Option<Value>> = vec![None; 5];
    // Twice: what is kept is looked at the second time.
    for _ in 0..2 {
        for (client, group) in &mut clients {
            let tools = client.tools().await;
            let sees: Vec<_> = tools
                .iter()
                .filter(|tool| tool.starts_with("with_"))
                .collect();
            match group {
                0 => assert_eq!(sees, Vec::<&String>::new()),
                _ => assert_eq!(sees, ["with_roots", "with_sampling"]),
            }
            let process = client.seen("seen").await["process"].clone();
            let known = processes[*group].get_or_insert_with(|| process.clone());
            assert_eq!(*known, process, "of group {group}");
        }
    }
    let processes: BTreeSet<_> = processes.iter().flatten().map(Value::to_string).collect();
    assert_eq!(processes.len(), 5);
}

#[tokio::test]
async fn what_waits_for_one_client_does_not_come_back_to_another() {
    if !has_python() {
        return;
    }
    let mut stage = Stage::new();
    stage.server("one", Era::Legacy, "lines");
    let gateway = stage.gateway();
    let forms = || json!({ "elicitation": {} });
    let mut ann = Client::of("ann", &gateway, Era::Modern, forms()).await;
    let mut bob = Client::of("bob", &gateway, Era::Modern, forms()).await;
    let call = json!({ "name": "ask" });
    let waits = ann.ask("tools/call", call.clone()).await;
    // The same request of somebody else waits as well, and neither takes the other's place.
    assert_eq!(text(&bob.call("ask", json!({})).await), "one heard own");
    let mut again = call;
    again["requestState"] = waits["result"]["requestState"].clone();
    again["inputResponses"]["question"] =
        json!({ "action": "accept", "content": { "colour": "blue" } });
    let stolen = bob.ask("tools/call", again.clone()).await;
    assert_eq!(stolen["error"]["code"], -32602, "{stolen}");
    assert_eq!(text(&ann.ask("tools/call", again).await), "one heard blue");
}

#[tokio::test]
async fn a_server_comes_and_goes() {
    if !has_python() {
        return;
    }
    let mut stage = Stage::new();
    let has = json!({ "capabilities": { "tools": { "listChanged": true } } });
    stage.server_with("stays", Era::Modern, "lines", "", &has);
    stage.server_with("late", Era::Legacy, "lines", "", &Value::Null);
    let gateway = stage.gateway();
    let mut clients = Vec::new();
    for era in ERAS {
        let mut client = Client::open(&gateway, era, json!({})).await;
        assert!(!client.tools().await.contains(&"late_only".to_owned()));
        client.listen(json!({ "toolsListChanged": true })).await;
        clients.push(client);
    }
    let resources = |answer: &Value| answer["result"]["capabilities"]["resources"].clone();
    let discovered = clients[1].ask("server/discover", json!({})).await;
    assert_eq!(resources(&discovered), Value::Null);

    let more = json!({
        "capabilities": { "tools": { "listChanged": true }, "resources": {} },
        "resources": { "doc://late": "here" },
    });
    stage.set("late", &more);
    for client in &mut clients {
        // After a failure it is left alone for a while.
        let since = Instant::now();
        while !client.tools().await.contains(&"late_only".to_owned()) {
            assert!(
                since.elapsed() < Duration::from_secs(20),
                "it does not join"
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        client.told("notifications/tools/list_changed").await;
        client.notices.clear();
    }
    let discovered = clients[1].ask("server/discover", json!({})).await;
    assert_eq!(resources(&discovered), json!({}));

    // Whatever it is asked next ends it.
    stage.set("late", &Value::Null);
    for client in &mut clients {
        client.call("late_only", json!({})).await;
        client.told("notifications/tools/list_changed").await;
        assert!(!client.tools().await.contains(&"late_only".to_owned()));
        let said = client.call("stays_only", json!({ "words": "on" })).await;
        assert_eq!(text(&said), "stays stays_only: on");
    }
    let discovered = clients[1].ask("server/discover", json!({})).await;
    assert_eq!(resources(&discovered), Value::Null);
}

/// Nothing is filled in unless it is allowed: a server learns that it may not ask, and a client is not
/// asked.
#[tokio::test]
async fn what_a_client_did_not_declare_is_refused_exactly() {
    if !has_python() {
        return;
    }
    let questions = [json!({ "method": "roots/list" }), sampling(), form()];
    let required = json!({ "requiredCapabilities": { "sampling": {} } });
    let missing = |code| json!({ "code": code, "message": "no", "data": required });
    let gone =
        json!({ "code": -32002, "message": "no such resource", "data": { "uri": "doc://a" } });
    for (client_era, server_era) in ERAS.iter().flat_map(|one| ERAS.map(|other| (*one, other))) {
        let cell = format!("{server_era:?} for {client_era:?}");
        let mut stage = Stage::new();
        stage.server("one", server_era, "lines");
        let gateway = stage.gateway();
        let mut client = Client::open(&gateway, client_era, json!({})).await;
        for question in &questions {
            let heard = client
                .questioned("ask", std::slice::from_ref(question))
                .await;
            let told = match server_era {
                Era::Legacy => (&heard["structuredContent"]["q0"]["code"], -32601),
                // Its result may not ask for this, so there is none.
                Era::Modern => (&heard["code"], -32603),
            };
            assert_eq!(*told.0, told.1, "{cell}: {heard}");
        }
        assert_eq!(client.asked, Vec::<Value>::new());
        // What a server refuses is told in the words of the client's era.
        let (undeclared, unknown) = match client_era {
            Era::Legacy => (-32601, -32002),
            Era::Modern => (-32021, -32602),
        };
        let said = match server_era {
            Era::Legacy => missing(-32601),
            Era::Modern => missing(-32021),
        };
        for (said, code) in [(said, undeclared), (gone.clone(), unknown)] {
            let refused = client.call("refuse", json!({ "error": said })).await;
            assert_eq!(refused["error"]["code"], code, "{cell}: {refused}");
            assert_eq!(refused["error"]["data"], said["data"], "{cell}");
        }
    }
}

pub(crate) fn sampling() -> Value {
    json!({
        "method": "sampling/createMessage",
        "params": {
            "messages": [{ "role": "user", "content": { "type": "text", "text": "hello" } }],
            "maxTokens": 1000,
        },
    })
}

pub(crate) fn form() -> Value {
    let schema = json!({ "type": "object", "properties": { "colour": { "type": "string" } } });
    let params = json!({ "mode": "form", "message": "which?", "requestedSchema": schema });
    json!({ "method": "elicitation/create", "params": params })
}

#[tokio::test]
async fn a_server_that_misbehaves_harms_no_other_server_and_no_other_client() {
    if !has_python() {
        return;
    }
    for misbehaviour in [
        "silent", "dies", "hangs", "lies", "loops", "floods", "changes",
    ] {
        let [legacy, modern] = ERAS.map(|era| misbehaves(misbehaviour, era));
        tokio::join!(legacy, modern);
    }
}

async fn misbehaves(misbehaviour: &'static str, era: Era) {
    let mut stage = Stage::new();
    let has = json!({ "capabilities": { "tools": {}, "prompts": {}, "resources": {} } });
    stage.server("good", Era::Legacy, "lines");
    stage.server_with("bad", era, "lines", misbehaviour, &has);
    let gateway = Arc::new(stage.gateway());
    let troubled = tokio::spawn(trouble(Arc::clone(&gateway), era));
    // Meanwhile, for others.
    for other in ERAS {
        let mut client = Client::of("other", &gateway, other, json!({})).await;
        let tools = client.tools().await;
        let only = "good_only".to_owned();
        assert!(tools.contains(&only), "{misbehaviour} {era:?}: {tools:?}");
        for words in ["one", "two"] {
            let fine = client.call("good_only", json!({ "words": words })).await;
            assert_eq!(
                text(&fine),
                format!("good good_only: {words}"),
                "{misbehaviour}"
            );
        }
        // It said that it has prompts, and has none.
        let prompts = client.ask("prompts/list", json!({})).await;
        assert_ne!(
            prompts["result"]["prompts"].as_array().map(Vec::len),
            Some(1)
        );
    }
    troubled.await.unwrap();
}

/// A client that has to do with the server that misbehaves.
async fn trouble(gateway: Arc<McpGateway>, era: Era) {
    let mut client = Client::of("troubled", &gateway, era, json!({})).await;
    client.tools().await;
    for tool in ["bad__echo", "echo", "bad__echo"] {
        client.call(tool, json!({})).await;
    }
    assert_eq!(
        text(&client.call("good_only", json!({})).await),
        "good good_only: "
    );
}
