//! Answers of Responses that are kept, by their vendor or by the gateway.

use std::io::Read as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use abp_dialect::Dialect;
use abp_gateway_http::ServerOptions;
use abp_testkit::{FakeVendor, Reply as Vendor, Script, fixture};
use abp_translate::StreamWatch;

use crate::lab::{KEY, Lab, Reply, upstream};

const PATH: &str = "/v1/responses";

/// Asks for a stream and reads it until it has told of its end. The connection stays open.
fn read_to_the_end_of_the_answer(lab: &Lab) -> (String, TcpStream) {
    let mut connection = lab.open(KEY, Dialect::Codex, true);
    let (mut read, mut part) = (Vec::new(), [0_u8; 4096]);
    loop {
        let count = connection.read(&mut part).expect("more of the answer");
        assert_ne!(count, 0, "{}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&part[..count]);
        let mut watch = StreamWatch::new(Dialect::Codex).expect("a codec");
        watch.push(&Reply::parse(&read).body);
        if watch.summary().complete {
            let id = watch.summary().id.clone();
            return (id.expect("an id"), connection);
        }
    }
}

/// A caller can go on from a streamed answer once it has seen its end, though the vendor has not hung up.
#[test]
fn a_streamed_answer_can_be_gone_on_from_at_once() {
    for target in [Dialect::Codex, Dialect::Claude, Dialect::OpenAi] {
        let stream = fixture(&format!("{target}/stream_text.sse")).expect("a stream");
        let length = stream.len();
        let whole = Vendor::fixture(&format!("{target}/response_text.json")).expect("an answer");
        let script = Script::InOrder(vec![Vendor::events(stream).stall_at(length), whole]);
        let vendor = FakeVendor::start(script).expect("a vendor");
        let lab = Lab::start(&[("up", upstream(target, &vendor))]);
        let (id, connection) = read_to_the_end_of_the_answer(&lab);
        let next = format!(r#"{{"model":"m","input":"And then?","previous_response_id":"{id}"}}"#);
        let reply = lab.post(PATH, &next);
        drop(connection);
        assert_eq!(reply.status, 200, "{target}: {}", reply.text());
        let sent = vendor.requests()[1].body.clone();
        let sent = String::from_utf8(sent.to_vec()).expect("text");
        if target == Dialect::Codex {
            assert_eq!(sent, next, "the vendor keeps its own answers");
        } else {
            assert!(!sent.contains("previous_response_id"), "{target}: {sent}");
            let places = ["Hello", "And then?"].map(|words| sent.find(words));
            assert!(
                places[0].is_some() && places[0] < places[1],
                "{target}: {sent}"
            );
        }
    }
}

/// What an answer of ours was an answer to is listed as the vendor would list it.
#[test]
fn the_input_of_a_kept_answer_is_listed() {
    let first = fixture("claude/response_text.json").expect("an answer");
    let first = String::from_utf8(first).expect("text");
    let second = first.replace("msg_1", "msg_2");
    let script = Script::InOrder([first, second].map(Vendor::json).into());
    let vendor = FakeVendor::start(script).expect("a vendor");
    let lab = Lab::start(&[("up", upstream(Dialect::Claude, &vendor))]);
    let first = lab.ask(Dialect::Codex, "m", false).json();
    let id = first["id"].as_str().expect("an id");
    let next = format!(r#"{{"model":"m","input":"And then?","previous_response_id":"{id}"}}"#);
    let second = lab.post(PATH, &next).json();
    let id = second["id"].as_str().expect("an id");
    let listed = lab
        .get(&format!("{PATH}/{id}/input_items?order=asc"))
        .json();
    let items = listed["data"].as_array().expect("items").iter();
    let found: Vec<_> = items
        .map(|item| (item["role"].as_str(), item["content"][0]["type"].as_str()))
        .collect();
    let expected = [
        (Some("user"), Some("input_text")),
        (Some("assistant"), Some("output_text")),
        (Some("user"), Some("input_text")),
    ];
    assert_eq!(found, expected, "{listed}");
}

/// Nobody but the vendor that keeps an answer can go on from it, however the traffic is shared.
#[test]
fn an_answer_is_gone_on_from_where_it_is_kept() {
    let answer = |id: &str| {
        let answer = fixture("codex/response_text.json").expect("an answer");
        let answer = String::from_utf8(answer).expect("text");
        FakeVendor::start(Vendor::json(answer.replace("resp_1", id))).expect("a vendor")
    };
    let vendors = [answer("resp_a"), answer("resp_b")];
    let [a, b] = [0, 1].map(|at| upstream(Dialect::Codex, &vendors[at]));
    let lab = Lab::start(&[("a", a), ("b", b)]);
    let first = lab.ask(Dialect::Codex, "m", false);
    let home = first.header("x-abp-backend").map(str::to_owned);
    let id = first.json()["id"].as_str().expect("an id").to_owned();
    let next = format!(r#"{{"model":"m","input":"And then?","previous_response_id":"{id}"}}"#);
    for _ in 0..16 {
        let reply = lab.post(PATH, &next);
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(reply.header("x-abp-backend"), home.as_deref());
    }
}

/// A vendor that keeps its answers has the whole conversation, under whichever name its model was asked.
#[test]
fn an_answer_of_a_renamed_model_is_gone_on_from_at_its_vendor() {
    let answer = fixture("codex/response_text.json").expect("an answer");
    let answer = String::from_utf8(answer).expect("text");
    let id = serde_json::from_str::<serde_json::Value>(&answer).expect("JSON")["id"].clone();
    let id = id.as_str().expect("an id").to_owned();
    let next = |number: usize| answer.replace(&id, &format!("resp_{number}"));
    let script = Script::InOrder((1..=3).map(|number| Vendor::json(next(number))).collect());
    let vendor = FakeVendor::start(script).expect("a vendor");
    let mut up = upstream(Dialect::Codex, &vendor);
    up.models = vec!["real".to_owned()];
    up.aliases = [("fast".to_owned(), "real".to_owned())].into();
    let lab = Lab::start(&[("up", up)]);
    let asks = [
        r#"{"model":"real","input":"one"}"#,
        r#"{"model":"fast","input":"two","previous_response_id":"resp_1"}"#,
        r#"{"model":"fast","input":"three","previous_response_id":"resp_2"}"#,
    ];
    for ask in asks {
        let reply = lab.post(PATH, ask);
        assert_eq!(reply.status, 200, "{ask}: {}", reply.text());
    }
    let sent = vendor.requests().remove(2).body;
    let sent: serde_json::Value = serde_json::from_slice(&sent).expect("JSON");
    assert_eq!(sent["previous_response_id"], "resp_2", "{sent}");
    assert_eq!(sent["input"], "three", "{sent}");
    assert_eq!(sent["model"], "real", "{sent}");
}

/// What is kept is not kept for ever.
#[test]
fn answers_are_forgotten_after_their_time() {
    let vendor = Vendor::fixture("claude/response_text.json").expect("an answer");
    let vendor = FakeVendor::start(vendor).expect("a vendor");
    let up = upstream(Dialect::Claude, &vendor);
    let keeping = |keep: Option<Duration>| {
        Lab::start_with(&[("up", up.clone())], |config, options| {
            config.server.keep_days = 7;
            let week = ServerOptions::from_config(config, None).keep;
            assert_eq!(week, Duration::from_secs(7 * 86_400));
            options.keep = keep.unwrap_or(week);
        })
    };
    let labs = [None, Some(Duration::from_millis(500))].map(keeping);
    let places = labs.each_ref().map(|lab| {
        let made = lab.ask(Dialect::Codex, "m", false).json();
        let place = format!("{PATH}/{}", made["id"].as_str().expect("an id"));
        assert_eq!(lab.get(&place).status, 200);
        place
    });
    let deadline = Instant::now() + Duration::from_secs(10);
    while labs[1].get(&places[1]).status == 200 {
        assert!(Instant::now() < deadline, "it is kept");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(labs[0].get(&places[0]).status, 200, "a week is not over");
}
