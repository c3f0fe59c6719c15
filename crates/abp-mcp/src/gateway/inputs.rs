//! What a server without a handshake needs from a client between two rounds of a request.
//!
//! Such a server answers and forgets: what it gave to carry, and what this end answered already, travels
//! with the client, sealed.

use std::sync::Arc;

use abp_json::{View, Writer};

use super::emulate::Used;
use super::exchange::{Changes, Request};
use super::fleet::{Fleet, Slot, asked};
use super::json;
use super::rounds::BETWEEN_ROUNDS;
use crate::meta::INPUT_KEY;
use crate::method::Method;
use crate::serve::{McpAnswer, ServedCall};
use crate::version::Era;

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
    request: &Request<'_>,
    result: &str,
) -> Result<Changes<'a>, McpAnswer> {
    let server = &slot.server.name;
    let Request { client, used, .. } = request;
    let (mut given, mut left) = (Vec::new(), Vec::new());
    for one in wanted(result) {
        let params = one.params.as_deref();
        let answer = match (fleet.filling.stand_in(one.method, params), client.era()) {
            (Some(stand_in), _) => {
                let answer = stand_in.answer(server, params, used).await;
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
        return Err(carry(server, request, result, &left, &given));
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
    request: &Request<'_>,
    result: &str,
    left: &[(String, String)],
    given: &[(String, String)],
) -> McpAnswer {
    let Request { call, client, used } = request;
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
        if !emulated.is_empty() {
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
