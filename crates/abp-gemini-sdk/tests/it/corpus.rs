//! Recorded and hand-written traffic: all of it is read, and comes back as it was.

use abp_core::ir::{IrBlock, IrContentBlock, IrMessage, Origin};
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
    let Some(files) = recorded("request") else {
        return;
    };
    assert!(!files.is_empty());
    for (name, source) in files {
        comes_back(&name, &source, Document::Request);
    }
}

#[test]
fn recorded_answers_come_back() {
    let Some(files) = recorded("response") else {
        return;
    };
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

/// Where things were is not what they say.
fn forget(message: &mut IrMessage) {
    fn blocks(content: &mut [IrBlock]) {
        for block in content {
            block.origin = Origin::Host;
            if let IrContentBlock::ToolResult { content, .. } = &mut block.body {
                blocks(content);
            }
        }
    }
    message.origin = Origin::Host;
    blocks(&mut message.content);
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
        for settings in [&mut first.settings, &mut second.settings] {
            let vendor = &mut settings.vendor;
            vendor.sort_by(|left, right| left.name.cmp(&right.name));
            vendor.retain(|field| field.name != "responseModalities");
            if let Some(choice) = &mut settings.tool_choice {
                choice.origin = Origin::Host;
            }
            if let Some(format) = &mut settings.response_format {
                format.origin = Origin::Host;
            }
        }
        for message in first.messages.iter_mut().chain(&mut second.messages) {
            forget(message);
        }
        assert_eq!(first.messages, second.messages, "{}", name.display());
        assert_eq!(first.settings, second.settings, "{}", name.display());
    }
}
