//! Ids and names that a target does not take are rewritten. Two that differ must still differ then: an
//! answer that reaches another call than its own is a wrong answer.

use std::collections::{BTreeMap, BTreeSet};

use abp_core::ir::{IrContentBlock, IrConversation, IrToolInput};
use abp_dialect::{Dialect, DialectRules, TargetProfile};
use abp_json::Limits;
use abp_translate::{Options, codec, read_request, translate_request};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Rounds of calls, each with or without an id. Call and answer carry the same number.
type Rounds = Vec<Vec<Option<String>>>;

/// A request in the dialect that takes any text as an id, or none.
fn request(rounds: &Rounds) -> String {
    let mut contents = vec![json!({ "role": "user", "parts": [{ "text": "go" }] })];
    let mut number = 0;
    for round in rounds {
        let (mut calls, mut answers) = (Vec::new(), Vec::new());
        for id in round {
            let mut call = json!({ "name": "tool", "args": { "n": number } });
            let mut answer = json!({ "name": "tool", "response": { "n": number } });
            if let Some(id) = id {
                call["id"] = json!(id);
                answer["id"] = json!(id);
            }
            calls.push(json!({ "functionCall": call }));
            answers.push(json!({ "functionResponse": answer }));
            number += 1;
        }
        contents.push(json!({ "role": "model", "parts": calls }));
        contents.push(json!({ "role": "user", "parts": answers }));
    }
    contents.push(json!({ "role": "user", "parts": [{ "text": "and now?" }] }));
    let tools = json!([{ "functionDeclarations": [{ "name": "tool", "description": "x" }] }]);
    json!({ "contents": contents, "tools": tools }).to_string()
}

/// The number that a call or an answer carries, wherever its text has it.
fn number(text: &str) -> u64 {
    let (_, rest) = text.split_once("\"n\"").unwrap_or_else(|| panic!("{text}"));
    let digits: String = rest.chars().skip_while(|c| !c.is_ascii_digit()).collect();
    let end = digits
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(digits.len());
    digits[..end].parse().unwrap()
}

type ByNumber = BTreeMap<u64, Option<String>>;

/// The ids of calls and of answers, by their numbers.
fn ids(conversation: &IrConversation) -> (ByNumber, ByNumber) {
    let (mut calls, mut answers) = (BTreeMap::new(), BTreeMap::new());
    let text_of = |content: &IrContentBlock| format!("{content:?}").replace("\\\"", "\"");
    for message in &conversation.messages {
        for block in &message.content {
            match &block.body {
                IrContentBlock::ToolUse { id, input, .. } => {
                    let IrToolInput::Json(json) = input else {
                        panic!()
                    };
                    let id = id.as_ref().map(|id| id.value.clone());
                    calls.insert(number(json.text()), id);
                }
                IrContentBlock::ToolResult {
                    tool_use_id,
                    content,
                    ..
                } => {
                    let text: String = content.iter().map(|one| text_of(&one.body)).collect();
                    let id = tool_use_id.as_ref().map(|id| id.value.clone());
                    answers.insert(number(&text), id);
                }
                _ => {}
            }
        }
    }
    (calls, answers)
}

/// The target's own ids, after checking that none is another call's.
fn checked(rounds: &Rounds, to: Dialect) -> Vec<String> {
    let source = request(rounds);
    let done = translate_request(source.as_bytes(), Dialect::Gemini, to, &Options::default())
        .unwrap_or_else(|error| panic!("{to}: {error}"));
    let read = read_request(done.output.as_bytes(), to, &Limits::default());
    let (calls, answers) = ids(&read.unwrap_or_else(|error| panic!("{to}: {error}")));
    let count: usize = rounds.iter().map(Vec::len).sum();
    assert_eq!(
        (calls.len(), answers.len()),
        (count, count),
        "{to}: {}",
        done.output
    );
    assert_eq!(calls, answers, "{to}: an answer has the id of its call");
    let written: Vec<_> = calls.into_values().flatten().collect();
    assert_eq!(written.len(), count, "{to}: every call has an id");
    let different: BTreeSet<_> = written.iter().collect();
    assert_eq!(different.len(), count, "{to}: {written:#?}");
    let undone: BTreeSet<_> = done.exchange.tool_ids.values().collect();
    assert_eq!(
        undone.len(),
        done.exchange.tool_ids.len(),
        "{to}: undone to one"
    );
    for (made, source) in &done.exchange.tool_ids {
        assert!(written.contains(made) && made != source, "{to}: {made}");
    }
    written
}

const TARGETS: [Dialect; 5] = [
    Dialect::OpenAi,
    Dialect::Claude,
    Dialect::Codex,
    Dialect::Kimi,
    Dialect::Copilot,
];

fn some(ids: &[&str]) -> Vec<Option<String>> {
    ids.iter().map(|id| Some((*id).to_owned())).collect()
}

#[test]
fn ids_that_differ_stay_different() {
    let long = |end: &str| format!("{}{end}", "x".repeat(300));
    let (one, other) = (long("1"), long("2"));
    let cases: [Rounds; 6] = [
        // The same letters after rewriting, or after cutting.
        vec![some(&["a b", "a/b", "a\u{e9}b", "a\nb", "a_b", "a-b"])],
        vec![some(&[&one, &other]), some(&[&long("")])],
        vec![some(&["", " ", "  "])],
        // One id again and again, beside what it could become.
        vec![some(&["x", "x_2"]), some(&["x", "x_3"]), some(&["x"])],
        // None at all, beside what could be made up.
        vec![
            vec![
                None,
                Some("call_0_0".to_owned()),
                Some("call_1_0".to_owned()),
            ],
            vec![None, None, Some("call_1_1".to_owned())],
        ],
        vec![
            some(&["functions.tool:0", "z", "functions.tool:1"]),
            vec![None],
        ],
    ];
    for rounds in &cases {
        for to in TARGETS {
            checked(rounds, to);
        }
    }
}

