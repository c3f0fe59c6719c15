//! What the gateway fills in by itself: only where it is allowed, labelled, and never in the place of a
//! client or a server that can do it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abp_mcp::{
    EMULATED, Emulation, Emulations, Era, McpScope, PreparedAnswers, Sample, SampleRequest,
    SampleStop, Sampler, SamplingRules, Standing, SubscribeRules, VersionSpan,
};
use serde_json::{Value, json};

use crate::fleet::{form, sampling};
use crate::gateway::{filling, listen};
use crate::serve::Lines;
use crate::upstreams::{Client, ERAS, Stage, WIRES, has_python};

const EVERY: Duration = Duration::from_millis(200);

/// A model that repeats its name, and what it was asked.
fn model() -> (Sampler, Arc<Mutex<Vec<SampleRequest>>>) {
    let asked: Arc<Mutex<Vec<SampleRequest>>> = Arc::default();
    let log = Arc::clone(&asked);
    let sampler: Sampler = Arc::new(move |request| {
        log.lock().unwrap().push(request.clone());
        Box::pin(async move {
            Ok(Sample {
                text: format!("I am {}", request.model),
                model: request.model,
                stop: SampleStop::EndTurn,
                record: Some("7".to_owned()),
            })
        })
    });
    (sampler, asked)
}

fn everything() -> Emulations {
    Emulations {
        sampling: Some(SamplingRules {
            models: vec!["small-1".to_owned(), "large-1".to_owned()],
            max_tokens: 100,
            max_per_call: 2,
        }),
        roots: Some(vec!["/srv/shared".into()]),
        elicitation: Some(PreparedAnswers {
            everywhere: [("colour".to_owned(), "green".to_owned())].into(),
            ..PreparedAnswers::default()
        }),
        list_changed: Some(EVERY),
        subscribe: Some(SubscribeRules {
            interval: EVERY,
            max_resources: 1,
        }),
    }
}

fn roots() -> Value {
    json!({ "method": "roots/list" })
}

/// Every combination of eras, and over HTTP where a server can ask over it.
fn cells() -> impl Iterator<Item = (Era, Era, &'static str)> {
    let all = ERAS.into_iter().flat_map(|client| {
        ERAS.into_iter()
            .flat_map(move |server| WIRES.map(|wire| (client, server, wire)))
    });
    all.filter(|(_, server, wire)| (*server, *wire) != (Era::Legacy, "http"))
}

#[tokio::test]
async fn questions_are_answered_for_clients_that_cannot_and_labelled() {
    if !has_python() {
        return;
    }
    for (client_era, server_era, wire) in cells() {
        let cell = format!("{client_era:?} {server_era:?} {wire}");
        let mut stage = Stage::new();
        stage.server("one", server_era, wire);
        let (sampler, asked) = model();
        let gateway = stage.emulating(everything(), Some(sampler));
        let scope = McpScope::with_roots(vec!["/srv/run".into()]);
        let mut clients = [
            Client::open(&gateway, client_era, json!({})).await,
            Client::over(
                Lines::open(gateway.session_in(&scope, ""), 8),
                client_era,
                json!({}),
            )
            .await,
        ];
        for (client, root) in clients
            .iter_mut()
            .zip(["file:///srv/shared", "file:///srv/run"])
        {
            let tools = client.tools().await;
            for told in ["with_elicitation", "with_roots", "with_sampling"] {
                assert!(tools.contains(&told.to_owned()), "{cell}: {tools:?}");
            }
            let heard = client
                .questioned("ask", &[roots(), sampling(), form()])
                .await;
            let answers = &heard["structuredContent"];
            assert_eq!(answers["q0"]["roots"][0]["uri"], root, "{cell}: {heard}");
            assert_eq!(answers["q1"]["content"]["text"], "I am small-1", "{cell}");
            assert_eq!(answers["q2"]["content"]["colour"], "green", "{cell}");
            for (answer, name) in [("q0", "roots"), ("q1", "sampling"), ("q2", "elicitation")] {
                assert_eq!(answers[answer]["_meta"][EMULATED]["by"], name, "{cell}");
            }
            let label = json!(["sampling", "roots", "elicitation"]);
            assert_eq!(heard["_meta"][EMULATED], label, "{cell}");
            let plain = client.call("echo", json!({})).await;
            assert_eq!(plain["result"]["_meta"][EMULATED], Value::Null, "{cell}");
            assert_eq!(client.asked, Vec::<Value>::new(), "{cell}");
        }
        assert_eq!(asked.lock().unwrap().len(), 2, "{cell}");
        let negotiation = scope.negotiation().unwrap();
        let emulated: Vec<_> = negotiation
            .outcomes
            .iter()
            .filter_map(|one| match &one.standing {
                Standing::Emulated { by, limits } => {
                    assert!(!limits.is_empty() && one.provenance.emulated.contains_key("one"));
                    Some((*by, one.flag.to_string()))
                }
                _ => None,
            })
            .collect();
        let expected = [
            (Emulation::ListChanged, "server.tools.listChanged"),
            (Emulation::Roots, "client.roots"),
            (Emulation::Sampling, "client.sampling"),
            (Emulation::Elicitation, "client.elicitation"),
            (Emulation::Elicitation, "client.elicitation.form"),
        ];
        assert_eq!(
            emulated,
            expected.map(|(by, flag)| (by, flag.to_owned())),
            "{cell}"
        );
    }
}

