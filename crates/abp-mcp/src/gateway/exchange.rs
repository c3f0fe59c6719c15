//! One request of a client with one server, with everything the server asks on the way.
//!
//! What a server needs from a client it asks for in the way of its era; the client is asked in the
//! way of its own. Where they differ, the request waits here for the client to come back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use abp_json::{View, Writer};
use tokio::sync::mpsc;

use super::fleet::{Ask, Fleet, Route, Slot, asked, is_legacy};
use super::json;
use crate::meta::{self, META, RESULT_TYPE};
use crate::method::Method;
use crate::refusal::RpcRefusal;
use crate::serve::{ClientHandle, McpAnswer, ServedCall, lock};
use crate::upstream::{McpUpstream, McpUpstreamError, Pending};
use crate::version::Era;

/// How often a server may ask within one request.
const MAX_ROUNDS: usize = 8;
/// How long a client may take between two rounds.
const BETWEEN_ROUNDS: Duration = Duration::from_secs(600);
/// The most requests that wait for their clients.
const MAX_PARKED: usize = 256;
/// How many questions may wait.
const ASKS: usize = 8;
/// What the one question of a server with a handshake is called.
const QUESTION: &str = "question";

/// Requests of servers with a handshake that wait for clients without one.
#[derive(Default)]
pub(super) struct Parked(Mutex<BTreeMap<u64, Parking>>);

struct Parking {
    running: Running,
    ask: Ask,
    until: Instant,
}

/// A request that is with a server. Dropping it cancels it.
struct Running {
    fleet: Arc<Fleet>,
    number: u64,
    slot: Arc<Slot>,
    upstream: McpUpstream,
    pending: Pending,
    asks: mpsc::Receiver<Ask>,
}

/// What a client carries between two rounds.
enum Carried {
    /// Where the request waits.
    Parked(u64),
    /// What the server gave it to carry.
    Server {
        server: String,
        state: Option<String>,
    },
}

/// What is changed in the parameters of a request for its server.
type Changes<'a> = Vec<(&'a str, Option<String>)>;

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

impl Drop for Running {
    fn drop(&mut self) {
        self.fleet.leave(self.number);
    }
}

/// Serves a request for something with a name.
pub(super) async fn named(
    fleet: &Arc<Fleet>,
    parked: &Parked,
    call: &ServedCall,
    client: &ClientHandle,
) -> McpAnswer {
    let (list, what) = match call.method {
        Method::ToolsCall => (Method::ToolsList, "tool"),
        _ => (Method::PromptsList, "prompt"),
    };
    let Some(shown) = json::member(call.params.as_deref(), "name") else {
        return McpAnswer::invalid(format!("the name of a {what} is missing"));
    };
    let carried = match Carried::of(call) {
        Some(Carried::Parked(number)) => return resume(parked, number, call, client).await,
        Some(Carried::Server { state, .. }) => state,
        None => None,
    };
    let Some(found) = fleet.find(list, &shown).await else {
        return McpAnswer::invalid(format!("there is no {what} {shown:?}"));
    };
    if let Some(said) = &call.said_params {
        let checked = json::read(call.params.as_deref(), |params| {
            found.item.params.check(Some(params), said)
        });
        if let Some(Err(refusal)) = checked {
            return McpAnswer::Refused(refusal);
        }
    }
    let changes = vec![
        ("name", Some(json::text(&found.item.key))),
        ("requestState", carried.map(|state| json::text(&state))),
    ];
    run(fleet, parked, &found.slot, call, client, changes).await
}

/// Serves a request for a resource, by whichever server has it.
pub(super) async fn resource(
    fleet: &Arc<Fleet>,
    parked: &Parked,
    call: &ServedCall,
    client: &ClientHandle,
) -> McpAnswer {
    let Some(uri) = json::member(call.params.as_deref(), "uri") else {
        return McpAnswer::invalid("the uri of a resource is missing");
    };
    let (server, carried) = match Carried::of(call) {
        Some(Carried::Parked(number)) => return resume(parked, number, call, client).await,
        Some(Carried::Server { server, state }) => (Some(server), state),
        None => (None, None),
    };
    let mut owners = fleet.owners(&uri).await;
    if let Some(server) = server {
        owners.retain(|slot| slot.server.name == server);
    }
    let mut last = McpAnswer::Refused(RpcRefusal::UnknownResource { uri });
    for slot in owners {
        let state = carried.as_deref().map(json::text);
        let answer = run(
            fleet,
            parked,
            &slot,
            call,
            client,
            vec![("requestState", state)],
        )
        .await;
        match answer {
            McpAnswer::Result(_) => return answer,
            McpAnswer::Refused(_) | McpAnswer::Error(_) => last = answer,
        }
    }
    last
}

