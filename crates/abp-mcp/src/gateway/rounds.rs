//! What a server needs from a client between two rounds of a request.
//!
//! A client without a handshake is asked by a result and comes back with the same request. What a server
//! with a handshake asks waits here meanwhile; what one without asks travels with the client.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use abp_json::{Kind, View, Writer};

use super::emulate::Used;
use super::exchange::{Changes, Running, drive};
use super::fleet::{Ask, Fleet, Slot, asked};
use super::json;
use crate::meta::{INPUT_KEY, META, RESULT_TYPE};
use crate::method::Method;
use crate::serve::{ClientHandle, McpAnswer, ServedCall, lock};
use crate::version::Era;

/// How long a client may take between two rounds.
const BETWEEN_ROUNDS: Duration = Duration::from_secs(600);
/// The most requests that wait for their clients.
const MAX_PARKED: usize = 256;
/// What a question is called that has no name of its own.
const QUESTION: &str = "question";

/// Requests of servers with a handshake that wait for clients without one. All clients share it, so its
/// numbers are its own.
#[derive(Default)]
pub(super) struct Parked {
    waiting: Mutex<BTreeMap<u64, Parking>>,
    last: AtomicU64,
}

struct Parking {
    running: Running,
    until: Instant,
}

/// What a server with a handshake asked and its client has not answered, by what it is called.
#[derive(Default)]
pub(super) struct Questions {
    open: Vec<(String, Ask)>,
    used: BTreeSet<String>,
}

/// What a client carries between two rounds.
pub(super) enum Carried {
    /// Where the request waits.
    Parked(u64),
    /// What a server gave it to carry, and what it need not be asked.
    Server(Baggage),
}

/// What a request goes on with in its next round.
#[derive(Default)]
pub(super) struct Baggage {
    pub(super) server: Option<String>,
    state: Option<String>,
    /// What this end answered, by the names of the questions, as JSON.
    given: Vec<(String, String)>,
    samples: u32,
    emulated: Vec<String>,
}

impl Parked {
    pub(super) fn clear(&self) {
        lock(&self.waiting).clear();
    }

    fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn add(&self, number: u64, parking: Parking) {
        let mut parked = lock(&self.waiting);
        parked.retain(|_, one| Instant::now() < one.until);
        if parked.len() >= MAX_PARKED {
            parked.pop_first();
        }
        parked.insert(number, parking);
    }

    /// A request comes back to the connections it went out by, or not at all.
    fn take(&self, number: u64, fleet: &Arc<Fleet>) -> Option<Parking> {
        let mut waiting = lock(&self.waiting);
        let is_own = Arc::ptr_eq(&waiting.get(&number)?.running.fleet, fleet);
        let parking = is_own.then(|| waiting.remove(&number)).flatten()?;
        (Instant::now() < parking.until).then_some(parking)
    }
}

impl Questions {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Adds a question. No name is used twice within a request: an answer to one question must not be
    /// taken for that to another.
    pub(super) fn add(&mut self, ask: Ask) {
        let named = json::read(ask.params.as_deref(), |params| {
            Some(params.get(META)?.get(INPUT_KEY)?.as_str()?.into_owned())
        });
        let name = named.flatten().unwrap_or_else(|| QUESTION.to_owned());
        let mut key = name.clone();
        let mut number = 1;
        while !self.used.insert(key.clone()) {
            number += 1;
            key = format!("{name}_{number}");
        }
        self.open.push((key, ask));
    }

    /// Takes those out that the parameters of a request answer.
    pub(super) fn take_answered(&mut self, params: Option<&str>) -> Vec<(Ask, String)> {
        let given = json::read(params, |params| {
            let responses = params.get("inputResponses");
            let responses = responses.into_iter().flat_map(View::entries);
            let objects = responses.filter(|(_, given)| given.kind() == Kind::Object);
            let named = objects.filter_map(|(key, given)| {
                let key = key.as_str()?.into_owned();
                Some((key, given.raw().to_owned()))
            });
            named.collect::<BTreeMap<_, _>>()
        });
        let mut given = given.unwrap_or_default();
        let mut answered = Vec::new();
        for (key, ask) in std::mem::take(&mut self.open) {
            match given.remove(&key) {
                Some(answer) => answered.push((ask, answer)),
                None => self.open.push((key, ask)),
            }
        }
        answered
    }

    fn write(&self, out: &mut Writer) {
        out.begin_object();
        for (key, ask) in &self.open {
            out.key(key);
            out.begin_object();
            out.key("method");
            out.string(ask.method.as_str());
            if let Some(params) = &ask.params {
                out.key("params");
                out.raw(params);
            }
            out.end_object();
        }
        out.end_object();
    }
}