/// A server over HTTP with a handshake asks in the stream of the request.
#[tokio::test]
async fn questions_over_http_are_answered_too() {
    for versions in [VersionSpan::LEGACY, VersionSpan::MODERN] {
        for era in ERAS {
            let gateway = filling(listen().await, versions, everything());
            let mut client = Client::open(&gateway, era, json!({})).await;
            let answer = client.call("ask", json!({})).await;
            let asked = &answer["result"]["asked"];
            assert_eq!(
                asked["roots"][0]["uri"], "file:///srv/shared",
                "{era:?}: {answer}"
            );
            assert_eq!(
                answer["result"]["_meta"][EMULATED],
                json!(["roots"]),
                "{era:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_client_that_can_answers_itself() {
    if !has_python() {
        return;
    }
    for (client_era, server_era, wire) in cells() {
        let cell = format!("{client_era:?} {server_era:?} {wire}");
        let mut stage = Stage::new();
        stage.server("one", server_era, wire);
        let (sampler, asked) = model();
        let gateway = stage.emulating(everything(), Some(sampler));
        // All of it, and a part: what the client cannot is filled in beside what it can.
        let all = json!({ "roots": {}, "sampling": {}, "elicitation": {} });
        for (declares, count, own) in [
            (all, 3, "own"),
            (json!({ "elicitation": {} }), 1, "I am small-1"),
        ] {
            let mut client = Client::open(&gateway, client_era, declares).await;
            let heard = client
                .questioned("ask", &[roots(), sampling(), form()])
                .await;
            let answers = &heard["structuredContent"];
            assert_eq!(answers["q1"]["content"]["text"], own, "{cell}: {heard}");
            assert_eq!(answers["q2"]["content"]["colour"], "own", "{cell}");
            assert_eq!(client.asked.len(), count, "{cell}: {:?}", client.asked);
            let label = match count {
                3 => Value::Null,
                _ => json!(["sampling", "roots"]),
            };
            assert_eq!(heard["_meta"][EMULATED], label, "{cell}");
        }
        assert_eq!(asked.lock().unwrap().len(), 1, "{cell}");
    }
}

#[tokio::test]
async fn sampling_follows_wishes_within_limits_or_says_why_not() {
    if !has_python() {
        return;
    }
    let with = |member: &str, value: Value| {
        let mut question = sampling();
        question["params"][member] = value;
        question
    };
    for server_era in ERAS {
        let mut stage = Stage::new();
        stage.server("one", server_era, "lines");
        let (sampler, asked) = model();
        let gateway = stage.emulating(everything(), Some(sampler));
        let mut client = Client::open(&gateway, Era::Legacy, json!({})).await;
        let hints =
            json!({ "hints": [{ "name": "unknown" }, { "name": "large" }], "costPriority": 1 });
        let mut wishes = with("modelPreferences", hints);
        wishes["params"]["systemPrompt"] = json!("be brief");
        wishes["params"]["stopSequences"] = json!(["END"]);
        wishes["params"]["temperature"] = json!(0.5);
        wishes["params"]["includeContext"] = json!("thisServer");
        let heard = client.questioned("ask", &[wishes]).await;
        let answer = &heard["structuredContent"]["q0"];
        assert_eq!(answer["model"], "large-1", "{heard}");
        let ignored = ["includeContext", "modelPreferences priorities"];
        let label = json!({ "by": "sampling", "record": "7", "ignored": ignored });
        assert_eq!(answer["_meta"][EMULATED], label);
        let request = asked.lock().unwrap().pop().unwrap();
        assert_eq!(
            (
                request.system.as_deref(),
                request.max_tokens,
                request.temperature
            ),
            (Some("be brief"), 100, Some(0.5))
        );
        assert_eq!(request.stop_sequences, ["END"]);

        let audio = json!([{ "role": "user", "content": { "type": "audio", "data": "", "mimeType": "a/b" } }]);
        let refused = [
            (vec![with("tools", json!([]))], -32602, "sampling.tools"),
            (vec![with("messages", audio)], -32602, "audio"),
            (vec![with("maxTokens", json!(0))], -32602, "maxTokens"),
            (vec![sampling(), sampling(), sampling()], -1, "2 times"),
        ];
        for (questions, code, why) in refused {
            let last = format!("q{}", questions.len() - 1);
            let heard = client.questioned("ask", &questions).await;
            let (error, code) = match server_era {
                Era::Legacy => (&heard["structuredContent"][&last], code),
                Era::Modern => (&heard, -32603),
            };
            assert_eq!(error["code"], code, "{server_era:?} {why}: {heard}");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(why), "{server_era:?}: {message}");
        }
        // Nobody but a person goes to an address.
        let params = json!({ "mode": "url", "message": "go", "url": "https://a.example", "elicitationId": "1" });
        let url = json!({ "method": "elicitation/create", "params": params });
        let heard = client.questioned("ask", &[url]).await;
        let code = match server_era {
            Era::Legacy => &heard["structuredContent"]["q0"]["code"],
            Era::Modern => &heard["code"],
        };
        let expected = match server_era {
            Era::Legacy => -32602,
            Era::Modern => -32603,
        };
        assert_eq!(*code, expected, "{heard}");
    }
}

/// What was filled in before a client was asked counts when it comes back.
#[tokio::test]
async fn several_rounds_are_one_request() {
    if !has_python() {
        return;
    }
    for (client_era, server_era, wire) in cells() {
        let cell = format!("{client_era:?} {server_era:?} {wire}");
        let mut stage = Stage::new();
        stage.server("one", server_era, wire);
        let gateway = stage.emulating(everything(), Some(model().0));
        let mut client = Client::open(&gateway, client_era, json!({ "elicitation": {} })).await;
        let mut rounds = vec![
            vec![sampling()],
            vec![form()],
            vec![sampling()],
            vec![form()],
        ];
        let answer = client.call("ask", json!({ "rounds": rounds })).await;
        let heard = &answer["result"]["structuredContent"];
        assert_eq!(
            heard["q2"]["content"]["text"], "I am small-1",
            "{cell}: {answer}"
        );
        assert_eq!(heard["q3"]["content"]["colour"], "own", "{cell}");
        assert_eq!(
            answer["result"]["_meta"][EMULATED],
            json!(["sampling"]),
            "{cell}"
        );
        // Two are all it may ask a model, however often the client came back.
        rounds.push(vec![sampling()]);
        let answer = client.call("ask", json!({ "rounds": rounds })).await;
        let refused = match server_era {
            Era::Legacy => &answer["result"]["structuredContent"]["q4"],
            Era::Modern => &answer["error"],
        };
        let message = refused["message"].as_str().unwrap_or_default();
        assert!(message.contains("2 times"), "{cell}: {answer}");
    }
}

/// Nobody waits for a model when the request it was asked for is cancelled.
#[tokio::test]
async fn sampling_ends_with_its_request() {
    if !has_python() {
        return;
    }
    struct Ends(Arc<AtomicUsize>);
    impl Drop for Ends {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    for server_era in ERAS {
        let mut stage = Stage::new();
        stage.server("one", server_era, "lines");
        let (began, ended) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (begins, ends) = (Arc::clone(&began), Arc::clone(&ended));
        let sampler: Sampler = Arc::new(move |_| {
            begins.fetch_add(1, Ordering::SeqCst);
            let ends = Ends(Arc::clone(&ends));
            Box::pin(async move {
                let _ends = ends;
                std::future::pending().await
            })
        });
        let gateway = stage.emulating(everything(), Some(sampler));
        let mut client = Client::open(&gateway, Era::Legacy, json!({})).await;
        let params = json!({ "name": "ask", "arguments": { "questions": [sampling()] } });
        let id = client.send("tools/call", params).await;
        let reached = async |count: &AtomicUsize| {
            for _ in 0..500 {
                if count.load(Ordering::SeqCst) == 1 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            panic!("{server_era:?}");
        };
        reached(&began).await;
        client.cancel(id).await;
        reached(&ended).await;
    }
}

/// What is offered is what servers have, and what is filled in where that is allowed.
#[tokio::test]
async fn servers_are_shown_with_more_only_where_that_is_allowed() {
    if !has_python() {
        return;
    }
    let has = json!({
        "capabilities": { "tools": {}, "resources": {} },
        "resources": { "doc://a": "a" },
    });
    let all = json!({
        "resources": { "subscribe": true, "listChanged": true },
        "tools": { "listChanged": true },
    });
    for (emulations, offered) in [
        (Emulations::default(), has["capabilities"].clone()),
        (everything(), all),
    ] {
        let mut stage = Stage::new();
        stage.server_with("one", Era::Legacy, "lines", "", &has);
        let gateway = stage.emulating(emulations.clone(), None);
        let is_off = emulations == Emulations::default();
        for era in ERAS {
            let mut client = Client::open(&gateway, era, json!({})).await;
            assert_eq!(client.offered().await, offered, "{era:?}");
            if era == Era::Legacy {
                let subscribed = client
                    .ask("resources/subscribe", json!({ "uri": "doc://a" }))
                    .await;
                let code = subscribed["error"]["code"].as_i64();
                assert_eq!(code, is_off.then_some(-32601), "{subscribed}");
            }
        }
    }
}

#[tokio::test]
async fn changes_are_found_by_looking_while_somebody_wants_to_know() {
    if !has_python() {
        return;
    }
    for (client_era, server_era, wire) in cells() {
        let cell = format!("{client_era:?} {server_era:?} {wire}");
        let mut stage = Stage::new();
        let has = |tool: &str, words: &str| {
            json!({
                "capabilities": { "tools": {}, "resources": {} },
                "tools": { tool: "" },
                "resources": { "doc://a": words, "doc://b": "b" },
            })
        };
        stage.server_with("one", server_era, wire, "", &has("first", "1"));
        let gateway = stage.emulating(everything(), None);
        let mut client = Client::open(&gateway, client_era, json!({})).await;
        let lists = |seen: &serde_json::Map<String, Value>| seen["tools/list"].as_u64().unwrap();
        client.tools().await;
        if client_era == Era::Modern {
            // Nobody listens yet, so nothing is looked at.
            let before = lists(&client.seen("seen").await);
            tokio::time::sleep(EVERY * 3).await;
            assert_eq!(lists(&client.seen("seen").await), before, "{cell}");
        }
        let filter = json!({ "toolsListChanged": true, "resourceSubscriptions": ["doc://a"] });
        client.listen(filter).await;
        // The first look is at what there was.
        tokio::time::sleep(EVERY * 3).await;
        stage.set("one", &has("first", "2"));
        let updated = client.told("notifications/resources/updated").await;
        assert_eq!(updated["params"]["uri"], "doc://a", "{cell}");
        let spurious = |one: &Value| one["method"] == "notifications/tools/list_changed";
        assert!(
            !client.notices.iter().any(spurious),
            "{cell}: {:?}",
            client.notices
        );
        stage.set("one", &has("second", "2"));
        client.told("notifications/tools/list_changed").await;
        assert!(
            client.tools().await.contains(&"second".to_owned()),
            "{cell}"
        );

        // There is room for one.
        if client_era == Era::Legacy {
            let more = client
                .ask("resources/subscribe", json!({ "uri": "doc://b" }))
                .await;
            assert_eq!(more["error"]["code"], -32603, "{cell}: {more}");
            let left = client
                .ask("resources/unsubscribe", json!({ "uri": "doc://a" }))
                .await;
            assert_eq!(left["result"], json!({}), "{cell}");
            let more = client
                .ask("resources/subscribe", json!({ "uri": "doc://b" }))
                .await;
            assert_eq!(
                more["result"]["_meta"][EMULATED],
                json!(["subscribe"]),
                "{cell}"
            );
        }
    }
}
