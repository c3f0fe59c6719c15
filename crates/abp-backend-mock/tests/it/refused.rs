//! Errors, in the form of each vendor.

use abp_backend_core::{ModelOperation, StoredAction};
use abp_core::ir::{IrConversation, IrErrorKind, IrMessage, IrRole, RawJson};
use abp_dialect::{Dialect, DocumentKind, Reader, WireFamily};
use abp_json::{Limits, Tape};

use crate::support::{body_of, checked, codec_of, send};

const ASKED: ModelOperation = ModelOperation::Generate { stream: true };

/// Sends a body that is refused; returns the status, the kind of the error as its vendor's clients
/// read it, and whether it says when to try again.
async fn refused(
    dialect: Dialect,
    operation: ModelOperation,
    model: &str,
    body: &str,
) -> (u16, IrErrorKind, bool) {
    let (status, headers, parts) = send(dialect, operation, model, None, body).await;
    let text = parts.concat();
    assert_eq!(headers["content-type"], "application/json", "{text}");
    checked(dialect, DocumentKind::Error, &text);
    let tape = Tape::parse_str(&text, &Limits::default()).unwrap();
    let reader = Reader::new(&tape);
    let error = codec_of(dialect)
        .read_error(reader.root(), Some(status.as_u16()))
        .unwrap();
    assert!(!error.message.is_empty());
    (
        status.as_u16(),
        error.kind,
        headers.contains_key("retry-after"),
    )
}

#[tokio::test]
async fn a_name_asks_for_an_error() {
    let cases = [
        (400, IrErrorKind::InvalidRequest, false),
        (401, IrErrorKind::Authentication, false),
        (403, IrErrorKind::Permission, false),
        (404, IrErrorKind::NotFound, false),
        (429, IrErrorKind::RateLimit, true),
        (500, IrErrorKind::Server, true),
        (503, IrErrorKind::Overloaded, true),
        (529, IrErrorKind::Overloaded, true),
    ];
    for (status, kind, again) in cases {
        for dialect in Dialect::ALL {
            let model = format!("mock-error-{status}");
            let mut conversation =
                IrConversation::from_messages(vec![IrMessage::text(IrRole::User, "Hi")]);
            conversation.settings.model = Some(model.as_str().into());
            conversation.settings.max_tokens = Some(RawJson::from(9).into());
            let body = body_of(&conversation, dialect);
            // Only Messages say that too many ask at once with a status of their own.
            let expected = match (status, dialect.family()) {
                (503 | 529, WireFamily::Messages) => 529,
                (529, _) => 503,
                _ => status,
            };
            let found = refused(dialect, ASKED, &model, &body).await;
            assert_eq!(found, (expected, kind, again), "{dialect} {model}");
        }
    }
}

#[tokio::test]
async fn what_the_vendor_would_refuse_is_refused() {
    let named = r#"{"model":"m","messages":[{"role":"user","content":"Hi"}],
        "tool_choice":{"type":"function","function":{"name":"nobody"}}}"#;
    let no_limit = r#"{"model":"m","messages":[{"role":"user","content":"Hi"}]}"#;
    let mut cases: Vec<(Dialect, &str)> =
        vec![(Dialect::OpenAi, named), (Dialect::Claude, no_limit)];
    for dialect in Dialect::ALL {
        cases.extend(
            [
                "",
                "{",
                "[]",
                "{}",
                r#"{"messages":3,"contents":3,"input":3}"#,
            ]
            .map(|body| (dialect, body)),
        );
    }
    for (dialect, body) in cases {
        let found = refused(dialect, ASKED, "mock", body).await;
        assert_eq!(
            found,
            (400, IrErrorKind::InvalidRequest, false),
            "{dialect} {body}"
        );
    }
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let stored = |action| ModelOperation::Stored {
        id: "resp_1".to_owned(),
        action,
    };
    let mut cases = vec![
        (Dialect::Codex, stored(StoredAction::Get)),
        (Dialect::Codex, stored(StoredAction::InputItems)),
    ];
    let chats = [Dialect::OpenAi, Dialect::Kimi, Dialect::Copilot];
    cases.extend(chats.map(|dialect| (dialect, ModelOperation::CountTokens)));
    for (dialect, operation) in cases {
        let found = refused(dialect, operation, "mock", "{}").await;
        assert_eq!(found, (404, IrErrorKind::NotFound, false), "{dialect}");
    }
}
