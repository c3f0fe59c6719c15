//! Requests that take several rounds: the state a client brings back.

use std::time::Duration;

use abp_json::{Limits, Tape};
use abp_mcp::message::{Batches, Incoming, read};
use abp_mcp::{
    Arrival, Binding, Era, Implementation, Method, Next, Offer, Profile, ProtocolVersion,
    ServerLifecycle, StateFault, StateKey, build_server_capabilities,
};
use proptest::prelude::*;
use serde_json::{Value, json};

const NOW: Duration = Duration::from_secs(1_800_000_000);
const END: Duration = Duration::from_secs(1_800_000_060);

fn sealed(principal: &str, method: Method, params: &Value, state: &str) -> String {
    bound(principal, method, params, |binding| {
        StateKey::new([7; 32]).seal(binding, state, END)
    })
}

fn bound<T>(
    principal: &str,
    method: Method,
    params: &Value,
    then: impl FnOnce(&Binding<'_>) -> T,
) -> T {
    let text = params.to_string();
    let tape = Tape::parse_str(&text, &Limits::default()).unwrap();
    then(&Binding {
        principal,
        method,
        params: tape.root(),
    })
}

/// Brings a state back to a server, as somebody at some time.
fn bring(
    method: &str,
    params: Value,
    principal: &str,
    now: Duration,
) -> Result<Option<String>, Value> {
    let offer = Offer {
        versions: ProtocolVersion::ALL.to_vec(),
        capabilities: build_server_capabilities(),
        info: Implementation::new("s", "1"),
        instructions: None,
        profile: Profile::Strict,
    };
    let mut server = ServerLifecycle::new(offer, StateKey::new([7; 32]), Duration::from_secs(1));
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let text = json!({"jsonrpc": "2.0", "id": 5, "method": method, "params": params}).to_string();
    let tape = Tape::parse_str(&text, &Limits::default()).unwrap();
    let Ok(Incoming::Single(message)) = read(&tape, Batches::Refused) else {
        panic!("{text}");
    };
    match server.on_message(&message, Arrival { principal, now }) {
        Next::Serve(call) => Ok(call.state),
        Next::Refuse(refused) => {
            assert_eq!(refused.era, Era::Modern);
            Err(serde_json::from_str(&refused.to_json()).unwrap())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_state_comes_back_only_where_it_belongs() {
    let call = |state: &str| {
        json!({
            "name": "t", "arguments": {"b": 1.50, "a": "\u{e9}"}, "requestState": state,
            "inputResponses": {"k": {"action": "accept"}},
        })
    };
    let asked =
        json!({"arguments": {"a": "é", "b": 1.5}, "name": "t", "_meta": {"progressToken": 1}});
    let state = sealed("ann", Method::ToolsCall, &asked, "where we were");
    let refused = |words: &str| {
        let message = format!("requestState {words}");
        Err(json!({"jsonrpc": "2.0", "id": 5, "error": {"code": -32602, "message": message}}))
    };
    let forged = || refused("was not given for this request");
    let tools = "tools/call";
    assert_eq!(
        bring(tools, call(&state), "ann", NOW),
        Ok(Some("where we were".to_owned()))
    );
    assert_eq!(bring(tools, call(&state), "bob", NOW), forged());
    assert_eq!(
        bring(tools, call(&state), "ann", END),
        refused("has expired")
    );
    assert_eq!(bring("prompts/get", call(&state), "ann", NOW), forged());
    let mut other_call = call(&state);
    other_call["arguments"]["b"] = json!(2);
    assert_eq!(bring(tools, other_call, "ann", NOW), forged());
    assert_eq!(
        bring(tools, call("not one"), "ann", NOW),
        refused("is malformed")
    );
    assert_eq!(
        bring(tools, call("AAAA"), "ann", NOW),
        refused("is malformed")
    );
    let mut number = call(&state);
    number["requestState"] = json!(7);
    assert_eq!(bring(tools, number, "ann", NOW), refused("is malformed"));
    // No state was ever given for a list, so it is not looked at.
    assert_eq!(
        bring("tools/list", json!({"requestState": "x"}), "ann", NOW),
        Ok(None)
    );
    assert_eq!(bring(tools, json!({"name": "t"}), "ann", NOW), Ok(None));
}

#[test]
fn another_key_opens_nothing() {
    let params = json!({});
    let state = sealed("", Method::ToolsCall, &params, "s");
    let opened = bound("", Method::ToolsCall, &params, |binding| {
        StateKey::new([8; 32]).open(binding, &state, NOW)
    });
    assert_eq!(opened, Err(StateFault::Forged));
}

proptest! {
    #[test]
    fn a_changed_state_is_never_taken(
        state in any::<String>(),
        at in any::<prop::sample::Index>(),
        to in prop::sample::select(&b"ABCXYZabcxyz0189-_"[..]),
    ) {
        let params = json!({"name": "t", "big": 1e300});
        let sealed = sealed("ann", Method::ToolsCall, &params, &state);
        let mut changed = sealed.clone().into_bytes();
        let at = at.index(changed.len());
        changed[at] = to;
        let changed = String::from_utf8(changed).unwrap();
        let opened = bound("ann", Method::ToolsCall, &params, |binding| {
            StateKey::new([7; 32]).open(binding, &changed, NOW)
        });
        match changed == sealed {
            true => prop_assert_eq!(opened, Ok(state)),
            false => prop_assert!(matches!(opened, Err(StateFault::Forged | StateFault::Malformed))),
        }
    }
}
