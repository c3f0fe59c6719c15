//! The hard cases: each file of `fixtures/rows` is one, keyed by its row.
//!
//! A case gives a source, and what its translation has to be: fidelity, some values of the output by
//! pointer, values that must not be there, labels that the ledger has to carry.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use abp_dialect::{Dialect, Exchange, TargetProfile};
use abp_translate::{
    Ledger, Options, StreamEvent, StreamTranslator, UNEXPLAINED, translate_error,
    translate_request, translate_response,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    row: u32,
    #[serde(rename = "title")]
    _title: String,
    from: Dialect,
    to: Dialect,
    kind: Kind,
    #[serde(default)]
    profile: Profile,
    #[serde(default)]
    status: Option<u16>,
    /// As it is spelled, so that the order of its members is that of the file.
    source: Box<RawValue>,
    expect: Expect,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Request,
    Response,
    Stream,
    Error,
}

/// An event of a stream; data that is a string stands for itself.
#[derive(Debug, Deserialize)]
struct Event {
    event: Option<String>,
    data: Box<RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Profile {
    model: Option<String>,
    wire_version: Option<String>,
    plain_text_only: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    fidelity: String,
    #[serde(default)]
    output: BTreeMap<String, Value>,
    #[serde(default)]
    absent: Vec<String>,
    #[serde(default)]
    labels: Vec<String>,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/rows")
}

fn cases() -> Vec<(String, Case)> {
    let mut cases = Vec::new();
    for folder in fs::read_dir(fixtures()).unwrap() {
        for file in fs::read_dir(folder.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let name = path.strip_prefix(fixtures()).unwrap().display().to_string();
            let text = fs::read_to_string(&path).unwrap();
            let case = serde_json::from_str(&text).unwrap_or_else(|error| {
                panic!("{name}: {error}");
            });
            cases.push((name, case));
        }
    }
    cases.sort_by(|left, right| left.0.cmp(&right.0));
    cases
}

/// Translates a case; the output of a stream is the list of its events.
fn translate(case: &Case) -> Result<(Value, Ledger), String> {
    let options = Options {
        profile: TargetProfile {
            model: case.profile.model.clone(),
            wire_version: case.profile.wire_version.clone(),
            plain_text_only: case.profile.plain_text_only,
            ..TargetProfile::default()
        },
        ..Options::default()
    };
    let source = compact(case.source.get());
    let bytes = source.as_bytes();
    let exchange = Exchange::default();
    let (from, to) = (case.from, case.to);
    let done = match case.kind {
        Kind::Request => translate_request(bytes, from, to, &options),
        Kind::Response => translate_response(bytes, from, to, &exchange, &options),
        Kind::Error => translate_error(bytes, from, to, case.status, &options),
        Kind::Stream => return stream(case, &options),
    };
    let done = done.map_err(|error| error.to_string())?;
    let output = serde_json::from_str(&done.output).map_err(|error| error.to_string())?;
    Ok((output, done.ledger))
}

/// JSON without the blanks that make the file readable: arguments travel as they are spelled.
fn compact(json: &str) -> String {
    let mut inside = false;
    let mut escaped = false;
    json.chars()
        .filter(|character| {
            let keep = inside || !character.is_ascii_whitespace();
            inside ^= *character == '"' && !escaped;
            escaped = *character == '\\' && !escaped;
            keep
        })
        .collect()
}

fn stream(case: &Case, options: &Options) -> Result<(Value, Ledger), String> {
    let mut translator = StreamTranslator::new(case.from, case.to, &Exchange::default(), options)
        .map_err(|error| error.to_string())?;
    let mut written = Vec::new();
    let events: Vec<Event> =
        serde_json::from_str(case.source.get()).map_err(|error| error.to_string())?;
    for event in events {
        let data = match serde_json::from_str(event.data.get()) {
            Ok(Value::String(text)) => text,
            _ => compact(event.data.get()),
        };
        written.extend(translator.event(event.event.as_deref(), &data));
    }
    written.extend(translator.end());
    let events = written.iter().map(|StreamEvent { name, data }| {
        let data = serde_json::from_str(data).unwrap_or_else(|_| json!(data));
        json!({ "event": name, "data": data })
    });
    Ok((events.collect(), translator.ledger()))
}

fn problems(case: &Case) -> Vec<String> {
    let (output, ledger) = match translate(case) {
        Ok(done) => done,
        Err(error) => return vec![error],
    };
    let labels: BTreeSet<&str> = ledger
        .entries()
        .iter()
        .filter_map(|entry| entry.label.as_deref())
        .collect();
    let mut problems = Vec::new();
    let fidelity = ledger.fidelity().to_string();
    if fidelity != case.expect.fidelity {
        let losses: Vec<_> = ledger.losses().collect();
        problems.push(format!(
            "it is {fidelity}, not {}: {losses:?}",
            case.expect.fidelity
        ));
    }
    for (pointer, expected) in &case.expect.output {
        let found = output.pointer(pointer);
        if found != Some(expected) {
            problems.push(format!("{pointer} is {found:?}, not {expected}"));
        }
    }
    for pointer in &case.expect.absent {
        if let Some(found) = output.pointer(pointer) {
            problems.push(format!("{pointer} is there: {found}"));
        }
    }
    for label in &case.expect.labels {
        if !labels.contains(label.as_str()) {
            problems.push(format!("no label {label:?} among {labels:?}"));
        }
    }
    if labels.contains(UNEXPLAINED) {
        let silent: Vec<_> = ledger
            .entries()
            .iter()
            .filter(|entry| entry.label.as_deref() == Some(UNEXPLAINED))
            .collect();
        problems.push(format!("unexplained: {silent:?}"));
    }
    if !problems.is_empty() {
        problems.push(format!("the output is {output}"));
    }
    problems
}

/// Rows that no document shows: framing is tested with the decoder of events, and what servers
/// answer on which address and to which key is no matter of documents.
const ELSEWHERE: [u32; 3] = [99, 106, 108];

#[test]
fn every_row_has_a_case() {
    let covered: BTreeSet<u32> = cases().iter().map(|(_, case)| case.row).collect();
    let missing: Vec<u32> = (1..=108)
        .filter(|row| !covered.contains(row) && !ELSEWHERE.contains(row))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_case_is_translated_as_its_row_says() {
    let failures: Vec<String> = cases()
        .iter()
        .flat_map(|(name, case)| {
            let problems = problems(case);
            problems
                .into_iter()
                .map(move |problem| format!("{name}: {problem}"))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
