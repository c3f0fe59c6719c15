//! The transcripts in `fixtures/mcp`: what comes and what is wanted, step by step, and what is to be
//! done about it.
//!
//! A step is an object. One member says what happens ([`ACTIONS`]). All others together are what must
//! come of it. `jsonrpc` is left out of messages, and `modern` beside `recv` stands for the `_meta` of
//! a request with these capabilities.

use std::sync::LazyLock;
use std::time::Duration;

use abp_json::View;
use abp_mcp::message::{Incoming, Malformed, RequestId, parse, read};
use abp_mcp::{
    Arrival, CallAnswer, ClientLifecycle, ClientOffer, ClientTimeouts, Closed, Implementation,
    MESSAGE_LIMITS, Message, Method, Next, NoResult, Offer, Profile, ProtocolVersion, Recipient,
    ServerLifecycle, Side, StateKey,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::support::{client, json_fixture, server};

enum Machine {
    Server(Box<ServerLifecycle>),
    Client(Box<ClientLifecycle>),
}

impl Machine {
    fn new(case: &Value) -> Self {
        let info = Implementation::new("here", "1");
        let versions = |value: &Value| match value.as_array() {
            Some(texts) => texts
                .iter()
                .map(|text| ProtocolVersion::parse(text.as_str().unwrap()).unwrap())
                .collect(),
            None => ProtocolVersion::ALL.to_vec(),
        };
        if let Some(own) = case.get("client") {
            let offer = ClientOffer {
                versions: versions(&own["versions"]),
                capabilities: client(&own["capabilities"]),
                info,
            };
            return Self::Client(Box::new(ClientLifecycle::new(offer, ClientTimeouts::USUAL)));
        }
        let own = &case["server"];
        let offer = Offer {
            versions: versions(&own["versions"]),
            capabilities: server(&own["capabilities"]),
            info,
            instructions: own["instructions"].as_str().map(str::to_owned),
            profile: match own["profile"].as_str() {
                Some("compat") => Profile::Compat,
                None => Profile::Strict,
                other => panic!("there is no profile {other:?}"),
            },
        };
        let key = StateKey::new([1; 32]);
        let timeout = ClientTimeouts::USUAL.request;
        Self::Server(Box::new(ServerLifecycle::new(offer, key, timeout)))
    }

    fn on_message<'t>(&mut self, message: &Message<'t>, now: Duration) -> Next<'t> {
        match self {
            Self::Server(one) => one.on_message(message, Arrival { principal: "", now }),
            Self::Client(one) => one.on_message(message, now),
        }
    }

    fn recv(&mut self, text: &str, now: Duration) -> Value {
        let (batches, version) = match self {
            Self::Server(one) => (one.batches(), one.agreement().map(|it| it.version)),
            Self::Client(one) => (one.batches(), one.agreement().map(|it| it.version)),
        };
        let malformed = |malformed: Malformed| match malformed.answer(version) {
            Some(answer) => json!({"malformed": plain(&answer)}),
            None => json!({}),
        };
        let tape = match parse(text.as_bytes(), &MESSAGE_LIMITS) {
            Ok(tape) => tape,
            Err(error) => return malformed(error),
        };
        match read(&tape, batches) {
            Ok(Incoming::Single(message)) => shown(self.on_message(&message, now)),
            Ok(Incoming::Batch(messages)) => messages
                .into_iter()
                .map(|message| match message {
                    Ok(message) => shown(self.on_message(&message, now)),
                    Err(error) => malformed(error),
                })
                .collect(),
            Err(error) => malformed(error),
        }
    }

    fn respond(&mut self, id: &RequestId, answer: CallAnswer<'_>) -> Result<String, Closed> {
        match self {
            Self::Server(one) => one.respond(id, answer),
            Self::Client(one) => one.respond(id, answer),
        }
    }

    fn ask(
        &mut self,
        method: Method,
        params: Option<&str>,
        now: Duration,
    ) -> Result<String, Closed> {
        let sent = match self {
            Self::Server(one) => one.request(method, params, now),
            Self::Client(one) => one.request(method, params, now),
        };
        sent.map(|(_, text)| text)
    }

    fn tell(
        &self,
        method: Method,
        params: Option<&str>,
        during: Option<&RequestId>,
    ) -> Result<String, Closed> {
        match self {
            Self::Server(one) => one.notify(
                method,
                params,
                during.map_or(Recipient::Connection, Recipient::Request),
            ),
            Self::Client(one) => one.notify(method, params),
        }
    }

    fn due(&mut self, now: Duration) -> Vec<Value> {
        let next = || match self {
            Self::Server(one) => one.due(now),
            Self::Client(one) => one.due(now),
        };
        std::iter::from_fn(next).map(shown).collect()
    }

    fn step(
        &mut self,
        action: &str,
        given: &Value,
        step: &Map<String, Value>,
        now: Duration,
    ) -> Value {
        let part = |index: usize| given.get(index).filter(|part| !part.is_null());
        let text = |index: usize| part(index).map(Value::to_string);
        let method = || Method::parse(part(0).unwrap().as_str().unwrap()).unwrap();
        match action {
            "open" => match self {
                Self::Client(one) => shown(one.open(now)),
                Self::Server(_) => panic!("a server does not open"),
            },
            "recv" => self.recv(&whole(given, step.get("modern")), now),
            "answer" => {
                let sent =
                    self.respond(&id(part(0).unwrap()), CallAnswer::Result(&text(1).unwrap()));
                sent_or_closed(sent)
            }
            "fail" => {
                let code = part(1).unwrap().as_i64().unwrap();
                let data = text(2);
                let error = CallAnswer::Error {
                    code,
                    message: "no",
                    data: data.as_deref(),
                };
                sent_or_closed(self.respond(&id(part(0).unwrap()), error))
            }
            "ask" => sent_or_closed(self.ask(method(), text(1).as_deref(), now)),
            "tell" => {
                let during = part(2).map(id);
                sent_or_closed(self.tell(method(), text(1).as_deref(), during.as_ref()))
            }
            "pass" => json!({"due": self.due(now)}),
            "close" => {
                match self {
                    Self::Server(one) => one.close(),
                    Self::Client(one) => one.close(),
                }
                json!({})
            }
            _ => panic!("there is no step {action}"),
        }
    }
}

