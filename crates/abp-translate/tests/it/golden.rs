//! The golden grid: every document of `fixtures/<dialect>` in every other dialect, with its ledger.
//!
//! `fixtures/golden/<dialect>/<case>.txt` holds what came out, one part for each target.
//! `UPDATE_FIXTURES=1 cargo test -p abp-translate` writes them anew; read the diff.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use abp_dialect::{Dialect, DialectDetector, DocumentKind, Exchange};
use abp_json::{Limits, Tape};
use abp_translate::{
    Action, Ledger, Options, translate_error, translate_request, translate_response,
    translate_stream,
};
use serde_json::Value;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

fn documents(dialect: Dialect) -> Vec<PathBuf> {
    let folder = fixtures().join(dialect.as_str());
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

/// The document in another dialect, and what became of its parts.
fn translate(path: &Path, from: Dialect, to: Dialect) -> (String, Ledger) {
    let bytes = fs::read(path).unwrap();
    let (options, exchange) = (Options::default(), Exchange::default());
    if path.extension().is_some_and(|extension| extension == "sse") {
        let (events, ledger) = translate_stream(&bytes, from, to, &exchange, &options).unwrap();
        let lines = events.iter().map(|event| {
            let name = event
                .name
                .as_deref()
                .map_or_else(String::new, |name| format!("{name} "));
            format!("{name}{}\n", event.data)
        });
        return (lines.collect(), ledger);
    }
    let tape = Tape::parse(&bytes, &Limits::default()).unwrap();
    let done = match DialectDetector::detect_kind(tape.root(), from) {
        DocumentKind::Request => translate_request(&bytes, from, to, &options),
        DocumentKind::Error => translate_error(&bytes, from, to, None, &options),
        _ => translate_response(&bytes, from, to, &exchange, &options),
    };
    let done = done.unwrap_or_else(|error| panic!("{} to {to}: {error}", path.display()));
    let mut value: Value = serde_json::from_str(&done.output).unwrap();
    // Another crate of the build may let maps keep the order of their members.
    value.sort_all_objects();
    (format!("{value:#}\n"), done.ledger)
}

fn golden(path: &Path, from: Dialect) -> String {
    let mut text = String::new();
    for to in Dialect::ALL.into_iter().filter(|to| *to != from) {
        let (output, ledger) = translate(path, from, to);
        writeln!(text, "== {to}: {}\n{output}--", ledger.fidelity()).unwrap();
        for entry in ledger.entries() {
            if entry.action == Action::Kept || entry.is_structure() {
                continue;
            }
            let place =
                |pointer: &Option<String>| pointer.clone().unwrap_or_else(|| "-".to_owned());
            let label = entry.label.as_deref().unwrap_or_default();
            let line = format!(
                "{} {} > {} {label}",
                entry.action.as_str(),
                place(&entry.source),
                place(&entry.target),
            );
            writeln!(text, "{}", line.trim_end()).unwrap();
        }
    }
    text
}

#[test]
fn every_document_in_every_dialect() {
    let update = std::env::var_os("UPDATE_FIXTURES").is_some();
    let mut differing = Vec::new();
    for from in Dialect::ALL {
        let folder = fixtures().join("golden").join(from.as_str());
        for path in documents(from) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let file = folder.join(format!("{name}.txt"));
            let text = golden(&path, from);
            if update {
                fs::create_dir_all(&folder).unwrap();
                fs::write(&file, &text).unwrap();
            } else if fs::read_to_string(&file).ok().as_deref() != Some(&text) {
                differing.push(format!("{from}/{name}"));
            }
        }
    }
    assert!(
        differing.is_empty(),
        "{}\nset UPDATE_FIXTURES=1 to write them anew, then read the diff",
        differing.join("\n")
    );
}
