//! McpHeaders that repeat a part of the body.

use abp_json::{Limits, Tape};
use abp_mcp::message::{Batches, Incoming, read};
use abp_mcp::{
    Era, McpHeaders, Message, ProtocolVersion, RpcRefusal, check_headers, code, decode_header,
    encode_header, header_version, name_header,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn with_request<T>(
    method: &str,
    params: &Value,
    then: impl FnOnce(&abp_mcp::message::Request<'_>) -> T,
) -> T {
    let text = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let tape = Tape::parse_str(&text, &Limits::default()).unwrap();
    match read(&tape, Batches::Refused) {
        Ok(Incoming::Single(Message::Request(request))) => then(&request),
        other => panic!("{other:?}"),
    }
}

#[test]
fn headers_say_what_the_body_says() {
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
    let call = json!({"name": "Hello, 世界", "_meta": meta});
    let right = McpHeaders {
        protocol_version: Some("2026-07-28"),
        method: Some("tools/call"),
        name: Some("=?base64?SGVsbG8sIOS4lueVjA==?="),
    };
    let check = |headers: McpHeaders<'_>, params: &Value, expected: Option<&str>| {
        let checked = with_request("tools/call", params, |request| {
            check_headers(&headers, request)
        });
        let found = checked.err().map(|refusal| {
            assert_eq!(refusal.code(Era::Modern), code::HEADER_MISMATCH);
            assert_eq!(refusal.http_status(Era::Modern), 400);
            refusal.to_string()
        });
        let expected = expected.map(|what| format!("header mismatch: {what}"));
        assert_eq!(found, expected, "{headers:?}");
    };
    check(right, &call, None);
    check(
        McpHeaders {
            name: None,
            ..right
        },
        &call,
        Some("Mcp-Name is missing"),
    );
    check(
        McpHeaders {
            method: None,
            ..right
        },
        &call,
        Some("Mcp-Method is missing"),
    );
    check(
        McpHeaders {
            protocol_version: None,
            ..right
        },
        &call,
        Some("MCP-Protocol-Version is missing"),
    );
    check(
        McpHeaders {
            name: Some("=?base64?%?="),
            ..right
        },
        &call,
        Some("a header is not base64 of UTF-8"),
    );
    check(
        McpHeaders {
            name: Some("other"),
            ..right
        },
        &call,
        Some("Mcp-Name is \"other\", the body says \"Hello, 世界\""),
    );
    check(
        McpHeaders {
            method: Some("Tools/call"),
            ..right
        },
        &call,
        Some("Mcp-Method is \"Tools/call\", the body says \"tools/call\""),
    );
    check(
        McpHeaders {
            protocol_version: Some("2025-11-25"),
            ..right
        },
        &call,
        Some("MCP-Protocol-Version is \"2025-11-25\", the body says \"2026-07-28\""),
    );
    // What the body lacks is refused for the body's sake.
    check(
        McpHeaders {
            protocol_version: None,
            name: None,
            ..right
        },
        &json!({}),
        None,
    );
}

#[test]
fn the_name_is_that_of_the_method() {
    let params = json!({"name": "n", "uri": "file:///ü", "taskId": "t"});
    for (method, expected) in [
        ("tools/call", Some("n")),
        ("prompts/get", Some("n")),
        ("resources/read", Some("=?base64?ZmlsZTovLy/DvA==?=")),
        ("tasks/get", Some("t")),
        ("tools/list", None),
        ("acme/x", None),
    ] {
        let found = with_request(method, &params, name_header);
        assert_eq!(found.as_deref(), expected, "{method}");
    }
}

#[test]
fn a_handshake_version_is_assumed_without_its_header() {
    let spoken = [ProtocolVersion::V2025_03_26, ProtocolVersion::V2025_11_25];
    assert_eq!(
        header_version(None, &spoken),
        Ok(ProtocolVersion::V2025_03_26)
    );
    assert_eq!(
        header_version(Some("2025-11-25"), &spoken),
        Ok(ProtocolVersion::V2025_11_25)
    );
    for text in ["2024-11-05", "1999-01-01", ""] {
        let refusal = header_version(Some(text), &spoken).unwrap_err();
        assert!(matches!(refusal, RpcRefusal::UnsupportedVersion { .. }));
        assert_eq!(refusal.http_status(Era::Legacy), 400);
    }
}

proptest! {
    #[test]
    fn any_value_fits_a_header(value in prop_oneof![any::<String>(), "[ -~]*", r"=\?base64\?[a-z]*\?="]) {
        let header = encode_header(&value);
        prop_assert!(header.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte)));
        prop_assert_eq!(header.trim(), &*header);
        prop_assert_eq!(decode_header(&header).unwrap(), value.as_str());
    }
}
