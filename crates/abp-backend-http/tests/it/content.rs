//! Nothing of an answer is dropped without a word.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use abp_core::AgentEventKind;
use abp_dialect::Dialect;
use abp_testkit::{shared_dir, skip};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::harness::{Canned, Ran, backend, confirmed, run_plan};

/// Members that say nothing about the answer itself: its form, places in it, and filling.
const FORM: [&str; 14] = [
    "type",
    "object",
    "status",
    "role",
    "id",
    "item_id",
    "finish_reason",
    "finishReason",
    "stop_reason",
    "obfuscation",
    "phase",
    // Proofs and hidden reasoning come several times, and only the last one counts.
    "encrypted_content",
    "signature",
    "thoughtSignature",
];
/// Places whose texts are pieces of JSON, or are told in other words: as the warning about the limit of
/// tokens, or by the value that replaced them.
const IN_OTHER_WORDS: [&str; 4] = [
    "/function/arguments",
    "delta/partial_json",
    "incomplete_details/reason",
    "service_tier",
];
/// A recording whose pieces are not what its own end says they were.
const DOCTORED: &str = "openai-responses/1041";

#[derive(Debug, Deserialize)]
struct Case {
    name: String,
    dialect: Dialect,
    whole: Option<Value>,
    stream: Option<Vec<Value>>,
    blocks: Vec<String>,
    holds: Vec<String>,
    warns: Option<String>,
}

impl Case {
    fn body(&self) -> Vec<u8> {
        let Some(events) = &self.stream else {
            return self.whole.as_ref().unwrap().to_string().into_bytes();
        };
        let data = events.iter().map(|event| match event {
            Value::String(text) => format!("data: {text}\n\n"),
            event => {
                let name = event.get("type").and_then(Value::as_str);
                let name = name.map(|name| format!("event: {name}\n"));
                format!("{}data: {event}\n\n", name.unwrap_or_default())
            }
        });
        data.collect::<String>().into_bytes()
    }
}

async fn answered(dialect: Dialect, body: Vec<u8>) -> Ran {
    let backend = backend(Arc::new(Canned::new(dialect, body)));
    let plan = confirmed(&backend, &json!({}));
    run_plan(&backend, plan, drop).await
}

fn block_types(ran: &Ran) -> Vec<&str> {
    let blocks = ran.events.iter().filter_map(|event| match event {
        AgentEventKind::ContentBlock { block_type, .. } => Some(block_type.as_str()),
        _ => None,
    });
    blocks.collect()
}

fn warnings(ran: &Ran) -> Vec<&str> {
    let warnings = ran.events.iter().filter_map(|event| match event {
        AgentEventKind::Warning { message } => Some(message.as_str()),
        _ => None,
    });
    warnings.collect()
}

/// Everything that a run tells: events with what is attached, exchanges, and the vendor's counts.
fn told(ran: &Ran) -> Value {
    json!({
        "events": ran.events,
        "exts": ran.exts,
        "said": ran.said_in_pieces(),
        "thought": ran.thought(),
        "usage": ran.end.usage_raw,
        "exchanges": ran.end.exchanges,
    })
}

#[tokio::test]
async fn every_part_of_an_answer_is_an_event_or_a_warning() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("answers.json")).unwrap();
    for case in cases {
        let ran = answered(case.dialect, case.body()).await;
        let name = format!("{} ({})", case.name, case.dialect);
        assert!(ran.end.result.is_ok(), "{name}: {:?}", ran.end);
        let mut found = block_types(&ran);
        let mut expected: Vec<_> = case.blocks.iter().map(String::as_str).collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{name}");
        let told = told(&ran).to_string();
        for needle in &case.holds {
            assert!(told.contains(needle), "{name}: {needle:?} is not in {told}");
        }
        let warnings = warnings(&ran);
        match &case.warns {
            Some(words) => assert!(
                warnings.iter().any(|warning| warning.contains(words)),
                "{name}: {warnings:?}"
            ),
            None => assert_eq!(warnings, Vec::<&str>::new(), "{name}"),
        }
    }
}

/// The same block, whole or in pieces, is the same event.
#[tokio::test]
async fn an_image_is_the_same_event_whole_and_in_pieces() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("answers.json")).unwrap();
    let gemini = cases.iter().filter(|case| case.dialect == Dialect::Gemini);
    let mut seen = Vec::new();
    for case in gemini {
        let ran = answered(case.dialect, case.body()).await;
        let images = ran.events.iter().filter_map(|event| match event {
            AgentEventKind::ContentBlock { block_type, data } if block_type == "MEDIA_CAROUSEL" => {
                Some(data.clone())
            }
            _ => None,
        });
        seen.extend(images);
    }
    let url = "data:image/png;base64,iVBORw0K";
    let image = json!({"items": [{"url": url, "mime_type": "image/png"}]});
    assert_eq!(seen, [image.clone(), image]);
}

