//! The table of what survives is what the codecs really do.
//!
//! `fixtures/features/<dialect>.json` holds a request for every feature of a dialect, and the
//! pointers that make up the feature. What the ledger says of those places is the fidelity.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use abp_dialect::Dialect;
use abp_json::Limits;
use abp_mapping::{Feature, Fidelity, features_of, known_rules};
use abp_translate::{Ledger, LedgerEntry, Options, read_request, translate_request};
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
struct Probe {
    request: Value,
    at: Vec<String>,
}

fn probes(dialect: Dialect) -> BTreeMap<Feature, Probe> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/features")
        .join(format!("{dialect}.json"));
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Whether an entry speaks of a place: of itself, of something in it, or of what it is in.
fn concerns(entry: &LedgerEntry, place: &str) -> bool {
    let below = |inner: &str, outer: &str| {
        inner
            .strip_prefix(outer)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    entry
        .source
        .as_deref()
        .is_some_and(|source| below(source, place) || below(place, source))
}

/// The worst that became of any of the places, as a cell of the table.
fn cell(ledger: &Ledger, places: &[String]) -> char {
    let about: Vec<_> = ledger
        .entries()
        .iter()
        .filter(|entry| places.iter().any(|place| concerns(entry, place)))
        .collect();
    if about.iter().any(|entry| entry.unsupported) {
        'x'
    } else if about.iter().any(|entry| entry.is_loss()) {
        '~'
    } else {
        '='
    }
}

fn known(from: Dialect, to: Dialect, feature: Feature) -> char {
    match known_rules()
        .lookup(from, to, feature)
        .map(|rule| &rule.fidelity)
    {
        None => '.',
        Some(Fidelity::Lossless) => '=',
        Some(Fidelity::LossyLabeled { .. }) => '~',
        Some(Fidelity::Unsupported { .. }) => 'x',
    }
}

/// A choice among backends counts what a request uses, so every probe has to be seen as what it is.
#[test]
fn the_features_of_a_request_are_found() {
    let mut missed = Vec::new();
    for dialect in Dialect::ALL {
        for (feature, probe) in probes(dialect) {
            let bytes = probe.request.to_string().into_bytes();
            let conversation = read_request(&bytes, dialect, &Limits::default()).unwrap();
            if !features_of(&conversation).contains(&feature) {
                missed.push(format!("{dialect} {feature}"));
            }
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
    let plain = br#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}"#;
    let plain = read_request(plain, Dialect::Claude, &Limits::default()).unwrap();
    assert_eq!(features_of(&plain), BTreeSet::new());
}

#[test]
fn the_table_is_what_the_codecs_do() {
    let mut wrong = Vec::new();
    for feature in Feature::ALL {
        let mut measured = Vec::new();
        let mut expected = Vec::new();
        for from in Dialect::ALL {
            let probes = probes(from);
            let probe = probes.get(&feature);
            let row =
                |cell: &dyn Fn(Dialect) -> char| Dialect::ALL.map(cell).iter().collect::<String>();
            measured.push(row(&|to| {
                probe.map_or('.', |probe| {
                    let bytes = probe.request.to_string().into_bytes();
                    let done = translate_request(&bytes, from, to, &Options::default());
                    let done =
                        done.unwrap_or_else(|error| panic!("{feature} {from}→{to}: {error}"));
                    cell(&done.ledger, &probe.at)
                })
            }));
            expected.push(row(&|to| known(from, to, feature)));
        }
        if measured != expected {
            wrong.push(format!(
                "{feature}: measured {measured:?}, known {expected:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