/// Lets a request wait until its client comes back with what the server asks for.
pub(super) fn park(
    parked: &Parked,
    running: Running,
    call: &ServedCall,
    client: &ClientHandle,
) -> McpAnswer {
    let number = parked.number();
    running.fleet.park(running.number, None);
    let state = format!("{{\"parked\":{number}}}");
    let sealed = client.seal(call.method, call.params.as_deref(), &state, BETWEEN_ROUNDS);
    let mut out = Writer::default();
    out.begin_object();
    out.key(RESULT_TYPE);
    out.string("input_required");
    out.key("inputRequests");
    running.questions.write(&mut out);
    out.key("requestState");
    out.string(&sealed);
    out.end_object();
    let until = Instant::now() + BETWEEN_ROUNDS;
    parked.add(number, Parking { running, until });
    McpAnswer::Result(out.into_text())
}

/// Goes on with a request whose client came back.
pub(super) async fn resume(
    fleet: &Arc<Fleet>,
    parked: &Parked,
    number: u64,
    call: &ServedCall,
    client: &ClientHandle,
) -> McpAnswer {
    let Some(Parking { running, .. }) = parked.take(number, fleet) else {
        return McpAnswer::invalid("the request has ended");
    };
    fleet.park(running.number, Some(client.clone()));
    drive(running, parked, call, client).await
}

/// Something that a server without a handshake needs, by what it calls it.
struct Wanted {
    key: String,
    method: Method,
    params: Option<String>,
    /// All of it, as JSON.
    request: String,
}

/// Answers what a server without a handshake needs: by this end where it fills that in, by a client with
/// a handshake. One without gets the rest, with a state that leads back.
///
/// # Errors
/// The answer to the client, where there is no next round now.
pub(super) async fn gather<'a>(
    fleet: &Fleet,
    slot: &Slot,
    call: &ServedCall,
    client: &ClientHandle,
    result: &str,
    used: &Used,
) -> Result<Changes<'a>, McpAnswer> {
    let server = &slot.server.name;
    let (mut given, mut left) = (Vec::new(), Vec::new());
    for one in wanted(result) {
        let params = one.params.as_deref();
        let answer = match (fleet.filling.question(one.method, params), client.era()) {
            (Some(question), _) => {
                let answer = fleet.filling.answer(question, server, params, used).await;
                on_behalf_of(server, answer)
            }
            (None, Era::Legacy) => {
                let named = json::read(Some(params.unwrap_or("{}")), |params| {
                    json::with_meta(params, INPUT_KEY, &json::text(&one.key))
                });
                asked(client.ask(one.method, named.as_deref()).await)
            }
            (None, Era::Modern) => {
                left.push((one.key, one.request));
                continue;
            }
        };
        match answer {
            McpAnswer::Result(answer) => given.push((one.key, answer)),
            refused => return Err(refused),
        }
    }
    let waits = !left.is_empty() || given.is_empty();
    if client.era() == Era::Modern && waits {
        return Err(carry(server, call, client, result, &left, &given, used));
    }
    let state = json::read(Some(result), |result| {
        Some(result.get("requestState")?.raw().to_owned())
    });
    Ok(vec![
        ("inputResponses", Some(members(&given))),
        ("requestState", state.flatten()),
    ])
}

fn wanted(result: &str) -> Vec<Wanted> {
    let wanted = json::read(Some(result), |result| {
        let requests = result.get("inputRequests");
        let requests = requests.into_iter().flat_map(View::entries);
        let requests = requests.filter_map(|(key, request)| {
            Some(Wanted {
                key: key.as_str()?.into_owned(),
                method: Method::parse(&request.get("method")?.as_str()?)?,
                params: request.get("params").map(|params| params.raw().to_owned()),
                request: request.raw().to_owned(),
            })
        });
        requests.collect()
    });
    wanted.unwrap_or_default()
}

/// What this end refuses a server is no refusal of the client's request: the server cannot go on.
fn on_behalf_of(server: &str, answer: McpAnswer) -> McpAnswer {
    let why = match answer {
        McpAnswer::Result(_) => return answer,
        McpAnswer::Refused(refusal) => refusal.to_string(),
        McpAnswer::Error(error) => error.message,
    };
    McpAnswer::internal(format!("server {server} cannot go on: {why}"))
}

