//! Many servers and one client.

use std::collections::BTreeSet;

use abp_capability::{NegotiationResult, SupportLevel, generate_report};
use abp_core::Capability;
use abp_json::{Limits, Tape};
use abp_mcp::{
    CapabilityFlag, ClientFlag, Downstream, Drift, Emulation, Negotiation, ProtocolVersion,
    Routing, ServerFlag, Standing, ToolChange, ToolPart, ToolPrints, UpstreamServer, negotiate,
    route_names,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{client, client_flags, names, server, server_flags};

use ProtocolVersion::{V2024_11_05, V2025_06_18, V2025_11_25, V2026_07_28};

fn down(version: ProtocolVersion, capabilities: &Value) -> Downstream {
    Downstream {
        version,
        capabilities: client(capabilities),
    }
}

fn up(name: &str, version: ProtocolVersion, capabilities: &Value) -> UpstreamServer {
    UpstreamServer {
        name: name.to_owned(),
        version,
        capabilities: server(capabilities),
    }
}

fn filling(emulations: impl IntoIterator<Item = Emulation>) -> Routing {
    Routing {
        emulations: emulations
            .into_iter()
            .map(|one| (one, "some".to_owned()))
            .collect(),
        ..Routing::default()
    }
}

/// A flag's outcome as JSON.
fn outcome(negotiation: &Negotiation, flag: &str) -> Value {
    let mut outcomes = negotiation.outcomes.iter();
    let found = outcomes.find(|outcome| outcome.flag.to_string() == flag);
    serde_json::to_value(found.unwrap()).unwrap()
}

#[test]
fn the_client_gets_the_union_of_what_can_be_passed_on() {
    let servers = [
        up(
            "a",
            V2025_11_25,
            &json!({"tools": {"listChanged": true}, "tasks": {"list": {}}}),
        ),
        up(
            "b",
            V2026_07_28,
            &json!({"tools": {}, "prompts": {}, "completions": {}}),
        ),
        up(
            "c",
            V2024_11_05,
            &json!({"resources": {"subscribe": true}, "completions": {}}),
        ),
    ];
    let found = negotiate(
        &down(V2025_11_25, &json!({})),
        &servers,
        &Routing::default(),
    );
    assert_eq!(
        found.advertised.to_json(),
        r#"{"completions":{},"prompts":{},"resources":{"subscribe":true},"tools":{"listChanged":true}}"#
    );
    assert_eq!(
        outcome(&found, "server.tools.listChanged"),
        json!({"flag": "server.tools.listChanged", "level": "native", "provenance": {
            "client_version": "2025-11-25", "by_client": null,
            "native": {"a": "2025-11-25"}, "emulated": {}, "without": {"b": "2026-07-28", "c": "2024-11-05"},
        }})
    );
    // In 2024-11-05 there is no such flag, whatever a server writes.
    assert_eq!(
        outcome(&found, "server.completions")["provenance"]["native"],
        json!({"b": "2026-07-28"})
    );
    let not_routed = json!({"level": "unsupported", "reason": "not_routed"});
    let tasks = outcome(&found, "server.tasks.list");
    assert_eq!(
        json!({"level": tasks["level"], "reason": tasks["reason"]}),
        not_routed
    );
}

#[test]
fn an_old_client_is_told_less() {
    let servers = [up(
        "a",
        V2025_11_25,
        &json!({"tools": {}, "completions": {}}),
    )];
    let found = negotiate(
        &down(V2024_11_05, &json!({})),
        &servers,
        &Routing::default(),
    );
    assert_eq!(found.advertised.to_json(), r#"{"tools":{}}"#);
    assert_eq!(
        outcome(&found, "server.completions")["reason"],
        "client_version"
    );
    assert_eq!(
        outcome(&found, "server.prompts")["reason"],
        "nobody_declares"
    );
}

#[test]
fn gaps_are_filled_only_where_that_is_allowed_and_labelled() {
    let servers = [
        up(
            "a",
            V2025_11_25,
            &json!({"tools": {"listChanged": true}, "resources": {}}),
        ),
        up("b", V2025_06_18, &json!({"tools": {}})),
    ];
    let poor = down(V2025_11_25, &json!({}));
    let plain = negotiate(&poor, &servers, &Routing::default());
    assert_eq!(
        plain.advertised.to_json(),
        r#"{"resources":{},"tools":{"listChanged":true}}"#
    );
    assert!(
        plain
            .declared
            .values()
            .all(|declared| declared.to_json() == "{}")
    );

    use Emulation::{Elicitation, ListChanged, Roots, Sampling, Subscribe};
    let all = filling([Elicitation, ListChanged, Roots, Sampling, Subscribe]);
    let filled = negotiate(&poor, &servers, &all);
    assert_eq!(
        filled.advertised.to_json(),
        r#"{"resources":{"subscribe":true,"listChanged":true},"tools":{"listChanged":true}}"#
    );
    for declared in filled.declared.values() {
        assert_eq!(
            declared.to_json(),
            r#"{"roots":{},"sampling":{},"elicitation":{"form":{}}}"#
        );
    }
    let lists = outcome(&filled, "server.tools.listChanged");
    assert_eq!(lists["level"], "native");
    assert_eq!(lists["provenance"]["emulated"], json!({"b": "2025-06-18"}));
    let subscribe = outcome(&filled, "server.resources.subscribe");
    assert_eq!(
        (&subscribe["level"], &subscribe["by"], &subscribe["limits"]),
        (&json!("emulated"), &json!("subscribe"), &json!("some"))
    );
    assert_eq!(
        subscribe["provenance"]["without"],
        json!({"b": "2025-06-18"})
    );
    let sampling = outcome(&filled, "client.sampling");
    assert_eq!(
        (&sampling["level"], &sampling["by"]),
        (&json!("emulated"), &json!("sampling"))
    );
    assert_eq!(
        outcome(&filled, "client.sampling.tools")["reason"],
        "nobody_declares"
    );
}

#[test]
fn servers_are_told_what_this_client_declared_and_their_version_has() {
    let servers = [
        up("old", V2025_06_18, &json!({})),
        up("new", V2026_07_28, &json!({})),
    ];
    let rich = json!({
        "roots": {"listChanged": true}, "sampling": {"tools": {}}, "elicitation": {"url": {}},
        "tasks": {"list": {}},
    });
    let found = negotiate(&down(V2025_11_25, &rich), &servers, &Routing::default());
    let declared = |name: &str| found.declared[name].to_json();
    // Without its only mode, elicitation would mean forms.
    assert_eq!(
        declared("old"),
        r#"{"roots":{"listChanged":true},"sampling":{}}"#
    );
    assert_eq!(
        declared("new"),
        r#"{"roots":{},"sampling":{"tools":{}},"elicitation":{"url":{}}}"#
    );
    assert_eq!(outcome(&found, "client.tasks.list")["reason"], "not_routed");
    let by_client = &outcome(&found, "client.sampling")["provenance"]["by_client"];
    assert_eq!(by_client, &json!(true));
    let alone = [up("old", V2025_06_18, &json!({}))];
    let found = negotiate(
        &down(V2025_11_25, &json!({"sampling": {"tools": {}}})),
        &alone,
        &Routing::default(),
    );
    assert_eq!(
        outcome(&found, "client.sampling.tools")["reason"],
        "server_versions"
    );
}

#[test]
fn extensions_need_both_ends_and_one_meaning() {
    let id = "com.acme/x";
    let with = |settings: Value| json!({"extensions": {id: settings}});
    let mut routing = Routing::default();
    routing.extensions.insert(id.to_owned());
    let check = |client: Value, servers: Vec<Value>, routing: &Routing, expected: &str| {
        let servers: Vec<_> = servers
            .into_iter()
            .enumerate()
            .map(|(index, caps)| up(&format!("s{index}"), V2026_07_28, &caps))
            .collect();
        let found = negotiate(&down(V2026_07_28, &client), &servers, routing);
        let outcome = outcome(&found, "extensions.com.acme/x");
        let standing = outcome["reason"].as_str().unwrap_or("native");
        assert_eq!(standing, expected);
        let is_native = standing == "native";
        assert_eq!(
            found.advertised.extensions().any(|one| one == id),
            is_native
        );
        let told: BTreeSet<_> = found
            .declared
            .iter()
            .filter(|(_, declared)| declared.extension(id).is_some())
            .map(|(name, _)| name.clone())
            .collect();
        let native = outcome["provenance"]["native"]
            .as_object()
            .unwrap()
            .keys()
            .cloned();
        assert_eq!(
            told,
            if is_native {
                native.collect()
            } else {
                BTreeSet::new()
            }
        );
    };
    let (one, other) = (|| with(json!({"n": 1})), || with(json!({"n": 2})));
    check(
        with(json!({})),
        vec![one(), one(), json!({})],
        &routing,
        "native",
    );
    check(
        with(json!({})),
        vec![one(), other()],
        &routing,
        "settings_differ",
    );
    check(
        with(json!({})),
        vec![one()],
        &Routing::default(),
        "not_routed",
    );
    check(with(json!({})), vec![json!({})], &routing, "no_server");
    check(json!({}), vec![one()], &routing, "not_declared_by_client");
}

#[test]
fn the_report_is_that_of_backends() {
    let servers = [up(
        "a",
        V2025_11_25,
        &json!({"tools": {}, "resources": {}, "completions": {}}),
    )];
    let routing = filling([Emulation::Subscribe]);
    let found = negotiate(
        &down(V2024_11_05, &json!({"roots": {}})),
        &servers,
        &routing,
    )
    .report();
    let emulated = SupportLevel::Emulated {
        strategy: "found by reading again: some".to_owned(),
    };
    let details = [
        ("server.resources", SupportLevel::Native),
        ("server.tools", SupportLevel::Native),
        ("client.roots", SupportLevel::Native),
        ("server.resources.subscribe", emulated),
        ("server.completions", SupportLevel::Unsupported),
    ];
    assert_eq!(
        found.details,
        details.map(|(name, level)| (name.to_owned(), level))
    );
    // The same numbers and the same words as for a backend with as many of each.
    let backend = generate_report(&NegotiationResult {
        native: vec![Capability::ToolRead; 3],
        emulatable: vec![Capability::ToolRead],
        unsupported: vec![Capability::ToolRead],
    });
    assert_eq!(found.summary, backend.summary);
    assert_eq!(found.compatible, backend.compatible);
    let counts = (
        found.native_count,
        found.emulated_count,
        found.unsupported_count,
    );
    assert_eq!(counts, (3, 1, 1));
    let none = negotiate(&down(V2025_11_25, &json!({})), &[], &Routing::default()).report();
    assert_eq!(
        none.summary,
        generate_report(&NegotiationResult::default()).summary
    );
}

proptest! {
    /// Nothing is advertised or declared that nobody has and nobody fills in, whatever is routed.
    #[test]
    fn nothing_is_promised_that_cannot_be_kept(
        client in client_flags(),
        offers in prop::collection::vec((server_flags(), 0..5_usize), 0..4),
        routed in (server_flags(), client_flags()),
        version in prop::sample::select(ProtocolVersion::ALL.to_vec()),
    ) {
        let capabilities = abp_mcp::ClientCapabilities::of(client);
        let down = Downstream { version, capabilities };
        let servers: Vec<_> = offers
            .into_iter()
            .enumerate()
            .map(|(index, (flags, at))| UpstreamServer {
                name: index.to_string(),
                version: ProtocolVersion::ALL[at],
                capabilities: abp_mcp::ServerCapabilities::of(flags),
            })
            .collect();
        let routing = Routing { server_flags: routed.0, client_flags: routed.1, ..Routing::default() };
        let found = negotiate(&down, &servers, &routing);
        for flag in found.advertised.flags() {
            prop_assert!(routing.server_flags.contains(flag) && flag.span().contains(version), "{}", flag);
            prop_assert!(servers.iter().any(|one| one.capabilities.flags_in(one.version).contains(flag)));
        }
        for server in &servers {
            let declared = &found.declared[&server.name];
            for flag in declared.flags() {
                let is_declared = down.capabilities.flags_in(version).contains(flag);
                prop_assert!(is_declared && flag.span().contains(server.version), "{}", flag);
                prop_assert!(routing.client_flags.contains(flag), "{}", flag);
            }
        }
        let had: BTreeSet<_> = found.outcomes.iter().filter(|one| one.is_had()).map(|one| one.flag.to_string()).collect();
        let advertised = names(found.advertised.flags()).into_iter().map(|name| format!("server.{name}"));
        prop_assert!(advertised.into_iter().all(|name| had.contains(&name)));
    }
}

fn shown(listed: &[(&str, &[&str])]) -> Vec<String> {
    let listed: Vec<_> = listed
        .iter()
        .map(|(upstream, names)| {
            (
                *upstream,
                names.iter().map(|name| (*name).to_owned()).collect(),
            )
        })
        .collect();
    route_names(&listed)
        .into_iter()
        .map(|one| one.shown)
        .collect()
}

#[test]
fn names_are_prefixed_only_where_they_collide() {
    assert_eq!(shown(&[("a", &["x", "y"]), ("b", &["z"])]), ["x", "y", "z"]);
    assert_eq!(
        shown(&[("a", &["x", "y"]), ("b", &["x"])]),
        ["a__x", "y", "b__x"]
    );
    // A server that lists a name twice has it once.
    assert_eq!(shown(&[("a", &["x", "x"])]), ["x"]);
    // What another server already calls itself by the prefixed name gives way as well.
    let found = shown(&[("a", &["x"]), ("b", &["x"]), ("c", &["a__x"])]);
    assert_eq!(found[1..], ["b__x", "c__a__x"]);
    assert!(found[0].starts_with("a__x__"), "{found:?}");
    // Names of servers that look alike in a prefix.
    let found = shown(&[("a.b", &["x"]), ("a/b", &["x"])]);
    assert!(
        found.iter().all(|name| name.starts_with("a_b__x__")),
        "{found:?}"
    );
    let long = "n".repeat(127);
    let found = shown(&[("a", &[&long]), ("b", &[&long])]);
    assert!(found.iter().all(|name| name.len() <= 128), "{found:?}");
}

proptest! {
    #[test]
    fn every_name_is_shown_once_in_whatever_order(
        listed in prop::collection::btree_map("[ab_]{1,4}", prop::collection::vec("[ab_]{1,5}", 0..6), 0..5),
    ) {
        let given: Vec<_> = listed.iter().map(|(up, names)| (up.as_str(), names.clone())).collect();
        let mut other_way: Vec<_> = given.iter().rev().cloned().collect();
        other_way.iter_mut().for_each(|(_, names)| names.reverse());
        let routed = route_names(&given);
        prop_assert_eq!(&route_names(&other_way), &routed);
        let unique: BTreeSet<_> = routed.iter().map(|one| &one.shown).collect();
        prop_assert_eq!(unique.len(), routed.len(), "{:?}", routed);
        for one in &routed {
            let holders = listed.values().filter(|names| names.contains(&one.name)).count();
            // Nothing that is made here can look like a name without an underscore pair.
            if holders == 1 && !one.name.contains("__") {
                prop_assert_eq!(&one.shown, &one.name);
            }
            prop_assert!(holders == 1 || one.shown != one.name, "{:?}", one);
        }
    }
}

fn prints(result: &Value) -> ToolPrints {
    let text = result.to_string();
    let tape = Tape::parse_str(&text, &Limits::default()).unwrap();
    let mut prints = ToolPrints::default();
    prints.add(tape.root());
    prints
}

#[test]
fn changed_tools_are_noticed_part_by_part() {
    let tool = json!({"name": "a", "description": "reads", "inputSchema": {"type": "object", "max": 1.50}, "annotations": {"readOnlyHint": true}});
    let before = prints(&json!({"tools": [tool, {"name": "gone"}, {"description": "no name"}]}));
    let check = |change: fn(&mut Value), parts: &[ToolPart]| {
        let mut after = tool.clone();
        change(&mut after);
        let drift = before.drift(&prints(&json!({"tools": [after, {"name": "gone"}]})));
        let changed = ToolChange {
            name: "a".to_owned(),
            parts: parts.to_vec(),
        };
        let expected = Drift {
            changed: (!parts.is_empty()).then_some(changed).into_iter().collect(),
            ..Drift::default()
        };
        assert_eq!(drift, expected);
        assert_eq!(drift.is_empty(), parts.is_empty());
    };
    check(|_| (), &[]);
    check(
        |tool| tool["description"] = json!("reads and sends"),
        &[ToolPart::Description],
    );
    check(
        |tool| tool["inputSchema"]["max"] = json!(1.51),
        &[ToolPart::InputSchema],
    );
    check(
        |tool| tool["outputSchema"] = json!({}),
        &[ToolPart::OutputSchema],
    );
    check(
        |tool| tool["annotations"] = json!({}),
        &[ToolPart::Annotations],
    );
    check(|tool| tool["_meta"] = json!({}), &[ToolPart::Other]);
    let after = prints(&json!({"tools": [{"name": "new"}, tool]}));
    let drift = before.drift(&after);
    assert_eq!(
        (drift.added, drift.removed),
        (vec!["new".to_owned()], vec!["gone".to_owned()])
    );
    assert!(drift.changed.is_empty());
}

#[test]
fn spelling_is_no_change_of_a_tool() {
    let one = r#"{"tools":[{"name":"a","title":"T","inputSchema":{"x":1.50,"y":"\u0041"}}]}"#;
    let other = "{\"tools\": [ {\"inputSchema\" : {\"y\":\"A\", \"x\":1.5}, \"title\":\"T\", \"name\":\"\\u0061\"} ]}";
    let read = |text: &str| {
        let tape = Tape::parse_str(text, &Limits::default()).unwrap();
        let mut prints = ToolPrints::default();
        prints.add(tape.root());
        prints
    };
    assert_eq!(read(one), read(other));
    // A number that has no canonical form still counts.
    let big = |digits: &str| {
        read(&format!(
            "{{\"tools\":[{{\"name\":\"a\",\"max\":{digits}}}]}}"
        ))
    };
    assert_eq!(big("99999999999999999999"), big("99999999999999999999"));
    assert_ne!(big("99999999999999999999"), big("99999999999999999998"));
}

#[test]
fn every_flag_has_an_outcome() {
    let found = negotiate(&down(V2025_11_25, &json!({})), &[], &Routing::default());
    assert_eq!(
        found.outcomes.len(),
        ServerFlag::ALL.len() + ClientFlag::ALL.len()
    );
    let all_lost =
        |outcome: &abp_mcp::FlagOutcome| matches!(outcome.standing, Standing::Unsupported { .. });
    assert!(found.outcomes.iter().all(all_lost));
}
