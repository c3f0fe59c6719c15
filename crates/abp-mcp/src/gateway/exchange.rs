//! One request of a client with one server, with everything the server asks on the way.
//!
//! What a server needs from a client it asks for in the way of its era; the client is asked in the
//! way of its own. Where they differ, the request waits here for the client to come back.

use std::sync::Arc;
use std::time::Duration;

use abp_json::Kind;
use tokio::sync::mpsc;

use super::emulate::Used;
use super::fleet::{Ask, Fleet, Route, Slot, asked, is_legacy};
use super::inputs::{self, Baggage, Carried};
use super::rounds::{self, Parked, Questions};
use super::{McpScope, json};
use crate::meta::{self, META, RESULT_TYPE};
use crate::method::Method;
use crate::refusal::{RpcRefusal, code};
use crate::serve::{ClientHandle, ForeignError, McpAnswer, ServedCall};
use crate::upstream::{McpUpstream, McpUpstreamError, Pending};
use crate::version::Era;

/// How often a server may ask within one request.
const MAX_ROUNDS: usize = 8;
/// How many questions may wait.
const ASKS: usize = 8;
/// Questions that come so soon after one another are given to a client together. A server that sends
/// them at once may still be held up for 40 ms by the network.
const AT_ONCE: Duration = Duration::from_millis(60);

/// A request that is with a server. Dropping it cancels it.
pub(super) struct Running {
    pub(super) fleet: Arc<Fleet>,
    pub(super) number: u64,
    slot: Arc<Slot>,
    upstream: McpUpstream,
    pending: Pending,
    asks: mpsc::Receiver<Ask>,
    pub(super) questions: Questions,
    /// What this end filled in.
    used: Arc<Used>,
}

/// A request of a client, with what was filled in for it so far.
pub(super) struct Request<'a> {
    pub(super) call: &'a ServedCall,
    pub(super) client: &'a ClientHandle,
    pub(super) used: Arc<Used>,
}

/// What is changed in the parameters of a request for its server.
pub(super) type Changes<'a> = Vec<(&'a str, Option<String>)>;

impl Drop for Running {
    fn drop(&mut self) {
        self.fleet.leave(self.number);
        self.used.stop();
    }
}