/// Gives a client without a handshake what the server asks for and this end does not answer.
fn carry(
    server: &str,
    call: &ServedCall,
    client: &ClientHandle,
    result: &str,
    left: &[(String, String)],
    given: &[(String, String)],
    used: &Used,
) -> McpAnswer {
    let wrapped = json::read(Some(result), |result| {
        let state = Baggage::write(server, result.get("requestState"), given, used);
        let sealed = client.seal(call.method, call.params.as_deref(), &state, BETWEEN_ROUNDS);
        let (sealed, left) = (json::text(&sealed), members(left));
        let mut changed = vec![("requestState", Some(sealed.as_str()))];
        if !given.is_empty() {
            changed.push(("inputRequests", Some(&left)));
        }
        json::replaced(result, &changed)
    });
    match wrapped {
        Some(wrapped) => McpAnswer::Result(wrapped),
        None => McpAnswer::internal(format!("server {server}: its answer is no object")),
    }
}

fn members(members: &[(String, String)]) -> String {
    let mut out = Writer::default();
    out.begin_object();
    for (key, json) in members {
        out.key(key);
        out.raw(json);
    }
    out.end_object();
    out.into_text()
}

impl Baggage {
    fn write(
        server: &str,
        state: Option<View<'_>>,
        given: &[(String, String)],
        used: &Used,
    ) -> String {
        let mut out = Writer::default();
        out.begin_object();
        out.key("server");
        out.string(server);
        if let Some(state) = state {
            out.key("state");
            out.raw(state.raw());
        }
        let (samples, emulated) = used.carried();
        if !given.is_empty() {
            out.key("given");
            out.raw(&members(given));
            out.key("samples");
            out.raw(&samples.to_string());
            out.key("emulated");
            out.begin_array();
            for name in emulated {
                out.string(name);
            }
            out.end_array();
        }
        out.end_object();
        out.into_text()
    }

    fn read(state: View<'_>) -> Option<Self> {
        let text = |key| Some(state.get(key)?.as_str()?.into_owned());
        let given = state.get("given").into_iter().flat_map(View::entries);
        let given =
            given.map(|(key, json)| Some((key.as_str()?.into_owned(), json.raw().to_owned())));
        let emulated = state.get("emulated").into_iter().flat_map(View::items);
        let samples = state.get("samples").and_then(View::as_u64);
        Some(Self {
            server: Some(text("server")?),
            state: text("state"),
            given: given.collect::<Option<_>>()?,
            samples: u32::try_from(samples.unwrap_or_default()).unwrap_or(u32::MAX),
            emulated: emulated.filter_map(View::as_str).map(Into::into).collect(),
        })
    }

    /// What is changed in the parameters of a request that goes on with it.
    pub(super) fn changes<'a>(&self, params: Option<&str>) -> Changes<'a> {
        let state = self.state.as_deref().map(json::text);
        let mut changes = vec![("requestState", state)];
        if !self.given.is_empty() {
            let given: Vec<_> = self
                .given
                .iter()
                .map(|(key, json)| (key.as_str(), Some(json.as_str())))
                .collect();
            let merged = json::read(params, |params| {
                Some(json::replaced(params.get("inputResponses")?, &given))
            });
            changes.push((
                "inputResponses",
                merged.flatten().or_else(|| Some(members(&self.given))),
            ));
        }
        changes
    }

    /// What was filled in before.
    pub(super) fn used(&self) -> Arc<Used> {
        Arc::new(Used::resumed(self.samples, &self.emulated))
    }
}

impl Carried {
    pub(super) fn of(call: &ServedCall) -> Option<Self> {
        let read = json::read(call.state.as_deref(), |state| {
            match state.get("parked").and_then(View::as_u64) {
                Some(number) => Some(Self::Parked(number)),
                None => Baggage::read(state).map(Self::Server),
            }
        });
        read.flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::RequestId;

    fn ask(params: &str) -> Ask {
        Ask {
            id: RequestId::Text("1".to_owned()),
            method: Method::Elicit,
            params: Some(params.to_owned()),
        }
    }

    /// An answer is for one question: it is not taken again for a later one of the same name.
    #[test]
    fn every_question_has_a_name_of_its_own() {
        let mut questions = Questions::default();
        let named = format!("{{\"_meta\":{{\"{INPUT_KEY}\":\"colour\"}}}}");
        for params in ["{}", named.as_str(), "{}", named.as_str()] {
            questions.add(ask(params));
        }
        let given = r#"{"inputResponses":{"colour":{"action":"accept"},"question_2":7}}"#;
        assert_eq!(questions.take_answered(Some(given)).len(), 1);
        questions.add(ask(&named));
        assert!(questions.take_answered(Some(given)).is_empty());
        let open: Vec<_> = questions.open.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(open, ["question", "question_2", "colour_2", "colour_3"]);
    }
}