/// Recorded answers of real vendors: every text in them is found again in what the run tells, unless it
/// is form, or a warning names its place.
#[tokio::test]
async fn recorded_answers_are_told_to_the_last_text() {
    let Some(shared) = shared_dir() else {
        return skip("recorded answers as events", "the corpus is not here");
    };
    let corpus = shared.join("corpus");
    let Ok(manifest) = fs::read_to_string(corpus.join("manifest.jsonl")) else {
        return skip("recorded answers as events", "the corpus is not here");
    };
    let (mut read, mut lost) = (0, Vec::new());
    for line in manifest.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let is_answer = row["op"] == "create" && row["status"] == 200 && row["id"] != DOCTORED;
        let files = &row["files"];
        let file = files.get("response").or(files.get("stream"));
        let Some(file) = file.and_then(Value::as_str).filter(|_| is_answer) else {
            continue;
        };
        let dialect = match row["dialect"].as_str().unwrap() {
            "openai-chat" => Dialect::OpenAi,
            "openai-responses" => Dialect::Codex,
            "anthropic" => Dialect::Claude,
            "gemini" => Dialect::Gemini,
            other => panic!("{other} is a new dialect"),
        };
        let body = fs::read(corpus.join(file)).unwrap();
        let ran = answered(dialect, body.clone()).await;
        if ran.end.result.is_err() {
            // The vendor's own error, which is told as one.
            continue;
        }
        read += 1;
        lost.extend(untold(&ran, file, &body));
    }
    assert!(read > 300, "only {read} answers were read");
    assert!(
        lost.is_empty(),
        "{} texts are lost:\n{}",
        lost.len(),
        lost.join("\n")
    );
}

/// The texts of an answer that the run does not tell.
fn untold(ran: &Ran, file: &str, body: &[u8]) -> Vec<String> {
    let mut texts = Vec::new();
    collect_texts(&told(ran), "", &mut texts);
    let told: String = texts.into_iter().map(|(_, text)| text + "\n").collect();
    let named = warnings(ran).join("\n");
    let several = named.contains("the run takes the first");
    let mut wanted = Vec::new();
    for document in documents(file, body) {
        let kind = document.get("type").and_then(Value::as_str);
        if !kind.is_some_and(|kind| kind.ends_with("arguments.delta")) {
            collect_texts(&document, "", &mut wanted);
        }
    }
    let is_told = |(place, text): &(String, String)| {
        let member = place.rsplit('/').next().unwrap_or_default();
        FORM.contains(&member)
            || IN_OTHER_WORDS.iter().any(|end| place.ends_with(end))
            || told.contains(text.as_str())
            || named.contains(place.as_str())
            || arguments_are_told(text, &told)
            || (several && place.starts_with("choices/"))
    };
    let lost = wanted.into_iter().filter(|found| !is_told(found));
    lost.map(|(place, text)| format!("{file} {place}: {text:.80}"))
        .collect()
}

/// Arguments of calls are told as the JSON they are, not as they were spelled; pieces of them are no
/// JSON yet.
fn arguments_are_told(text: &str, told: &str) -> bool {
    match serde_json::from_str::<Value>(text) {
        Ok(arguments) => {
            let mut texts = Vec::new();
            collect_texts(&arguments, "", &mut texts);
            texts.iter().all(|(_, text)| told.contains(text.as_str()))
        }
        Err(_) => text.contains('"'),
    }
}

fn documents(file: &str, body: &[u8]) -> Vec<Value> {
    if Path::new(file)
        .extension()
        .is_some_and(|kind| kind == "json")
    {
        return vec![serde_json::from_slice(body).unwrap()];
    }
    let text = String::from_utf8_lossy(body);
    let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
    data.filter_map(|data| serde_json::from_str(data.trim()).ok())
        .collect()
}

/// Every text with its place, `*` for the places of a list.
fn collect_texts(value: &Value, place: &str, texts: &mut Vec<(String, String)>) {
    let inside = |name: &str| match place {
        "" => name.to_owned(),
        outer => format!("{outer}/{name}"),
    };
    match value {
        Value::String(text) => texts.push((place.to_owned(), text.clone())),
        Value::Array(items) => {
            for item in items {
                collect_texts(item, &inside("*"), texts);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                collect_texts(member, &inside(name), texts);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
