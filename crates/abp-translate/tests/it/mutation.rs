//! Documents that nobody would send: every fixture with something in it changed at random.
//!
//! Whatever comes of it, it is a typed error or a document with nothing lost in silence. The changes
//! are the same each time; `ABP_MUTATIONS=20000` tries more of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use abp_dialect::{Dialect, Exchange};
use abp_json::{Limits, Tape};
use abp_translate::{
    Ledger, LedgerEntry, Options, UNEXPLAINED, translate_error, translate_request,
    translate_response, translate_stream,
};
use serde_json::{Value, json};

fn sources(extension: &str) -> Vec<(Dialect, PathBuf)> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let mut found = Vec::new();
    for dialect in Dialect::ALL {
        for entry in fs::read_dir(fixtures.join(dialect.as_str())).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|known| known == extension) {
                found.push((dialect, path));
            }
        }
    }
    if std::env::var_os("ABP_MUTATIONS").is_some() {
        found.extend(recorded(extension));
    }
    found.sort_by(|left, right| left.1.cmp(&right.1));
    found
}

/// Recorded traffic, for longer runs.
fn recorded(extension: &str) -> Vec<(Dialect, PathBuf)> {
    let Some(shared) = abp_testkit::shared_dir() else {
        return Vec::new();
    };
    let names = ["openai-chat", "openai-responses", "anthropic", "gemini"];
    let folders = names.iter().flat_map(|name| {
        let dialect: Dialect = name.parse().unwrap();
        let place = shared.join("corpus").join(name);
        ["request", "response", "stream"].map(|kind| (dialect, place.join(kind)))
    });
    folders
        .filter_map(|(dialect, folder)| Some((dialect, fs::read_dir(folder).ok()?)))
        .flat_map(|(dialect, files)| files.map(move |file| (dialect, file.unwrap().path())))
        .filter(|(_, path)| path.extension().is_some_and(|known| known == extension))
        .collect()
}

/// Numbers that look random and are the same each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }
}

/// What values are replaced by; nothing removes them.
fn strange() -> Vec<Option<Value>> {
    vec![
        None,
        Some(Value::Null),
        Some(json!(true)),
        Some(json!(7)),
        Some(json!(-1.5)),
        Some(json!("")),
        Some(json!("strange")),
        Some(json!([])),
        Some(json!({})),
        Some(json!([{"type": "strange", "x": 1}])),
        Some(json!({"type": "strange", "x": [1, 2]})),
        Some(json!({"type": "text", "text": "more", "extra": null})),
    ]
}

/// Every place of a document, the root excepted.
fn places(value: &Value, place: &str, found: &mut Vec<String>) {
    let mut below = |key: &str, child: &Value| {
        let mut place = place.to_owned();
        abp_json::pointer::push(&mut place, key);
        found.push(place.clone());
        places(child, &place, found);
    };
    match value {
        Value::Object(members) => members.iter().for_each(|(key, child)| below(key, child)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(index, child)| below(&index.to_string(), child)),
        _ => {}
    }
}

/// Replaces or removes the value at a place.
fn change(document: &mut Value, place: &str, new: Option<Value>) {
    let Some((parent, key)) = place.rsplit_once('/') else {
        return;
    };
    let key = abp_json::pointer::unescape(key).unwrap().into_owned();
    match (document.pointer_mut(parent), new) {
        (Some(Value::Object(members)), Some(new)) => drop(members.insert(key, new)),
        (Some(Value::Object(members)), None) => drop(members.remove(&key)),
        (Some(Value::Array(items)), Some(new)) => {
            if let Some(item) = items.get_mut(key.parse::<usize>().unwrap()) {
                *item = new;
            }
        }
        (Some(Value::Array(items)), None) => {
            let index: usize = key.parse().unwrap();
            if index < items.len() {
                drop(items.remove(index));
            }
        }
        _ => {}
    }
}

/// What is wrong with a translation, where anything is.
fn problem(output: &str, ledger: &Ledger) -> Option<String> {
    if Tape::parse_str(output, &Limits::default()).is_err() {
        return Some(format!("no JSON: {output}"));
    }
    let silent = |entry: &&LedgerEntry| entry.label.as_deref() == Some(UNEXPLAINED);
    let entry = ledger.entries().iter().find(silent)?;
    Some(format!("{:?} {:?}", entry.source, entry.reason))
}

fn rounds(usual: usize) -> usize {
    std::env::var("ABP_MUTATIONS")
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(usual)
}

/// Fails with one example of each kind of problem.
fn assert_none(problems: &BTreeMap<String, String>) {
    let lines: Vec<_> = problems
        .iter()
        .map(|(kind, example)| format!("{kind}\n    {example}"))
        .collect();
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}

#[test]
fn changed_documents_are_refused_or_accounted_for() {
    let sources = sources("json");
    let strange = strange();
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let mut problems = BTreeMap::new();
    let fresh = Options::default();
    let knowing = Options {
        known: Some(Arc::default()),
        ..Options::default()
    };
    for _ in 0..rounds(600) {
        let (from, path) = &sources[chance.below(sources.len())];
        let mut document: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        for _ in 0..=chance.below(2) {
            let mut found = Vec::new();
            places(&document, "", &mut found);
            if let Some(place) = found.get(chance.below(found.len())) {
                let new = strange[chance.below(strange.len())].clone();
                change(&mut document, place, new);
            }
        }
        let bytes = document.to_string().into_bytes();
        for to in Dialect::ALL {
            let translate = |options: &Options| {
                [
                    translate_request(&bytes, *from, to, options),
                    translate_response(&bytes, *from, to, &Exchange::default(), options),
                    translate_error(&bytes, *from, to, Some(400), options),
                ]
                .map(|done| done.map(|done| (done.output, done.ledger)).ok())
            };
            let [fresh, known] = [&fresh, &knowing].map(translate);
            for (fresh, known) in fresh.into_iter().zip(known) {
                let Some((output, ledger)) = fresh else {
                    continue;
                };
                let mut problem = problem(&output, &ledger);
                if known.is_none_or(|(_, known)| known != ledger) {
                    problem = Some("a known ledger is another one".to_owned());
                }
                if let Some(problem) = problem {
                    problems.insert(format!("{from} to {to}: {problem}"), document.to_string());
                }
            }
        }
    }
    assert_none(&problems);
}

/// A stream that is cut, or has a byte changed, still ends in an orderly way.
#[test]
fn broken_streams_end_in_order() {
    let sources = sources("sse");
    let mut chance = Chance(0x2545_f491_4f6c_dd1d);
    let mut problems = BTreeMap::new();
    for _ in 0..rounds(200) {
        let (from, path) = &sources[chance.below(sources.len())];
        let bytes = fs::read(path).unwrap();
        let place = chance.below(bytes.len());
        let mut changed = bytes.clone();
        changed[place] = chance.below(256) as u8;
        for broken in [&bytes[..place], &changed] {
            for to in Dialect::ALL.into_iter().filter(|to| to != from) {
                let (events, ledger) =
                    translate_stream(broken, *from, to, &Exchange::default(), &Options::default())
                        .unwrap();
                let jsons = events.iter().filter(|event| event.data.starts_with('{'));
                for event in jsons {
                    if let Some(problem) = problem(&event.data, &ledger) {
                        let kind = format!("{from} to {to}: {problem}");
                        problems.insert(kind, format!("{} at {place}", path.display()));
                    }
                }
            }
        }
    }
    assert_none(&problems);
}