/// Someone who knows how ids are rewritten puts the result of one into the request as another, before
/// and after it.
#[test]
fn an_id_cannot_be_aimed_at() {
    let hostile: Vec<Option<String>> = [Some("a b"), Some("c/d\u{e9}"), None, Some("r"), Some("r")]
        .map(|id| id.map(str::to_owned))
        .to_vec();
    for to in TARGETS {
        let mut rounds: Rounds = vec![hostile.clone()];
        // What they become may move when something is in the way, so this goes on for a while.
        for _ in 0..4 {
            let made: Vec<_> = checked(&rounds, to).into_iter().map(Some).collect();
            checked(&vec![made.clone(), hostile.clone()], to);
            checked(&vec![hostile.clone(), made.clone()], to);
            rounds = vec![made, hostile.clone()];
        }
    }
}

fn any_id() -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        Just(None),
        "[ab ]{0,3}".prop_map(Some),
        "[ab](_[0-3]){0,2}".prop_map(Some),
        "call_[0-2]_[0-2]".prop_map(Some),
        "functions\\.tool:[0-4]".prop_map(Some),
        "x{38,42}[12]".prop_map(Some),
    ]
}

proptest! {
    #[test]
    fn any_ids_stay_apart(
        rounds in prop::collection::vec(prop::collection::vec(any_id(), 1..4), 1..5),
        to in prop::sample::select(TARGETS.to_vec()),
    ) {
        checked(&rounds, to);
    }
}

/// Tools by their names, in definitions, calls and choices.
fn names_request(defined: &[String], called: &[String], chosen: &str) -> String {
    let defined: Vec<Value> = defined
        .iter()
        .enumerate()
        .map(|(number, name)| json!({ "name": name, "description": number.to_string() }))
        .collect();
    let calls: Vec<Value> = called
        .iter()
        .map(|name| json!({ "functionCall": { "name": name, "args": {} } }))
        .collect();
    let answers: Vec<Value> = called
        .iter()
        .map(|name| json!({ "functionResponse": { "name": name, "response": {} } }))
        .collect();
    json!({
        "contents": [
            { "role": "user", "parts": [{ "text": "go" }] },
            { "role": "model", "parts": calls },
            { "role": "user", "parts": answers },
        ],
        "tools": [{ "functionDeclarations": defined }],
        "toolConfig": { "functionCallingConfig": { "mode": "ANY", "allowedFunctionNames": [chosen] } },
    })
    .to_string()
}

fn rules(to: Dialect) -> DialectRules {
    codec(to).unwrap().rules(&TargetProfile::default())
}

/// An answer to a call that is not in the conversation does not become the answer to another.
#[test]
fn an_answer_cannot_be_aimed_at_another_call() {
    for to in TARGETS {
        let hostile = some(&["a b", "r", "r"]);
        let made = checked(&vec![hostile.clone()], to);
        for id in made {
            if id == "r" {
                continue;
            }
            let mut source: Value = serde_json::from_str(&request(&vec![hostile.clone()])).unwrap();
            let stray = json!({ "functionResponse":
                { "id": id, "name": "tool", "response": { "n": 99 } } });
            source["contents"][2]["parts"]
                .as_array_mut()
                .unwrap()
                .push(stray);
            let source = source.to_string();
            let done =
                translate_request(source.as_bytes(), Dialect::Gemini, to, &Options::default());
            let output = done.unwrap().output;
            let read = read_request(output.as_bytes(), to, &Limits::default()).unwrap();
            let (calls, answers) = ids(&read);
            let stray = answers.get(&99).cloned().flatten();
            assert!(!calls.values().any(|call| *call == stray), "{to}: {output}");
        }
    }
}

/// The same for the names of tools: those that are only called are no free names either.
#[test]
fn a_name_cannot_be_aimed_at() {
    let hostile = ["get weather", "get.weather/now", "1 \u{e9}"].map(str::to_owned);
    for to in TARGETS {
        let translate = |defined: &[String], called: &[String]| {
            let source = names_request(defined, called, &hostile[0]);
            translate_request(source.as_bytes(), Dialect::Gemini, to, &Options::default()).unwrap()
        };
        let made: Vec<String> = translate(&hostile, &[])
            .exchange
            .tool_names
            .into_keys()
            .collect();
        if made.is_empty() {
            assert!(hostile.iter().all(|name| rules(to).tool_name.accepts(name)));
            continue;
        }
        for (defined, called) in [
            ([&made[..], &hostile].concat(), vec![]),
            (hostile.to_vec(), made.clone()),
        ] {
            let done = translate(&defined, &called);
            let undo = &done.exchange.tool_names;
            for name in &made {
                assert!(!undo.contains_key(name), "{to}: {name} is taken: {undo:?}");
            }
            let sources: BTreeSet<_> = undo.values().collect();
            assert_eq!(sources.len(), hostile.len(), "{to}: {undo:?}");
        }
    }
}