/// Serves a request for something with a name.
pub(super) async fn named(
    fleet: &Arc<Fleet>,
    scope: &McpScope,
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
        Some(Carried::Parked(number)) => {
            return rounds::resume(fleet, parked, number, call, client).await;
        }
        Some(Carried::Server(baggage)) => baggage,
        None => Baggage::default(),
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
    let mut changes = carried.changes(call.params.as_deref());
    changes.push(("name", Some(json::text(&found.item.key))));
    let request = Request {
        call,
        client,
        used: carried.used(),
    };
    // A request that goes on from a round before was let through then.
    let is_new_call = call.method == Method::ToolsCall && call.state.is_none();
    let Some(desk) = scope.tools.as_ref().filter(|_| is_new_call) else {
        return run(fleet, parked, &found.slot, &request, changes).await;
    };
    let tool = found.tool();
    if let Err(refused) = desk.admit(&tool).await {
        return refused;
    }
    let answer = run(fleet, parked, &found.slot, &request, changes).await;
    desk.answered(&tool, &answer);
    answer
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
    let carried = match Carried::of(call) {
        Some(Carried::Parked(number)) => {
            return rounds::resume(fleet, parked, number, call, client).await;
        }
        Some(Carried::Server(baggage)) => baggage,
        None => Baggage::default(),
    };
    let mut owners = fleet.owners(&uri).await;
    if let Some(server) = &carried.server {
        owners.retain(|slot| slot.server.name == *server);
    }
    let mut last = McpAnswer::Refused(RpcRefusal::UnknownResource { uri });
    for slot in owners {
        let changes = carried.changes(call.params.as_deref());
        let request = Request {
            call,
            client,
            used: carried.used(),
        };
        let answer = run(fleet, parked, &slot, &request, changes).await;
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
    let request = Request {
        call,
        client,
        used: Arc::default(),
    };
    run(fleet, &Parked::default(), &slot, &request, changes).await
}

async fn run(
    fleet: &Arc<Fleet>,
    parked: &Parked,
    slot: &Arc<Slot>,
    request: &Request<'_>,
    mut changes: Changes<'_>,
) -> McpAnswer {
    let Request { call, client, .. } = request;
    for _ in 0..MAX_ROUNDS {
        let running = match start(fleet, slot, request, &changes).await {
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
        if is_legacy(&upstream) || wants_input != Some(true) {
            return answer;
        }
        match inputs::gather(fleet, slot, request, result).await {
            Ok(next) => {
                changes.retain(|(key, _)| !matches!(*key, "requestState" | "inputResponses"));
                changes.extend(next);
            }
            Err(answer) => return answer,
        }
    }
    McpAnswer::internal(format!("server {} asks too often", slot.server.name))
}

/// Sends the request to its server.
async fn start(
    fleet: &Arc<Fleet>,
    slot: &Arc<Slot>,
    request: &Request<'_>,
    changes: &Changes<'_>,
) -> Result<Running, McpAnswer> {
    let Request { call, client, used } = request;
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
    let begun = upstream.begin(call.method, Some(&params));
    let (pending, text) = begun.map_err(|error| failed(&error.to_string()))?;
    let (sender, asks) = mpsc::channel(ASKS);
    let route = Route {
        server: slot.server.name.clone(),
        upstream_id: pending.id().clone(),
        client: (*client).clone(),
        token,
        asks: sender,
        is_parked: false,
        used: Arc::clone(used),
    };
    // The server may ask as soon as it has the request.
    fleet.enter(number, route);
    upstream.send(text).await;
    Ok(Running {
        fleet: Arc::clone(fleet),
        number,
        slot: Arc::clone(slot),
        upstream,
        pending,
        asks,
        questions: Questions::default(),
        used: Arc::clone(used),
    })
}

/// Waits for the answer of a server, and asks the client what the server asks.
pub(super) async fn drive(
    mut running: Running,
    parked: &Parked,
    call: &ServedCall,
    client: &ClientHandle,
) -> McpAnswer {
    loop {
        if client.era() == Era::Modern {
            running.answer_given(call).await;
            if !running.questions.is_empty() {
                return rounds::park(parked, running, call, client);
            }
        }
        let ask = tokio::select! {
            outcome = running.pending.result() => return finish(&running, outcome, client.era()),
            Some(ask) = running.asks.recv() => ask,
        };
        if client.era() == Era::Modern {
            running.gather(ask).await;
            continue;
        }
        tokio::select! {
            answered = client.ask(ask.method, ask.params.as_deref()) => {
                running.upstream.answer(&ask.id, &asked(answered)).await;
            }
            outcome = running.pending.result() => return finish(&running, outcome, client.era()),
        }
    }
}

impl Running {
    /// Takes a question and those that come with it.
    async fn gather(&mut self, first: Ask) {
        self.questions.add(first);
        while let Ok(Some(ask)) = tokio::time::timeout(AT_ONCE, self.asks.recv()).await {
            self.questions.add(ask);
        }
    }

    /// Gives the server what the client's request answers.
    async fn answer_given(&mut self, call: &ServedCall) {
        for (ask, given) in self.questions.take_answered(call.params.as_deref()) {
            let answer = McpAnswer::Result(given);
            self.upstream.answer(&ask.id, &answer).await;
        }
    }
}

fn finish(running: &Running, outcome: Result<String, McpUpstreamError>, client: Era) -> McpAnswer {
    let result = match outcome {
        Ok(result) => result,
        Err(McpUpstreamError::Answered(error)) => {
            return McpAnswer::Error(with_modern_code(error, client));
        }
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
    if wants_input == Some(true) {
        return McpAnswer::Result(result);
    }
    let stripped = is_foreign.then(|| {
        json::read(Some(&result), |result| {
            json::replaced(result, &[(RESULT_TYPE, None)])
        })
    });
    let result = stripped.flatten().unwrap_or(result);
    McpAnswer::Result(running.used.label(result))
}

/// A server with a handshake has no code for what its client did not declare; since 2026-07-28 there is
/// one.
fn with_modern_code(error: ForeignError, client: Era) -> ForeignError {
    let names_capabilities = json::read(error.data.as_deref(), |data| {
        let required = data.get("requiredCapabilities");
        required.is_some_and(|required| required.kind() == Kind::Object)
    });
    let is_meant = error.code == code::METHOD_NOT_FOUND && names_capabilities == Some(true);
    match client {
        Era::Modern if is_meant => ForeignError {
            code: code::MISSING_CLIENT_CAPABILITY,
            ..error
        },
        Era::Modern | Era::Legacy => error,
    }
}
