//! What a server needs from a client between two rounds of a request.
//!
//! A client without a handshake is asked by a result and comes back with the same request. What a server
//! with a handshake asks waits here meanwhile; what one without asks travels with the client.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use abp_json::{Kind, View, Writer};

use super::exchange::{Changes, Running, drive};
use super::fleet::{Ask, Slot, asked};
use super::json;
use crate::meta::{INPUT_KEY, META, RESULT_TYPE};
use crate::method::Method;
use crate::serve::{ClientHandle, McpAnswer, ServedCall, lock};

/// How long a client may take between two rounds.
const BETWEEN_ROUNDS: Duration = Duration::from_secs(600);
/// The most requests that wait for their clients.
const MAX_PARKED: usize = 256;
/// What a question is called that has no name of its own.
const QUESTION: &str = "question";

/// Requests of servers with a handshake that wait for clients without one.
#[derive(Default)]
pub(super) struct Parked(Mutex<BTreeMap<u64, Parking>>);

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
    /// What the server gave it to carry.
    Server {
        server: String,
        state: Option<String>,
    },
}

impl Parked {
    pub(super) fn clear(&self) {
        lock(&self.0).clear();
    }

    fn add(&self, parking: Parking) {
        let mut parked = lock(&self.0);
        parked.retain(|_, one| Instant::now() < one.until);
        if parked.len() >= MAX_PARKED {
            parked.pop_first();
        }
        parked.insert(parking.running.number, parking);
    }

    fn take(&self, number: u64) -> Option<Parking> {
        let parking = lock(&self.0).remove(&number)?;
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
    let number = running.number;
    running.fleet.park(number, None);
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
    parked.add(Parking {
        running,
        until: Instant::now() + BETWEEN_ROUNDS,
    });
    McpAnswer::Result(out.into_text())
}

/// Goes on with a request whose client came back.
pub(super) async fn resume(
    parked: &Parked,
    number: u64,
    call: &ServedCall,
    client: &ClientHandle,
) -> McpAnswer {
    let Some(Parking { running, .. }) = parked.take(number) else {
        return McpAnswer::invalid("the request has ended");
    };
    running.fleet.park(number, Some(client.clone()));
    drive(running, parked, call, client).await
}

/// Gives a client without a handshake what the server asks for, with a state that leads back.
pub(super) fn carry(
    slot: &Slot,
    call: &ServedCall,
    client: &ClientHandle,
    result: &str,
) -> McpAnswer {
    let server = &slot.server.name;
    let wrapped = json::read(Some(result), |result| {
        let given = result.get("requestState").and_then(View::as_str);
        let mut members = vec![("server", server.as_str())];
        members.extend(given.as_deref().map(|given| ("state", given)));
        let state = json::object(&members);
        let sealed = client.seal(call.method, call.params.as_deref(), &state, BETWEEN_ROUNDS);
        json::replaced(result, &[("requestState", Some(&json::text(&sealed)))])
    });
    match wrapped {
        Some(wrapped) => McpAnswer::Result(wrapped),
        None => McpAnswer::internal(format!("server {server}: its answer is no object")),
    }
}

/// Asks a client with a handshake all that a server without one needs.
pub(super) async fn ask_all<'a>(
    client: &ClientHandle,
    result: &str,
) -> Result<Changes<'a>, McpAnswer> {
    let wanted = json::read(Some(result), |result| {
        let requests = result
            .get("inputRequests")
            .into_iter()
            .flat_map(View::entries);
        let requests = requests.filter_map(|(key, request)| {
            let method = Method::parse(&request.get("method")?.as_str()?)?;
            let params = request.get("params").map(|params| params.raw().to_owned());
            Some((key.as_str()?.into_owned(), method, params))
        });
        let state = result
            .get("requestState")
            .map(|state| state.raw().to_owned());
        (requests.collect::<Vec<_>>(), state)
    });
    let (requests, state) = wanted.unwrap_or_default();
    let mut out = Writer::default();
    out.begin_object();
    for (key, method, params) in requests {
        let params = json::with_meta(params.as_deref(), INPUT_KEY, &key);
        match asked(client.ask(method, Some(&params)).await) {
            McpAnswer::Result(given) => {
                out.key(&key);
                out.raw(&given);
            }
            refused => return Err(refused),
        }
    }
    out.end_object();
    Ok(vec![
        ("inputResponses", Some(out.into_text())),
        ("requestState", state),
    ])
}

impl Carried {
    pub(super) fn of(call: &ServedCall) -> Option<Self> {
        let state = call.state.as_deref();
        let read = json::read(state, |state| {
            let text = |key| Some(state.get(key)?.as_str()?.into_owned());
            if let Some(number) = state.get("parked").and_then(View::as_u64) {
                return Some(Self::Parked(number));
            }
            Some(Self::Server {
                server: text("server")?,
                state: text("state"),
            })
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