const TRANSCRIPTS: [&str; 5] = [
    "server_handshake.json",
    "server_stateless.json",
    "server_sends.json",
    "client_opens.json",
    "client_operates.json",
];

const ACTIONS: [&str; 8] = [
    "open", "recv", "answer", "fail", "ask", "tell", "pass", "close",
];

/// What is to be done, as the transcripts write it.
fn shown(next: Next<'_>) -> Value {
    let params = |params: Option<View<'_>>| {
        params.map_or(Value::Null, |params| {
            serde_json::from_str(params.raw()).unwrap()
        })
    };
    match next {
        Next::Nothing => json!({}),
        Next::Send(text) => json!({"send": plain(&text)}),
        Next::Refuse(refused) => {
            json!({"refuse": plain(&refused.to_json()), "status": refused.http_status()})
        }
        Next::Serve(call) => {
            json!({"serve": call.method.as_str(), "version": call.agreement.version})
        }
        Next::Listen { send, .. } => json!({"listen": plain(&send)}),
        Next::Cancel { id } => json!({"cancel": id.to_string()}),
        Next::Deliver {
            method,
            params: given,
        } => {
            json!({"deliver": method.as_str(), "with": params(given)})
        }
        Next::Settle(settled) => match settled.outcome {
            Ok(result) => {
                json!({"settle": settled.method.as_str(), "result": params(Some(result))})
            }
            Err(NoResult::Error(error)) => {
                json!({"settle": settled.method.as_str(), "error": error.code})
            }
            Err(NoResult::Invalid(closed)) => {
                json!({"settle": settled.method.as_str(), "invalid": closed.to_string()})
            }
        },
        Next::Lapse { method, send, .. } => json!({"lapse": method.as_str(), "send": plain(&send)}),
        Next::Open { send } => json!({"opened": send.map(|text| plain(&text))}),
        Next::Close(breach) => json!({"breach": breach.to_string()}),
        other => panic!("{other:?}"),
    }
}

