//! The wire format, line by line.

use abp_core::{
    AgentEventKind, BackendIdentity, Capability, ExecutionMode, SupportLevel, WorkOrderBuilder,
};
use abp_error::ErrorCode;
use abp_protocol::{
    Envelope, FatalError, JsonlCodec, ProtocolError, is_compatible_version, parse_version,
};
use proptest::prelude::*;

const HELLO: &str = r#"{"t":"hello","contract_version":"abp/v0.1","backend":{"id":"my-sidecar"},"capabilities":{"streaming":"native"},"mode":"mapped"}"#;
const EVENT: &str = r#"{"t":"event","ref_id":"550e8400-e29b-41d4-a716-446655440000","event":{"ts":"2024-01-15T10:30:00Z","type":"assistant_delta","text":"Hello"}}"#;

/// The documented lines, with the parts filled in that the documentation leaves out.
#[test]
fn documented_lines() {
    let hello = JsonlCodec::decode(HELLO).unwrap();
    assert_eq!(
        hello,
        Envelope::Hello {
            contract_version: "abp/v0.1".into(),
            backend: BackendIdentity {
                id: "my-sidecar".into(),
                backend_version: None,
                adapter_version: None,
            },
            capabilities: [(Capability::Streaming, SupportLevel::Native)].into(),
            mode: ExecutionMode::Mapped,
        }
    );
    let run = r#"{"t":"run","id":"550e8400-e29b-41d4-a716-446655440000","work_order":{"task":"say hello"}}"#;
    let Envelope::Run { id, work_order } = JsonlCodec::decode(run).unwrap() else {
        panic!("not a run");
    };
    assert_eq!(
        (id.as_str(), work_order.task.as_str()),
        ("550e8400-e29b-41d4-a716-446655440000", "say hello")
    );
    let Envelope::Event { event, .. } = JsonlCodec::decode(EVENT).unwrap() else {
        panic!("not an event");
    };
    assert_eq!(
        event.kind,
        AgentEventKind::AssistantDelta {
            text: "Hello".into()
        }
    );
    let last = r#"{"t":"final","ref_id":"550e8400-e29b-41d4-a716-446655440000","receipt":{
        "meta":{"run_id":"550e8400-e29b-41d4-a716-446655440000","work_order_id":"550e8400-e29b-41d4-a716-446655440000",
                "contract_version":"abp/v0.1","started_at":"2024-01-15T10:30:00Z","finished_at":"2024-01-15T10:30:01Z","duration_ms":1000},
        "backend":{"id":"my-sidecar"},"verification":{"harness_ok":true},"outcome":"complete"}}"#;
    let Envelope::Final { receipt, .. } = JsonlCodec::decode(last).unwrap() else {
        panic!("not a final");
    };
    assert_eq!(receipt.meta.duration_ms, 1000);
    for line in [HELLO, run, EVENT, last] {
        let envelope = JsonlCodec::decode(line).unwrap();
        let encoded = JsonlCodec::encode(&envelope).unwrap();
        assert_eq!(encoded.matches('\n').count(), 1);
        assert_eq!(JsonlCodec::decode(&encoded).unwrap(), envelope);
    }
}

#[test]
fn fatal_is_read_in_both_forms_and_written_in_one() {
    let expected = FatalError {
        message: "no key".into(),
        code: Some(ErrorCode::BackendAuthFailed),
    };
    for line in [
        r#"{"t":"fatal","ref_id":null,"error":"no key","error_code":"BACKEND_AUTH_FAILED"}"#,
        r#"{"t":"fatal","error":{"code":"backend_auth_failed","message":"no key","context":{"vendor":"x"}}}"#,
    ] {
        let envelope = JsonlCodec::decode(line).unwrap();
        assert_eq!(
            envelope,
            Envelope::Fatal {
                ref_id: None,
                error: expected.clone()
            }
        );
        assert_eq!(
            JsonlCodec::encode(&envelope).unwrap(),
            "{\"t\":\"fatal\",\"ref_id\":null,\"error\":\"no key\",\"error_code\":\"BACKEND_AUTH_FAILED\"}\n"
        );
    }
}

