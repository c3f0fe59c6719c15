//! Reading and writing messages.

use abp_json::Limits;
use abp_mcp::message::{self, Batches, Incoming, Malformed, parse, read};
use abp_mcp::{Era, MESSAGE_LIMITS, Message, ProtocolVersion, RequestId, code, code_in};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::support::json_fixture;

/// A message in one line, to compare it.
fn shown(message: Result<Message<'_>, Malformed>) -> String {
    let params = |params: Option<abp_json::View<'_>>| match params {
        Some(params) => format!(" {}", params.raw()),
        None => String::new(),
    };
    let id = |id: Option<RequestId>| id.map_or("?".to_owned(), |id| id.to_json());
    match message {
        Ok(Message::Request(one)) => {
            format!("request {} {}{}", one.id, one.method, params(one.params))
        }
        Ok(Message::Notification(one)) => {
            format!("notification {}{}", one.method, params(one.params))
        }
        Ok(Message::Response(one)) => match one.outcome {
            Ok(result) => format!("result {} {}", id(one.id), result.raw()),
            Err(error) => {
                let data = params(error.data);
                format!(
                    "error {} {} {}{data}",
                    id(one.id),
                    error.code,
                    error.message
                )
            }
        },
        Err(malformed) => malformed.refusal.code(Era::Legacy).to_string(),
    }
}

fn read_text(text: &[u8], batches: Batches) -> Result<String, Malformed> {
    let tape = parse(text, &MESSAGE_LIMITS)?;
    Ok(match read(&tape, batches)? {
        Incoming::Single(message) => shown(Ok(message)),
        Incoming::Batch(messages) => messages
            .into_iter()
            .map(shown)
            .collect::<Vec<_>>()
            .join("; "),
    })
}

#[test]
fn texts_are_read_or_refused_exactly() {
    for case in json_fixture("messages.json") {
        let text = case["text"].as_str().unwrap();
        let batches = match case["batches"] == true {
            true => Batches::Read,
            false => Batches::Refused,
        };
        let version = case["version"].as_str().and_then(ProtocolVersion::parse);
        match read_text(text.as_bytes(), batches) {
            Ok(message) => assert_eq!(case["read"], message, "{text}"),
            Err(malformed) => {
                let answer = malformed.answer(version);
                let answer = answer.map(|json| serde_json::from_str::<Value>(&json).unwrap());
                let mut expected = case["answer"].clone();
                if let Some(error) = expected.as_object_mut() {
                    error.insert("jsonrpc".to_owned(), json!("2.0"));
                }
                assert_eq!(answer.unwrap_or_default(), expected, "{text}");
                assert_eq!(case["read"], Value::Null, "{text}");
            }
        }
    }
}

#[test]
fn limits_are_refused_by_name() {
    let small = Limits {
        max_bytes: 64,
        max_depth: 4,
        max_nodes: 8,
    };
    for text in [
        "[[[[[1]]]]]",
        "[1,2,3,4,5,6,7,8,9]",
        &format!("{:80}", "{}"),
    ] {
        let malformed = parse(text.as_bytes(), &small).unwrap_err();
        assert_eq!(malformed.refusal.code(Era::Modern), code::INVALID_REQUEST);
        assert_eq!(malformed.refusal.http_status(Era::Modern), 413, "{text}");
    }
}

#[test]
fn what_is_written_is_read_as_it_was() {
    let params = "{\n \"a\" :\t1e5,\r\n\"b\":\"x\\ny\"}";
    let one_line = "{  \"a\" :\t1e5,  \"b\":\"x\\ny\"}";
    let id = RequestId::Text("a\"\n\u{1F602}".to_owned());
    let request = message::request(&id, "tools/call", Some(params));
    assert!(!request.contains(['\n', '\r']), "{request}");
    let shown = read_text(request.as_bytes(), Batches::Refused);
    assert_eq!(shown, Ok(format!("request {id} tools/call {one_line}")));
    let result = message::result(&id, params);
    let shown = read_text(result.as_bytes(), Batches::Refused);
    assert_eq!(shown, Ok(format!("result {id} {one_line}")));
    let error = message::error(Some(&id), None, -1, "no\n\u{7}", Some("[1.0]"));
    let shown = read_text(error.as_bytes(), Batches::Refused);
    assert_eq!(shown, Ok(format!("error {id} -1 no\n\u{7} [1.0]")));
}

