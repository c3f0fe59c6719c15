//! What a server with a handshake needs from a client without one, between two rounds of a request.
//!
//! Such a client is asked by a result and comes back with the same request. What the server asks waits
//! here meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use abp_json::{Kind, View, Writer};

use super::exchange::{Running, drive};
use super::fleet::{Ask, Fleet};
use super::json;
use crate::meta::{INPUT_KEY, META, RESULT_TYPE};
use crate::serve::{ClientHandle, McpAnswer, ServedCall, lock};

/// How long a client may take between two rounds.
pub(super) const BETWEEN_ROUNDS: Duration = Duration::from_secs(600);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::RequestId;
    use crate::method::Method;

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
