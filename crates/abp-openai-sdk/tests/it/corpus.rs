//! Recorded traffic, and the project's own documents: all of it is read, and comes back as it was.

use std::fs;
use std::path::PathBuf;

use abp_dialect::{Dialect, Exchange};
use abp_testkit::{shared_dir, skip};

use crate::support::{again, decode, encode, events, files, fixtures, parse, same, summary};

/// Reads a document and writes it in its own dialect: nothing may change.
fn comes_back(path: &PathBuf, kind: &str) {
    let text = fs::read_to_string(path).expect("readable");
    let kind = match parse(&text)
        .root()
        .get("error")
        .filter(|error| !error.is_null())
    {
        Some(_) => "error",
        None => kind,
    };
    let written = again(&text, Dialect::OpenAi, kind)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let equal = same(parse(&text).root(), parse(&written).root());
    assert!(equal, "{} became {written}", path.display());
    // A relative's document is written anew, which must give JSON as well.
    let anew = again(&text, Dialect::Copilot, kind).expect("readable as before");
    parse(&anew);
}

/// Decodes a stream, writes it and decodes it again: it must come to the same.
fn streams_back(path: &PathBuf) {
    let text = fs::read_to_string(path).expect("readable");
    let first =
        decode(&events(&text)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let written = encode(&first, &Exchange::default());
    let second = decode(&written).expect("what the encoder wrote");
    // An answer that broke off has no word of its own: `length` is the nearest.
    let first: Vec<_> = summary(&first)
        .iter()
        .map(|line| line.replace(": Incomplete", ": Length"))
        .collect();
    assert_eq!(first, summary(&second), "{}", path.display());
}

#[test]
fn own_documents_come_back() {
    for kind in ["request", "response"] {
        for path in fixtures(kind) {
            comes_back(&path, kind);
        }
    }
    for path in fixtures("stream") {
        streams_back(&path);
    }
}

#[test]
fn recorded_documents_come_back() {
    let what = "recorded chat completions";
    let Some(dir) = shared_dir()
        .map(|dir| dir.join("corpus/openai-chat"))
        .filter(|dir| dir.is_dir())
    else {
        return skip(what, "the directory of optional test data is not there");
    };
    for kind in ["request", "response"] {
        for path in files(&dir.join(kind)) {
            comes_back(&path, kind);
        }
    }
    for path in files(&dir.join("stream")) {
        streams_back(&path);
    }
}
