//! Recorded and hand-written traffic: all of it is read, and comes back as it was.

use abp_dialect::DialectError;
use abp_json::{Limits, Tape};

use crate::support::{Document, Ir, Writing, fixtures, recorded, round_trip, same};

/// What a recorded answer is; `None` for the answers of other operations.
fn kind_of(source: &str) -> Option<Document> {
    let tape = Tape::parse_str(source, &Limits::default()).expect("JSON");
    let has = |key| tape.root().get(key).is_some();
    if has("error") {
        Some(Document::Error)
    } else if has("totalTokens") {
        None
    } else {
        Some(Document::Response)
    }
}

fn comes_back(name: &std::path::Path, source: &str, document: Document) {
    let (_, written) = round_trip(source, document, Writing::Copied)
        .unwrap_or_else(|error| panic!("{}: {error}", name.display()));
    assert!(same(source, &written), "{}: {written}", name.display());
}

#[test]
fn recorded_requests_come_back() {
    let Some(files) = recorded("request") else { return };
    assert!(!files.is_empty());
    for (name, source) in files {
        comes_back(&name, &source, Document::Request);
    }
}

#[test]
fn recorded_answers_come_back() {
    let Some(files) = recorded("response") else { return };
    assert!(!files.is_empty());
    for (name, source) in files {
        match kind_of(&source) {
            // A proxy's own error, of which only the text is known.
            Some(Document::Error) if source.contains("ApiError") => {
                round_trip(&source, Document::Error, Writing::Copied).expect("an error");
            }
            Some(document) => comes_back(&name, &source, document),
            None => {
                let refused = round_trip(&source, Document::Response, Writing::Copied);
                assert!(matches!(refused, Err(DialectError::NotThis { .. })));
            }
        }
    }
}

#[test]
fn fixtures_come_back() {
    for (name, source) in fixtures("request_") {
        comes_back(&name, &source, Document::Request);
    }
    for (name, source) in fixtures("response_") {
        comes_back(&name, &source, Document::Response);
    }
}

/// Written anew, a document says the same: reading it again gives the same representation, and
/// writing that gives the same text.
#[test]
fn documents_written_anew_say_the_same() {
    let recorded = recorded("request").unwrap_or_default();
    for (name, source) in recorded.into_iter().chain(fixtures("request_")) {
        let (first, once) = round_trip(&source, Document::Request, Writing::Anew).expect("request");
        let (second, twice) = round_trip(&once, Document::Request, Writing::Anew).expect("request");
        assert_eq!(once, twice, "{}", name.display());
        let (Ir::Request(mut first), Ir::Request(mut second)) = (first, second) else {
            panic!("requests are requests");
        };
        // The model is in the address, and text is what an answer is anyway.
        first.settings.model = None;
        for conversation in [&mut first, &mut second] {
            conversation.settings.vendor.sort_by(|left, right| left.name.cmp(&right.name));
            let plain = |raw: &str| raw == r#"["TEXT"]"#;
            conversation.settings.vendor.retain(|field| !plain(field.value.text()));
        }
        assert_eq!(first.messages, second.messages, "{}", name.display());
        assert_eq!(first.settings, second.settings, "{}", name.display());
    }
}