#[test]
fn versions() {
    for (version, expected) in [
        ("abp/v0.1", Some((0, 1))),
        ("abp/v12.345", Some((12, 345))),
        ("abp/v0", None),
        ("v0.1", None),
        ("abp/v0.1.2", None),
        ("abp/v+0.1", None),
        ("abp/v.1", None),
        ("abp/v99999999999.1", None),
        ("", None),
    ] {
        assert_eq!(parse_version(version), expected, "{version}");
    }
    for (theirs, ours, compatible) in [
        ("abp/v0.1", "abp/v0.2", true),
        ("abp/v0.1", "abp/v1.0", false),
        ("abp/v0", "abp/v0", false),
    ] {
        assert_eq!(
            is_compatible_version(theirs, ours),
            compatible,
            "{theirs} {ours}"
        );
    }
}

#[test]
fn wrong_lines() {
    let cases = [
        ("", "not a valid envelope: "),
        ("npm WARN deprecated", "not a valid envelope: "),
        ("[]", "not a valid envelope: member \"t\" is missing"),
        (
            r#"{"type":"hello"}"#,
            "not a valid envelope: member \"t\" is missing",
        ),
        (
            r#"{"t":7}"#,
            "not a valid envelope: member \"t\" is not a string",
        ),
        (
            r#"{"t":"fatal","t":"hello"}"#,
            "not a valid envelope: duplicate key at /t",
        ),
        (
            r#"{"t":"hello"}"#,
            "not a valid \"hello\" envelope: missing field",
        ),
        (r#"{"t":"teleport"}"#, "unknown envelope \"teleport\""),
    ];
    for (line, expected) in cases {
        let error = JsonlCodec::decode(line).unwrap_err().to_string();
        assert!(
            error.starts_with(expected),
            "{error:?} does not start with {expected:?}"
        );
    }
}

/// C5, C3, C1: blank lines and CRLF are fine, bad bytes cost one line, an endless line ends the stream.
#[test]
fn streams() {
    let mut input = format!("{HELLO}\r\n\n  \n").into_bytes();
    input.extend(b"\"\xff\"\n");
    input.extend(format!("{EVENT}\n{{\"t\":\"fatal\",\"error\":\"{}", "x".repeat(500)).bytes());
    let mut stream = JsonlCodec::decode_stream_with_limit(input.as_slice(), 400);
    assert!(matches!(stream.next(), Some(Ok(Envelope::Hello { .. }))));
    assert!(matches!(
        stream.next(),
        Some(Err(ProtocolError::InvalidUtf8 { line: 4, offset: 1 }))
    ));
    assert!(matches!(stream.next(), Some(Ok(Envelope::Event { .. }))));
    assert!(matches!(
        stream.next(),
        Some(Err(ProtocolError::LineTooLong {
            line: 6,
            limit: 400
        }))
    ));
    assert!(stream.next().is_none());
    let exact =
        JsonlCodec::decode_stream_with_limit(format!("{HELLO}\n{HELLO}").as_bytes(), HELLO.len())
            .count();
    assert_eq!(
        exact, 2,
        "a line at the limit passes, with or without its newline"
    );
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for message in JsonlCodec::decode_stream_with_limit(bytes.as_slice(), 64) {
            prop_assert!(message.is_err());
        }
    }

    #[test]
    fn any_task_survives_the_wire(task in any::<String>()) {
        let envelope = Envelope::Run { id: "1".into(), work_order: Box::new(WorkOrderBuilder::new(task).build()) };
        let line = JsonlCodec::encode(&envelope).unwrap();
        prop_assert_eq!(JsonlCodec::decode(&line).unwrap(), envelope);
    }
}