/// Serves a request for completions, by the server of what is to be completed.
pub(super) async fn completion(
    fleet: &Arc<Fleet>,
    call: &ServedCall,
    client: &ClientHandle,
) -> McpAnswer {
    let params = call.params.as_deref();
    let reference = json::read(params, |params| {
        let reference = params.get("ref")?;
        let text = |key| Some(reference.get(key)?.as_str()?.into_owned());
        Some((text("name"), text("uri"), reference.raw().to_owned()))
    });
    let Some((name, uri, reference)) = reference.flatten() else {
        return McpAnswer::invalid("ref is missing");
    };
    let (slot, reference) = match (name, uri) {
        (Some(shown), _) => {
            let Some(found) = fleet.find(Method::PromptsList, &shown).await else {
                return McpAnswer::invalid(format!("there is no prompt {shown:?}"));
            };
            let name = json::text(&found.item.key);
            let renamed = json::read(Some(&reference), |object| {
                json::replaced(object, &[("name", Some(&name))])
            });
            (found.slot, renamed.unwrap_or(reference))
        }
        (None, Some(uri)) => match fleet.owners(&uri).await.into_iter().next() {
            Some(slot) => (slot, reference),
            None => return McpAnswer::Refused(RpcRefusal::UnknownResource { uri }),
        },
        (None, None) => return McpAnswer::invalid("ref has neither name nor uri"),
    };
    let changes = vec![("ref", Some(reference))];
    run(fleet, &Parked::default(), &slot, call, client, changes).await
}

async fn run(
    fleet: &Arc<Fleet>,
    parked: &Parked,
    slot: &Arc<Slot>,
    call: &ServedCall,
    client: &ClientHandle,
    mut changes: Changes<'_>,
) -> McpAnswer {
    for _ in 0..MAX_ROUNDS {
        let running = match start(fleet, slot, call, client, &changes).await {
            Ok(running) => running,
            Err(answer) => return answer,
        };
        let upstream = running.upstream.clone();
        let answer = drive(running, parked, call, client).await;
        let McpAnswer::Result(result) = &answer else {
            return answer;
        };
        let wants_input = json::read(Some(result), |result| {
            meta::result_type(result).as_deref() == Some("input_required")
        });
        match (is_legacy(&upstream), wants_input, client.era()) {
            (false, Some(true), Era::Modern) => return carry(slot, call, client, result),
            (false, Some(true), Era::Legacy) => match ask_all(client, result).await {
                Ok(next) => {
                    changes.retain(|(key, _)| !matches!(*key, "requestState" | "inputResponses"));
                    changes.extend(next);
                }
                Err(refused) => return refused,
            },
            _ => return answer,
        }
    }
    McpAnswer::internal(format!("server {} asks too often", slot.server.name))
}

/// Sends the request to its server.
async fn start(
    fleet: &Arc<Fleet>,
    slot: &Arc<Slot>,
    call: &ServedCall,
    client: &ClientHandle,
    changes: &Changes<'_>,
) -> Result<Running, McpAnswer> {
    let failed = |why: &str| McpAnswer::internal(format!("server {}: {why}", slot.server.name));
    let upstream = fleet.upstream(slot).await.map_err(|why| failed(&why))?;
    let number = fleet.number();
    let level = match call.log_level {
        Some(level) if is_legacy(&upstream) => {
            slot.set_level(level.as_str()).await;
            None
        }
        Some(level) => Some(level.as_str().to_owned()),
        None => fleet.level().filter(|_| !is_legacy(&upstream)),
    };
    let params = call.params.as_deref().unwrap_or("{}");
    let prepared = json::read(Some(params), |params| {
        let passed = json::passed_meta(params, &number.to_string(), level.as_deref());
        let mut members: Vec<_> = changes
            .iter()
            .map(|(key, json)| (*key, json.as_deref()))
            .collect();
        members.push((META, passed.as_deref()));
        let token = params.get(META).and_then(|meta| meta.get("progressToken"));
        let token = token.map(|token| token.raw().to_owned());
        (json::replaced(params, &members), token)
    });
    let (params, token) = prepared.ok_or_else(|| McpAnswer::invalid("params is not an object"))?;
    let pending = match upstream.request(call.method, Some(&params)).await {
        Ok(pending) => pending,
        Err(error) => return Err(failed(&error.to_string())),
    };
    let (sender, asks) = mpsc::channel(ASKS);
    let route = Route {
        server: slot.server.name.clone(),
        upstream_id: pending.id().clone(),
        client: client.clone(),
        token,
        asks: sender,
        is_parked: false,
    };
    fleet.enter(number, route);
    Ok(Running {
        fleet: Arc::clone(fleet),
        number,
        slot: Arc::clone(slot),
        upstream,
        pending,
        asks,
    })
}