/// What was sent, or why not; and how the one who waits is refused then.
fn sent_or_closed(sent: Result<String, Closed>) -> Value {
    match sent {
        Ok(text) => json!({"send": plain(&text)}),
        Err(closed) => json!({"closed": closed.to_string()}),
    }
}

/// A message without `jsonrpc`, which every message has. No key is in it twice.
fn plain(text: &str) -> Value {
    let tape = parse(text.as_bytes(), &MESSAGE_LIMITS).unwrap();
    assert!(tape.duplicates().is_empty(), "{text}");
    let mut message: Value = serde_json::from_str(text).unwrap();
    let version = message.as_object_mut().unwrap().remove("jsonrpc");
    assert_eq!(version, Some(json!("2.0")), "{text}");
    message
}

fn whole(message: &Value, modern: Option<&Value>) -> String {
    let mut message = message.clone();
    let versioned = |message: &mut Value| message["jsonrpc"] = json!("2.0");
    match message.as_array_mut() {
        Some(messages) => messages.iter_mut().for_each(versioned),
        None => versioned(&mut message),
    }
    if let Some(capabilities) = modern {
        let meta = &mut message["params"]["_meta"];
        meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        meta["io.modelcontextprotocol/clientCapabilities"] = capabilities.clone();
    }
    message.to_string()
}

fn id(json: &Value) -> RequestId {
    match json {
        Value::String(text) => RequestId::Text(text.clone()),
        number => RequestId::Integer(number.to_string()),
    }
}

fn play(case: &Value) {
    let what = &case["what"];
    let mut machine = Machine::new(case);
    let mut now = Duration::from_secs(1_800_000_000);
    for (index, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        let mut expected = step.as_object().unwrap().clone();
        let action = ACTIONS
            .into_iter()
            .find(|action| step.get(action).is_some());
        let action = action.unwrap_or_else(|| panic!("{what}: {step} does nothing"));
        let given = expected.remove(action).unwrap();
        if action == "pass" {
            now += Duration::from_secs(given.as_u64().unwrap());
        }
        let found = machine.step(action, &given, step.as_object().unwrap(), now);
        expected.remove("modern");
        let expected = match expected.remove("each") {
            Some(each) => each,
            None => Value::Object(expected),
        };
        assert_eq!(found, expected, "{what}, step {index}: {step}");
    }
}

#[test]
fn both_ends_do_as_the_transcripts_say() {
    for file in TRANSCRIPTS {
        json_fixture(file).iter().for_each(play);
    }
}

