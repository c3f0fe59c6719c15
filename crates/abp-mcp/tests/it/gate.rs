//! The gate, against the table in `fixtures/mcp/methods.txt`, for all methods, sides and versions.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use abp_json::{Limits, Tape};
use abp_mcp::{
    CapabilityFlag, ClientCapabilities, ClientFlag, Closed, Gate, LoggingLevel, Method, Need,
    Occasion, ProtocolVersion, ServerCapabilities, ServerFlag, Side, SubscriptionFilter,
    TASKS_EXTENSION,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{client, client_flags, fixture, server, server_flags};

type Table = BTreeMap<(Side, Method, ProtocolVersion), String>;

/// Read once; the laws ask it thousands of times.
static TABLE: LazyLock<Table> = LazyLock::new(read_table);

fn read_table() -> Table {
    let mut table = BTreeMap::new();
    for line in fixture("methods.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let [side, method, versions, need] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("{line:?} has not four columns");
        };
        let side = match side {
            "client" => Side::Client,
            "server" => Side::Server,
            _ => panic!("{line:?} is of no side"),
        };
        let method = Method::parse(method).unwrap_or_else(|| panic!("{method} is missing"));
        let named = versions.trim_end_matches(['+', 'L', 'M']);
        for version in ProtocolVersion::ALL {
            let (text, is_modern) = (version.as_str(), version == ProtocolVersion::V2026_07_28);
            let is_in = match versions {
                "L" => !is_modern,
                "M" => is_modern,
                "LM" => true,
                _ if versions.ends_with("+L") => text >= named && !is_modern,
                _ if versions.ends_with('+') => text >= named,
                _ => text == named,
            };
            if is_in {
                let before = table.insert((side, method, version), need.to_owned());
                assert_eq!(before, None, "{line:?} repeats another");
            }
        }
    }
    table
}

fn named(need: Need) -> String {
    match need {
        Need::Nothing => "-".to_owned(),
        Need::Server(flag) => format!("server.{flag}"),
        Need::Client(flag) => format!("client.{flag}"),
        Need::Extension(id) => {
            assert_eq!(id, TASKS_EXTENSION);
            "extension".to_owned()
        }
    }
}

fn every_way() -> impl Iterator<Item = (Side, Method, ProtocolVersion)> {
    Method::ALL.iter().flat_map(|method| {
        let versions = ProtocolVersion::ALL.into_iter();
        versions
            .flat_map(|version| [Side::Client, Side::Server].map(|side| (side, *method, version)))
    })
}

/// Sends a method with the least parameters, as a client that asked for all there is would get it.
fn send(gate: &Gate, sender: Side, method: Method) -> Result<(), Closed> {
    let params = r#"{"uri":"a","taskId":"t","level":"error"}"#;
    let tape = Tape::parse_str(params, &Limits::default()).unwrap();
    if !method.is_notification() {
        return gate.request(sender, method, Some(tape.root()));
    }
    let filter = SubscriptionFilter {
        tools: true,
        prompts: true,
        resources: true,
        uris: ["a".to_owned()].into(),
        tasks: ["t".to_owned()].into(),
    };
    let log_level = Some(LoggingLevel::Debug);
    let during = Occasion::During { log_level };
    let told = gate.notification(sender, method, Some(tape.root()), during);
    told.or_else(|_| {
        let occasion = Occasion::Subscription(&filter);
        gate.notification(sender, method, Some(tape.root()), occasion)
    })
}

#[test]
fn the_table_is_that_of_the_protocol() {
    for way in every_way() {
        let (sender, method, version) = way;
        let need = method.need(sender, version).map(named);
        assert_eq!(need.as_ref(), TABLE.get(&way), "{way:?}");
    }
}

