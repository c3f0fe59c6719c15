//! Asking a client for input, in the way of its era.

use std::time::Duration;

use abp_mcp::{
    ClientFlag, ClientHandle, Era, INPUT_KEY, McpAnswer, Method, NoAnswer, ServedCall, Side,
};
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use crate::fixture::{Entry, filled, result};

/// How long a client may take between two rounds.
const BETWEEN_ROUNDS: Duration = Duration::from_secs(60);

/// Asks for all that an entry needs. An error is the answer to give instead of its result.
pub(crate) async fn ask(
    entry: &Entry,
    call: &ServedCall,
    params: &Value,
    client: &ClientHandle,
) -> Result<(), McpAnswer> {
    let wanted = entry.rounds.iter().map(|round| {
        let mut round = round.clone();
        round.retain(|_, request| !entry.only_declared || is_declared(request, client));
        filled(&Value::Object(round), params)
    });
    let rounds: Vec<Value> = wanted.collect();
    match client.era() {
        Era::Legacy => {
            for round in &rounds {
                ask_at_once(round, client).await?;
            }
            Ok(())
        }
        Era::Modern => match next_round(entry, call, params, &rounds) {
            Some((number, round)) => Err(input_required(entry, call, client, number, round)),
            None => Ok(()),
        },
    }
}

/// The round that is not answered yet.
fn next_round<'r>(
    entry: &Entry,
    call: &ServedCall,
    params: &Value,
    rounds: &'r [Value],
) -> Option<(usize, &'r Value)> {
    let asked = call.state.as_deref().and_then(|state| state.parse().ok());
    let given = params.get("inputResponses");
    let number: usize = asked.unwrap_or_default();
    let round = rounds.get(number)?;
    let mut keys = round.as_object().into_iter().flat_map(Map::keys);
    let is_given = |key: &String| {
        given
            .and_then(|given| given.get(key))
            .is_some_and(Value::is_object)
    };
    let is_answered = keys.all(is_given) && (asked.is_some() || !entry.keeps_state);
    if !is_answered {
        return Some((number, round));
    }
    rounds.get(number + 1).map(|round| (number + 1, round))
}

fn input_required(
    entry: &Entry,
    call: &ServedCall,
    client: &ClientHandle,
    number: usize,
    round: &Value,
) -> McpAnswer {
    let mut needed = json!({ "resultType": "input_required", "inputRequests": round });
    if entry.keeps_state {
        let state = number.to_string();
        let sealed = client.seal(call.method, call.params.as_deref(), &state, BETWEEN_ROUNDS);
        if let Some(members) = needed.as_object_mut() {
            members.insert("requestState".to_owned(), sealed.into());
        }
    }
    result(&needed)
}

/// Asks a client with a handshake for everything of a round.
async fn ask_at_once(round: &Value, client: &ClientHandle) -> Result<(), McpAnswer> {
    let mut asked = JoinSet::new();
    for (key, request) in round.as_object().into_iter().flatten() {
        let method = method_of(request).ok_or_else(|| McpAnswer::internal("no such request"))?;
        let mut params = request.get("params").cloned().unwrap_or_default();
        if let Some(params) = params.as_object_mut() {
            params.insert("_meta".to_owned(), json!({ INPUT_KEY: key }));
        }
        let params = Some(params.to_string());
        let client = client.clone();
        asked.spawn(async move { client.ask(method, params.as_deref()).await });
    }
    while let Some(answered) = asked.join_next().await {
        match answered {
            Ok(Ok(_)) => {}
            Ok(Err(NoAnswer::Closed(closed))) => {
                return Err(McpAnswer::Refused(closed.refusal(Side::Client)));
            }
            Ok(Err(other)) => return Err(McpAnswer::internal(other.to_string())),
            Err(error) => return Err(McpAnswer::internal(error.to_string())),
        }
    }
    Ok(())
}

fn is_declared(request: &Value, client: &ClientHandle) -> bool {
    let flag = match method_of(request) {
        Some(Method::CreateMessage) => ClientFlag::Sampling,
        Some(Method::Elicit) => ClientFlag::Elicitation,
        _ => ClientFlag::Roots,
    };
    client.agreement().client.declares(flag)
}

fn method_of(request: &Value) -> Option<Method> {
    Method::parse(request.get("method")?.as_str()?)
}