/// Waits for the answer of a server, and asks the client what the server asks.
async fn drive(
    mut running: Running,
    parked: &Parked,
    call: &ServedCall,
    client: &ClientHandle,
) -> McpAnswer {
    loop {
        let ask = tokio::select! {
            outcome = running.pending.result() => return finish(&running, outcome, client.era()),
            Some(ask) = running.asks.recv() => ask,
        };
        if client.era() == Era::Modern {
            return park(parked, running, ask, call, client);
        }
        tokio::select! {
            answered = client.ask(ask.method, ask.params.as_deref()) => {
                running.upstream.answer(&ask.id, &asked(answered)).await;
            }
            outcome = running.pending.result() => return finish(&running, outcome, client.era()),
        }
    }
}

fn finish(running: &Running, outcome: Result<String, McpUpstreamError>, client: Era) -> McpAnswer {
    let result = match outcome {
        Ok(result) => result,
        Err(McpUpstreamError::Answered(error)) => return McpAnswer::Error(error),
        Err(error) => {
            let server = &running.slot.server.name;
            return McpAnswer::internal(format!("server {server}: {error}"));
        }
    };
    let upstream = if is_legacy(&running.upstream) {
        Era::Legacy
    } else {
        Era::Modern
    };
    // With a handshake the member means nothing; what a server writes there is not passed on.
    let is_foreign = upstream == Era::Legacy || client == Era::Legacy;
    let wants_input = json::read(Some(&result), |result| {
        upstream == Era::Modern && meta::result_type(result).as_deref() == Some("input_required")
    });
    if !is_foreign || wants_input == Some(true) {
        return McpAnswer::Result(result);
    }
    let stripped = json::read(Some(&result), |result| {
        json::replaced(result, &[(RESULT_TYPE, None)])
    });
    McpAnswer::Result(stripped.unwrap_or(result))
}

/// Lets a request wait until its client comes back with what the server asks for.
fn park(
    parked: &Parked,
    running: Running,
    ask: Ask,
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
    out.begin_object();
    out.key(QUESTION);
    out.begin_object();
    out.key("method");
    out.string(ask.method.as_str());
    if let Some(params) = &ask.params {
        out.key("params");
        out.raw(params);
    }
    out.end_object();
    out.end_object();
    out.key("requestState");
    out.string(&sealed);
    out.end_object();
    parked.add(Parking {
        running,
        ask,
        until: Instant::now() + BETWEEN_ROUNDS,
    });
    McpAnswer::Result(out.into_text())
}

/// Goes on with a request whose client came back.
async fn resume(
    parked: &Parked,
    number: u64,
    call: &ServedCall,
    client: &ClientHandle,
) -> McpAnswer {
    let Some(Parking { running, ask, .. }) = parked.take(number) else {
        return McpAnswer::invalid("the request has ended");
    };
    let given = json::read(call.params.as_deref(), |params| {
        let given = params.get("inputResponses")?.get(QUESTION)?;
        Some(given.raw().to_owned())
    });
    let Some(given) = given.flatten() else {
        return park(parked, running, ask, call, client);
    };
    running.fleet.park(number, Some(client.clone()));
    running
        .upstream
        .answer(&ask.id, &McpAnswer::Result(given))
        .await;
    drive(running, parked, call, client).await
}

/// Gives a client without a handshake what the server asks for, with a state that leads back.
fn carry(slot: &Slot, call: &ServedCall, client: &ClientHandle, result: &str) -> McpAnswer {
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
async fn ask_all<'a>(client: &ClientHandle, result: &str) -> Result<Changes<'a>, McpAnswer> {
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
        match asked(client.ask(method, params.as_deref()).await) {
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
    fn of(call: &ServedCall) -> Option<Self> {
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