/// For every method: it passes with what it needs and nothing else, and does not with everything else.
#[test]
fn each_method_needs_exactly_what_the_table_says() {
    let all_server = || ServerCapabilities::of(ServerFlag::ALL.iter().copied());
    let all_client = || ClientCapabilities::of(ClientFlag::ALL.iter().copied());
    let tasks = json!({"extensions": {TASKS_EXTENSION: {}}});
    let (server_tasks, client_tasks) = (server(&tasks), client(&tasks));
    for way in every_way() {
        let (sender, method, version) = way;
        let gate = |client: &ClientCapabilities, server: &ServerCapabilities| {
            send(&Gate::new(version, client, server), sender, method)
        };
        let with_everything = gate(
            &all_client().with_extension(TASKS_EXTENSION, &client_tasks),
            &all_server().with_extension(TASKS_EXTENSION, &server_tasks),
        );
        let Some(need) = TABLE.get(&way) else {
            let closed = Err(Closed::NotInVersion {
                method,
                sender,
                version,
            });
            assert_eq!(with_everything, closed, "{way:?}");
            continue;
        };
        assert_eq!(with_everything, Ok(()), "{way:?}");
        let none = (ClientCapabilities::none(), ServerCapabilities::none());
        let (only, others) = match need.split_once('.') {
            _ if need == "-" => (none.clone(), None),
            _ if need == "extension" => (
                (client_tasks.clone(), server_tasks.clone()),
                Some((all_client(), all_server())),
            ),
            Some(("server", path)) => {
                let flag = flag_at::<ServerFlag>(path);
                let only = ServerCapabilities::of([flag]);
                (
                    (none.0, only),
                    Some((all_client(), all_server().without(flag))),
                )
            }
            Some((_, path)) => {
                let flag = flag_at::<ClientFlag>(path);
                let only = ClientCapabilities::of([flag]);
                (
                    (only, none.1),
                    Some((all_client().without(flag), all_server())),
                )
            }
            None => panic!("{need} is no need"),
        };
        assert_eq!(gate(&only.0, &only.1), Ok(()), "{way:?}");
        if let Some((client, server)) = others {
            let closed = gate(&client, &server);
            assert!(
                matches!(closed, Err(Closed::Undeclared { .. })),
                "{way:?}: {closed:?}"
            );
        }
    }
}

fn flag_at<F: CapabilityFlag>(path: &str) -> F {
    let mut all = F::ALL.iter().copied();
    all.find(|flag| flag.to_string() == path).unwrap()
}

proptest! {
    #[test]
    fn nothing_undeclared_leaves(server in server_flags(), client in client_flags()) {
        let (server, client) = (ServerCapabilities::of(server), ClientCapabilities::of(client));
            for way in every_way() {
            let (sender, method, version) = way;
            let gate = Gate::new(version, &client, &server);
            let is_declared = TABLE.get(&way).is_some_and(|need| match need.split_once('.') {
                Some(("server", path)) => server.declares(flag_at(path)),
                Some((_, path)) => client.declares(flag_at(path)),
                None => need == "-",
            });
            // Forms need their own flag beyond that of the method.
            let has_form = method != Method::Elicit || client.declares(ClientFlag::ElicitationForm);
            prop_assert_eq!(
                send(&gate, sender, method).is_ok(), is_declared && has_form, "{:?}", way
            );
        }
    }
}

