//! Clients: what they say they can take, in the envelopes they use.

use abp_core::{
    AgentRequest, CapabilitySource, ClientCapabilities, ClientProfile, ContractError,
    ImageResolution, PacketWriter, PartialCapabilities, PresentationType, StreamPacket, Timestamp,
    read_document,
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

fn read(value: &Value) -> Result<ClientCapabilities, ContractError> {
    ClientCapabilities::from_json(value.to_string().as_bytes())
}

#[test]
fn capabilities_have_defaults_and_room_for_what_comes() {
    let nothing = read(&json!({})).unwrap();
    assert_eq!(nothing, ClientCapabilities::default());
    assert_eq!(
        serde_json::to_value(&nothing).unwrap(),
        json!({"supported_events": [], "prefers_markdown": true, "image_resolution": null})
    );
    let newer = json!({"supported_events": ["chart"], "haptics": {"strength": 3}});
    let newer = read(&newer).unwrap();
    assert!(newer.supports(&PresentationType::parse("CHART")));
    assert!(!newer.supports(&PresentationType::CitationBlock));
    for (name, resolution) in [
        ("LOW", Some(ImageResolution::Low)),
        ("auto", Some(ImageResolution::Auto)),
        ("retina", None),
    ] {
        let client = read(&json!({"image_resolution": name})).unwrap();
        assert_eq!(client.resolution(), resolution, "{name}");
    }
    for (wrong, place) in [
        (json!({"prefers_markdown": "yes"}), "at /prefers_markdown"),
        (
            json!({"supported_events": ["A", 2]}),
            "at /supported_events/1",
        ),
        (json!(["CITATION_BLOCK"]), "expected an object"),
    ] {
        let error = read(&wrong).unwrap_err().to_string();
        assert!(error.contains(place), "{error}");
    }
}

#[test]
fn presentation_types_are_read_in_any_case() {
    for (read, written) in [
        ("citation_block", "CITATION_BLOCK"),
        ("Media_Carousel", "MEDIA_CAROUSEL"),
        ("PROGRESS_INDICATOR", "PROGRESS_INDICATOR"),
        ("markdown_block", "MARKDOWN_BLOCK"),
        ("thought_trace", "THOUGHT_TRACE"),
        ("user_error", "user_error"),
    ] {
        assert_eq!(PresentationType::parse(read).as_str(), written);
    }
}

#[test]
fn a_profile_takes_each_field_from_the_best_source() {
    use CapabilitySource::{Accept, Body, Default, Header, Protocol};
    let said = |value: Value| PartialCapabilities::from_json(value.to_string().as_bytes()).unwrap();
    let protocol = said(json!({"supported_events": ["MARKDOWN_BLOCK"], "image_resolution": "low"}));
    let accept = PartialCapabilities::from_accept("text/plain").unwrap();
    let header = said(json!({"supported_events": ["PROGRESS_INDICATOR"], "unknown": 1}));
    let body = said(json!({"prefers_markdown": true}));
    let origins = |profile: &ClientProfile| {
        let origins = profile.origins;
        (
            origins.supported_events,
            origins.prefers_markdown,
            origins.image_resolution,
        )
    };

    // In any order.
    let profile = ClientProfile::merge(&[
        (Protocol, protocol),
        (Body, body.clone()),
        (Accept, accept),
        (Header, header),
    ]);
    assert_eq!(
        profile.capabilities,
        Some(ClientCapabilities {
            supported_events: vec!["PROGRESS_INDICATOR".to_owned()],
            prefers_markdown: true,
            image_resolution: Some("low".to_owned()),
        })
    );
    assert_eq!(origins(&profile), (Header, Body, Protocol));
    let written = serde_json::to_value(&profile).unwrap();
    assert_eq!(written["origins"]["supported_events"], "header");
    assert_eq!(
        serde_json::from_value::<ClientProfile>(written).unwrap(),
        profile
    );

    // What a client that speaks leaves out is the default; one that does not speak takes everything.
    let profile = ClientProfile::merge(&[(Body, body)]);
    assert_eq!(profile.capabilities, Some(ClientCapabilities::default()));
    assert_eq!(origins(&profile), (Default, Body, Default));
    assert_eq!(ClientProfile::merge(&[]), ClientProfile::standard());
    assert_eq!(ClientProfile::standard().capabilities, None);
}

#[test]
fn accept_says_whether_text_is_wanted() {
    for (accept, markdown) in [
        ("text/plain", Some(false)),
        ("Text/Markdown; charset=utf-8", Some(true)),
        ("text/markdown;q=0.5, text/plain;q=0.8", Some(false)),
        ("text/markdown, text/plain", Some(true)),
        ("text/event-stream, text/plain;q=0.9", Some(false)),
        ("application/json, text/plain;q=0.9", None),
        ("*/*", None),
        ("text/plain;q=0", None),
        ("text/plain;q=oops", None),
        ("", None),
    ] {
        let said = PartialCapabilities::from_accept(accept);
        assert_eq!(
            said.as_ref().and_then(|said| said.prefers_markdown),
            markdown,
            "{accept}"
        );
        assert_eq!(
            said.and_then(|said| said.supported_events),
            markdown.map(|_| Vec::new()),
            "{accept}"
        );
    }
}

#[test]
fn requests_know_their_root() {
    let (one, two, three) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
    let read = |extra: Value| {
        let mut request = json!({"session_id": one, "payload": {"input": "hi"}, "later": true});
        for (key, value) in extra.as_object().unwrap() {
            request[key] = value.clone();
        }
        read_document::<AgentRequest>(request.to_string().as_bytes())
    };
    let root = read(json!({"request_id": two})).unwrap();
    let payload = Map::from_iter([("input".to_owned(), json!("hi"))]);
    assert_eq!(root, AgentRequest::new(two, one, payload));
    assert_eq!((root.root_request_id, root.parent_request_id), (two, None));

    let child = read(json!({"root_request_id": two, "parent_request_id": three})).unwrap();
    assert_eq!(child.root_request_id, two);
    assert_ne!(child.request_id, root.request_id);
    let written = serde_json::to_vec(&child).unwrap();
    assert_eq!(read_document::<AgentRequest>(&written).unwrap(), child);

    for (wrong, problem) in [
        (
            json!({"parent_request_id": three}),
            "needs a root_request_id",
        ),
        (json!({"payload": "hi"}), "at /payload"),
        (json!({"session_id": 1}), "at /session_id"),
        (
            json!({"capabilities": {"prefers_markdown": 1}}),
            "at /capabilities/prefers_markdown",
        ),
    ] {
        let error = read(wrong).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn packets_are_checked_against_the_one_before() {
    let t = Timestamp::from_unix_millis(0);
    let mut writer = PacketWriter::new(Uuid::from_u128(1));
    let first = writer.delta(t, "a");
    let second = writer.event(t, Map::new());
    let last = writer.close(t);
    assert_eq!(
        serde_json::to_value(&second).unwrap(),
        json!({"stream_id": first.stream_id, "seq": 1, "op": "EVENT", "t": t, "p": {}})
    );
    second.check(Some(&first)).unwrap();
    last.check(Some(&second)).unwrap();
    let other = StreamPacket {
        stream_id: Uuid::from_u128(2),
        ..second.clone()
    };
    let wrong = StreamPacket {
        p: json!(["a"]),
        ..first
    };
    let after = StreamPacket {
        seq: 9,
        ..first.clone()
    };
    for (packet, before, place) in [
        (&first, Some(&second), "/seq"),
        (&second, Some(&second), "/seq"),
        (&other, Some(&first), "/stream_id"),
        (&after, Some(&last), "/op"),
        (&wrong, None, "/p"),
    ] {
        let problem = packet.check(before).unwrap_err().to_string();
        assert!(problem.starts_with(place), "{problem}");
    }
}