#[test]
fn an_agreement_says_who_the_server_is_and_how_it_is_used() {
    let me = json!({"name": "s", "version": "2"});
    let modern = json!({
        "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "instructions": "kindly",
        "_meta": {"io.modelcontextprotocol/serverInfo": me},
    });
    let legacy = json!({
        "protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "instructions": "kindly",
        "serverInfo": me,
    });
    for (version, result) in [("2026-07-28", modern), ("2025-06-18", legacy)] {
        let own = json!({"versions": [version], "capabilities": {}});
        let mut machine = Machine::new(&json!({"client": own}));
        let Machine::Client(client) = &mut machine else {
            panic!("it is a client");
        };
        client.open(Duration::ZERO);
        machine.recv(
            &whole(&json!({"id": 1, "result": result}), None),
            Duration::ZERO,
        );
        let Machine::Client(client) = &machine else {
            panic!("it is a client");
        };
        let agreement = client.agreement().unwrap();
        assert_eq!(agreement.version.as_str(), version);
        assert_eq!(agreement.peer.as_ref().unwrap().to_json(), me.to_string());
        assert_eq!(agreement.instructions.as_deref(), Some("kindly"));
        assert_eq!(agreement.server.to_json(), r#"{"tools":{}}"#);
    }
}

/// A result that asks a client for what it did not declare is not sent; the client hears why instead.
#[test]
fn a_client_is_refused_where_it_would_be_asked_for_too_much() {
    let case = json!({"server": {"capabilities": {"tools": {}}}});
    let mut machine = Machine::new(&case);
    let now = Duration::ZERO;
    for (declared, request, required) in [
        (
            json!({}),
            json!({"method": "sampling/createMessage"}),
            json!({"sampling": {}}),
        ),
        (
            json!({}),
            json!({"method": "roots/list"}),
            json!({"roots": {}}),
        ),
        (
            json!({"sampling": {}}),
            json!({"method": "sampling/createMessage", "params": {"tools": []}}),
            json!({"sampling": {"tools": {}}}),
        ),
        (
            json!({"elicitation": {}}),
            json!({"method": "elicitation/create", "params": {"mode": "url"}}),
            json!({"elicitation": {"url": {}}}),
        ),
    ] {
        let call = json!({"id": 1, "method": "tools/call", "params": {"name": "t"}});
        let served = machine.recv(&whole(&call, Some(&declared)), now);
        assert_eq!(served["serve"], "tools/call");
        let result = json!({"resultType": "input_required", "inputRequests": {"k": request}});
        let one = RequestId::from(1);
        let closed = machine
            .respond(&one, CallAnswer::Result(&result.to_string()))
            .unwrap_err();
        let refusal = closed.refusal(Side::Client);
        let sent = machine
            .respond(&one, CallAnswer::Refused(&refusal))
            .unwrap();
        let expected = json!({"id": 1, "error": {
            "code": -32021, "message": "missing required client capability",
            "data": {"requiredCapabilities": required},
        }});
        assert_eq!(plain(&sent), expected);
    }
}

/// The messages of all transcripts, to be sent in any order.
static RECORDED: LazyLock<Vec<String>> = LazyLock::new(|| {
    let cases: Vec<_> = TRANSCRIPTS.into_iter().flat_map(json_fixture).collect();
    let steps = cases
        .iter()
        .flat_map(|case| case["steps"].as_array().unwrap());
    steps
        .filter_map(|step| Some(whole(step.get("recv")?, step.get("modern"))))
        .collect()
});

/// What was answered to a message, or is going to be.
fn answers(found: &Value) -> Vec<&Value> {
    let keys = ["send", "refuse", "serve", "listen", "malformed"];
    keys.iter().filter_map(|key| found.get(key)).collect()
}

proptest! {
    /// Whatever comes in whatever order: every request is answered at once or to be served, and
    /// nothing is answered that is no request.
    #[test]
    fn every_request_is_answered_once(
        picks in prop::collection::vec(any::<prop::sample::Index>(), 1..40),
        versions in prop::sample::subsequence(ProtocolVersion::ALL.to_vec(), 1..=5),
        side in prop::sample::select(vec!["client", "server"]),
    ) {
        let versions: Vec<_> = versions.iter().map(|version| version.as_str()).collect();
        let own = json!({"versions": versions, "capabilities": {"tools": {}, "sampling": {}}});
        let mut machine = Machine::new(&json!({side: own}));
        let now = Duration::ZERO;
        if let Machine::Client(client) = &mut machine {
            client.open(now);
        }
        for pick in picks {
            let text = &RECORDED[pick.index(RECORDED.len())];
            let message: Value = serde_json::from_str(text).unwrap();
            let found = machine.recv(text, now);
            if found.get("breach").is_some() {
                break;
            }
            let is_one = message.get("method").is_some();
            let id = message.get("id");
            match (answers(&found)[..].first(), id) {
                (Some(answer), Some(id)) if is_one => {
                    prop_assert!(answer.get("id").is_none_or(|to| to == id), "{}: {}", text, found);
                }
                (answer, id) if is_one => {
                    prop_assert_eq!(answer.is_some(), id.is_some(), "{}: {}", text, found);
                }
                _ => (),
            }
            prop_assert!(answers(&found).len() <= 1, "{}: {}", text, found);
        }
    }
}