/// The payload of a request to a client or of a call, what is declared, and what is missing.
#[test]
fn payloads_need_flags_of_their_own() {
    let check = |method: Method, params: Value, declared: Value, missing: Option<&str>| {
        let sender = match method {
            Method::ToolsCall => Side::Client,
            _ => Side::Server,
        };
        let gate = Gate::new(
            ProtocolVersion::V2025_11_25,
            &client(&declared),
            &server(&declared),
        );
        let text = params.to_string();
        let tape = Tape::parse_str(&text, &Limits::default()).unwrap();
        let found = match gate.request(sender, method, Some(tape.root())) {
            Ok(()) => None,
            Err(Closed::Payload { need, .. }) => Some(named(need)),
            Err(Closed::Unreadable { what, .. }) => Some(what),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(found.as_deref(), missing, "{method} {text} {declared}");
    };
    let forms = || json!({"elicitation": {}});
    let urls = || json!({"elicitation": {"url": {}}});
    let elicit = Method::Elicit;
    check(elicit, json!({}), forms(), None);
    check(elicit, json!({"mode": "form"}), forms(), None);
    check(elicit, json!({"mode": null}), forms(), None);
    check(elicit, json!({}), urls(), Some("client.elicitation.form"));
    check(elicit, json!({"mode": "url"}), urls(), None);
    check(
        elicit,
        json!({"mode": "url"}),
        forms(),
        Some("client.elicitation.url"),
    );
    check(
        elicit,
        json!({"mode": "voice"}),
        forms(),
        Some("mode is neither form nor url"),
    );
    check(
        elicit,
        json!({"mode": 7}),
        forms(),
        Some("mode is neither form nor url"),
    );
    let as_task = Some("client.tasks.requests.elicitation.create");
    check(elicit, json!({"task": {}}), forms(), as_task);
    let sampling = || json!({"sampling": {}});
    let sample = Method::CreateMessage;
    check(sample, json!({"messages": []}), sampling(), None);
    check(
        sample,
        json!({"tools": []}),
        sampling(),
        Some("client.sampling.tools"),
    );
    check(
        sample,
        json!({"toolChoice": {}}),
        sampling(),
        Some("client.sampling.tools"),
    );
    check(
        sample,
        json!({"tools": []}),
        json!({"sampling": {"tools": {}}}),
        None,
    );
    check(sample, json!({"includeContext": "none"}), sampling(), None);
    let context = Some("client.sampling.context");
    check(
        sample,
        json!({"includeContext": "allServers"}),
        sampling(),
        context,
    );
    let as_task = Some("client.tasks.requests.sampling.createMessage");
    check(sample, json!({"task": {}}), sampling(), as_task);
    let call = Method::ToolsCall;
    check(call, json!({"name": "x"}), json!({"tools": {}}), None);
    check(
        call,
        json!({"task": {}}),
        json!({"tools": {}}),
        Some("server.tasks.requests.tools.call"),
    );
    let tasks = json!({"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}});
    check(call, json!({"task": {}}), tasks, None);
}

#[test]
fn a_receiver_ignores_what_it_did_not_declare_of_tasks() {
    let gate = Gate::new(
        ProtocolVersion::V2025_11_25,
        &ClientCapabilities::of([ClientFlag::Sampling]),
        &ServerCapabilities::of([ServerFlag::Tools]),
    );
    let params = r#"{"task":{},"includeContext":"allServers"}"#;
    let tape = Tape::parse_str(params, &Limits::default()).unwrap();
    for (sender, method) in [
        (Side::Client, Method::ToolsCall),
        (Side::Server, Method::CreateMessage),
    ] {
        assert_eq!(gate.inbound(sender, method, Some(tape.root())), Ok(()));
        let sent = gate.request(sender, method, Some(tape.root()));
        assert!(matches!(sent, Err(Closed::Payload { .. })), "{method}");
    }
}

#[test]
fn context_needs_a_flag_only_where_there_is_one() {
    let client = ClientCapabilities::of([ClientFlag::Sampling]);
    let params = r#"{"includeContext":"thisServer"}"#;
    let tape = Tape::parse_str(params, &Limits::default()).unwrap();
    for (version, is_open) in [
        (ProtocolVersion::V2025_06_18, true),
        (ProtocolVersion::V2025_11_25, false),
    ] {
        let gate = Gate::new(version, &client, &ServerCapabilities::none());
        let sent = gate.request(Side::Server, Method::CreateMessage, Some(tape.root()));
        assert_eq!(sent.is_ok(), is_open, "{version}");
    }
}

/// Since 2026-07-28 a server tells only what was asked for.
#[test]
fn modern_notifications_need_an_occasion() {
    let flags = ServerFlag::ALL.iter().copied();
    let gate = |version| {
        Gate::new(
            version,
            &ClientCapabilities::none(),
            &ServerCapabilities::of(flags.clone()),
        )
    };
    let modern = gate(ProtocolVersion::V2026_07_28);
    let one_resource = SubscriptionFilter {
        uris: ["file:///a".to_owned()].into(),
        ..SubscriptionFilter::default()
    };
    let subscribed = Occasion::Subscription(&one_resource);
    let wants = |log_level| Occasion::During { log_level };
    let warnings = wants(Some(LoggingLevel::Warning));
    for (method, params, occasion, is_told) in [
        (Method::Log, json!({"level": "error"}), warnings, true),
        (Method::Log, json!({"level": "warning"}), warnings, true),
        (Method::Log, json!({"level": "info"}), warnings, false),
        (Method::Log, json!({"level": "loud"}), warnings, false),
        (
            Method::Log,
            json!({"level": "emergency"}),
            wants(None),
            false,
        ),
        (
            Method::Log,
            json!({"level": "emergency"}),
            subscribed,
            false,
        ),
        (
            Method::Log,
            json!({"level": "emergency"}),
            Occasion::Unasked,
            false,
        ),
        (Method::Progress, json!({}), wants(None), true),
        (Method::Progress, json!({}), subscribed, false),
        (Method::ToolsListChanged, json!({}), subscribed, false),
        (Method::ToolsListChanged, json!({}), warnings, false),
        (
            Method::ResourceUpdated,
            json!({"uri": "file:///a"}),
            subscribed,
            true,
        ),
        (
            Method::ResourceUpdated,
            json!({"uri": "file:///a/b"}),
            subscribed,
            true,
        ),
        (
            Method::ResourceUpdated,
            json!({"uri": "file:///ab"}),
            subscribed,
            false,
        ),
        (Method::ResourceUpdated, json!({}), subscribed, false),
        (
            Method::ResourceUpdated,
            json!({"uri": "file:///a"}),
            Occasion::Unasked,
            false,
        ),
    ] {
        let text = params.to_string();
        let tape = Tape::parse_str(&text, &Limits::default()).unwrap();
        let told =
            |gate: &Gate| gate.notification(Side::Server, method, Some(tape.root()), occasion);
        let expected = if is_told {
            Ok(())
        } else {
            Err(Closed::Unasked { method })
        };
        assert_eq!(told(&modern), expected, "{method} {text} {occasion:?}");
        assert_eq!(
            told(&gate(ProtocolVersion::V2025_11_25)),
            Ok(()),
            "{method} before"
        );
    }
}
