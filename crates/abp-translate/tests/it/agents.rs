//! The requests of real agents, in every dialect and back.

use std::fs;
use std::path::PathBuf;

use abp_dialect::{Dialect, DialectDetector, Signals};
use abp_json::{Limits, Tape};
use abp_translate::{Options, UNEXPLAINED, translate_request};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Debug, Deserialize)]
struct Recording {
    path: String,
    headers: Vec<(String, String)>,
    body: Box<RawValue>,
}

fn recordings(folder: &PathBuf) -> Vec<(PathBuf, Recording)> {
    let mut found = Vec::new();
    for agent in fs::read_dir(folder).unwrap() {
        let Ok(exchanges) = fs::read_dir(agent.unwrap().path().join("http")) else {
            continue;
        };
        for exchange in exchanges {
            let path = exchange.unwrap().path();
            let recording = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            found.push((path, recording));
        }
    }
    found
}

/// The dialect by route and headers, and by the body alone: they have to agree on the family.
fn dialect(recording: &Recording) -> Dialect {
    let headers: Vec<_> = recording
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let routed = DialectDetector::detect(&Signals {
        route: Some(&recording.path),
        headers: &headers,
        ..Signals::default()
    });
    let tape = Tape::parse_str(recording.body.get(), &Limits::default()).unwrap();
    let looked = DialectDetector::detect(&Signals {
        body: Some(tape.root()),
        ..Signals::default()
    });
    let (routed, looked) = (routed.unwrap().dialect, looked.unwrap().dialect);
    assert_eq!(routed.family(), looked.family());
    routed
}

#[test]
fn recorded_requests_go_everywhere_and_come_back() {
    let folder = abp_testkit::shared_dir().map(|shared| shared.join("agents/recordings"));
    let Some(folder) = folder.filter(|folder| folder.is_dir()) else {
        return abp_testkit::skip(
            "requests of real agents",
            "no recordings are beside the checkout",
        );
    };
    let recordings = recordings(&folder);
    assert!(!recordings.is_empty());
    let options = Options {
        check_way_back: true,
        ..Options::default()
    };
    for (path, recording) in recordings {
        let from = dialect(&recording);
        for to in Dialect::ALL {
            let bytes = recording.body.get().as_bytes();
            let done = translate_request(bytes, from, to, &options)
                .unwrap_or_else(|error| panic!("{} to {to}: {error}", path.display()));
            let entries = done.ledger.entries();
            let silent = entries
                .iter()
                .find(|entry| entry.label.as_deref() == Some(UNEXPLAINED));
            assert!(silent.is_none(), "{} to {to}: {silent:?}", path.display());
            assert!(!entries.is_empty());
        }
    }
}