#[test]
fn errors_of_others_are_told_in_codes_of_the_version() {
    use ProtocolVersion::{V2025_06_18, V2025_11_25, V2026_07_28};
    for (version, from, to) in [
        (V2025_11_25, -32002, -32002),
        (V2026_07_28, -32002, -32602),
        (V2025_11_25, -32042, -32042),
        (V2025_06_18, -32042, -32603),
        (V2026_07_28, -32042, -32603),
        (V2025_11_25, -32020, -32600),
        (V2025_11_25, -32021, -32601),
        (V2025_11_25, -32022, -32602),
        (V2026_07_28, -32020, -32020),
        (V2026_07_28, -32021, -32021),
        (V2026_07_28, -32022, -32022),
        (V2026_07_28, -32023, -32603),
        (V2026_07_28, -32099, -32603),
        (V2026_07_28, -32100, -32100),
        (V2026_07_28, -32019, -32019),
        (V2025_11_25, -32050, -32050),
        (V2026_07_28, -32601, -32601),
        (V2025_06_18, 4711, 4711),
    ] {
        assert_eq!(code_in(version, from), to, "{from} in {version}");
    }
}

/// What the rules of JSON-RPC and of the protocol say of a text that is one JSON value: the code it is
/// refused with, or 0.
fn expected_code(value: &Value) -> i64 {
    let Value::Object(members) = value else {
        return code::INVALID_REQUEST;
    };
    let is_id = |id: &Value| id.is_string() || id.is_i64() || id.is_u64();
    let (id, method) = (members.get("id"), members.get("method"));
    let answers = ["result", "error"].map(|key| members.get(key));
    if members.get("jsonrpc") != Some(&json!("2.0")) {
        return code::INVALID_REQUEST;
    }
    match (method, answers) {
        (Some(Value::String(_)), [None, None]) => {
            let params = members.get("params").unwrap_or(&Value::Null);
            if !params.is_object() && !params.is_null() {
                code::INVALID_PARAMS
            } else if id.is_none_or(is_id) {
                0
            } else {
                code::INVALID_REQUEST
            }
        }
        (None, [Some(Value::Object(_)), None]) if id.is_some_and(is_id) => 0,
        (None, [None, Some(error)]) if error["code"].is_i64() && error["message"].is_string() => 0,
        _ => code::INVALID_REQUEST,
    }
}

/// Values that are nearly messages.
fn nearly_message() -> impl Strategy<Value = Value> {
    let value = prop_oneof![
        Just(json!("2.0")),
        Just(json!("1.0")),
        Just(json!("tools/call")),
        Just(json!(7)),
        Just(json!(-1)),
        Just(json!(1.5)),
        Just(Value::Null),
        Just(json!([])),
        Just(json!({})),
        Just(json!({"code": -3, "message": "m"})),
        Just(json!({"code": "x", "message": "m"})),
    ];
    let keys = [
        "jsonrpc", "id", "method", "params", "result", "error", "other",
    ];
    let member = (prop::sample::select(keys.to_vec()), value);
    let members = prop::collection::vec(member, 0..7).prop_map(|members| {
        let mut object: Map<_, _> = members
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        // Most are of the right version, or nothing else would be looked at.
        if object.len() % 4 != 3 {
            object.insert("jsonrpc".to_owned(), json!("2.0"));
        }
        Value::Object(object)
    });
    prop_oneof![8 => members, 1 => Just(json!([])), 1 => Just(json!("x"))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn near_messages_get_the_code_of_the_rules(value in nearly_message()) {
        let text = value.to_string();
        let found = read_text(text.as_bytes(), Batches::Refused);
        let code = found.as_ref().err().map_or(0, |one| one.refusal.code(Era::Legacy));
        prop_assert_eq!(code, expected_code(&value), "{}", text);
        let Err(malformed) = found else { return Ok(()) };
        let is_answer = value.get("method").is_none()
            && (value.get("result").is_some() || value.get("error").is_some());
        let answer = malformed.answer(None);
        prop_assert_eq!(answer.is_none(), is_answer || is_notification(&value), "{}", text);
        let Some(answer) = answer else { return Ok(()) };
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let id = value.get("id").filter(|id| id.is_string() || id.is_i64());
        prop_assert_eq!(answer.get("id"), id, "{}", text);
        prop_assert_eq!(&answer["error"]["code"], &json!(code));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in any::<Vec<u8>>(), in_quotes in any::<String>()) {
        let texts = [bytes, format!("{{\"method\":\"{in_quotes}\"}}").into_bytes()];
        for text in texts {
            let Err(malformed) = read_text(&text, Batches::Read) else { continue };
            let code = malformed.refusal.code(Era::Modern);
            let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(&text).is_ok();
            // A lone surrogate is JSON for us and not for everybody.
            prop_assert!(code == code::PARSE_ERROR || is_json || in_quotes.contains("\\u"));
            prop_assert!(code != code::PARSE_ERROR || !is_json);
            prop_assert!(malformed.answer(None).is_some());
        }
    }
}

/// Only parameters of the wrong kind make a notification malformed.
fn is_notification(value: &Value) -> bool {
    value["jsonrpc"] == "2.0"
        && value.get("id").is_none()
        && value["method"].is_string()
        && value.get("result").is_none()
        && value.get("error").is_none()
}
