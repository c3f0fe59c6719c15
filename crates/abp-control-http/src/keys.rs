//! Keys, and what they used.

use std::time::Duration;

use abp_control::new_key;
use abp_core::MicroUsd;
use abp_error::ErrorCode;
use abp_gateway::{Refusal, current_time, key_hash};
use abp_glob::GlobList;
use abp_store::{ApiKeyRecord, BudgetState, KeyScope, NewApiKey};
use http::StatusCode;
use secrecy::ExposeSecret as _;
use uuid::Uuid;

use crate::api::{
    CreateKeyRequest, CreatedKey, KeyPage, KeyView, RevokedKey, UsageReport, UsageView,
};
use crate::call::{Call, json_reply};
use crate::query::NoQuery;
use crate::table::{RequestDoc, RouteRow, schema_of};

/// The most that a key may spend, in dollars.
const MAX_BUDGET_USD: f64 = 1_000_000_000.0;

pub(crate) fn rows() -> Vec<RouteRow> {
    let admin = KeyScope::Admin;
    vec![
        RouteRow::get(
            "/keys",
            admin,
            "list_keys",
            "Lists keys without their secrets.",
            list,
        ),
        RouteRow::raw(
            http::Method::POST,
            "/keys",
            admin,
            "create_key",
            "Makes a key and shows its secret once.",
            create,
        )
        .takes(RequestDoc::Json(schema_of::<CreateKeyRequest>))
        .answers_json::<CreatedKey>(StatusCode::CREATED, "the key"),
        RouteRow::delete(
            "/keys/{key_id}",
            admin,
            "revoke_key",
            "Revokes a key.",
            revoke,
        ),
        RouteRow::get(
            "/usage",
            KeyScope::Models,
            "get_usage",
            "Reports what keys spent.",
            usage,
        ),
    ]
}

async fn list(call: Call, _: NoQuery) -> Result<KeyPage, Refusal> {
    let keys = call.face.store().await?.api_keys().await?;
    let keys = keys.into_iter().map(key_view).collect();
    Ok(KeyPage { keys })
}

fn key_view(key: ApiKeyRecord) -> KeyView {
    let is_expired = key.expires_at.is_some_and(|end| end <= current_time());
    let state = match key.revoked_at {
        Some(_) => "revoked",
        None if is_expired => "expired",
        None => "active",
    };
    KeyView {
        id: key.id,
        name: key.name,
        state: state.to_owned(),
        scopes: names(&key.scopes),
        models: key.models,
        created_at: key.created_at,
        expires_at: key.expires_at,
        revoked_at: key.revoked_at,
    }
}

fn names(scopes: &[KeyScope]) -> Vec<String> {
    scopes.iter().map(ToString::to_string).collect()
}

async fn create(call: Call) -> Result<abp_gateway_http::HttpReply, Refusal> {
    call.query::<NoQuery>()?;
    let request: CreateKeyRequest = call.body()?;
    let wrong =
        |place: &str, problem: String| Refusal::new(ErrorCode::ValidationFailed, problem).at(place);
    let name_length = request.name.chars().count();
    if !(1..=200).contains(&name_length) {
        return Err(wrong("/name", "a name has 1 to 200 characters".to_owned()));
    }
    GlobList::new(&request.models).map_err(|error| wrong("/models", error.to_string()))?;
    let scopes = match &request.scopes {
        None => KeyScope::USUAL.to_vec(),
        Some(named) => {
            let read = |(index, name): (usize, &String)| {
                KeyScope::from_name(name).ok_or_else(|| {
                    wrong(&format!("/scopes/{index}"), format!("no scope is {name:?}"))
                })
            };
            named
                .iter()
                .enumerate()
                .map(read)
                .collect::<Result<_, _>>()?
        }
    };
    let lifetimes = 1..=3_153_600_000;
    if request
        .expires_in_secs
        .is_some_and(|seconds| !lifetimes.contains(&seconds))
    {
        let problem = "a key is good for 1 second to 100 years".to_owned();
        return Err(wrong("/expires_in_secs", problem));
    }
    let budget = request.budget_usd.map(|dollars| {
        let within = (0.0..=MAX_BUDGET_USD).contains(&dollars);
        let amount = MicroUsd::from_dollars(dollars).filter(|_| within);
        amount.ok_or_else(|| wrong("/budget_usd", "no amount of dollars".to_owned()))
    });
    let secret = new_key()?;
    let random = Uuid::new_v4().simple().to_string();
    let id = format!("key_{}", random.get(..12).unwrap_or(&random));
    let millis = |seconds: u64| {
        let time = Duration::from_secs(seconds);
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    };
    let key = NewApiKey {
        id: id.clone(),
        name: request.name,
        sha256: key_hash(secret.expose_secret().as_bytes()),
        models: request.models,
        scopes: scopes.clone(),
        requests_per_minute: request.requests_per_minute,
        tokens_per_minute: None,
        budget: budget.transpose()?,
        token_budget: None,
        max_output_tokens: None,
        max_concurrent: None,
        max_sessions: None,
        expires_at: request
            .expires_in_secs
            .map(|seconds| current_time().plus_millis(millis(seconds))),
    };
    call.face.store().await?.add_key(key).await?;
    let created = CreatedKey {
        id,
        key: secret.expose_secret().to_owned(),
        scopes: names(&scopes),
    };
    json_reply(StatusCode::CREATED, &created)
}

async fn revoke(call: Call, _: NoQuery) -> Result<RevokedKey, Refusal> {
    let id = call.params.get("key_id").to_owned();
    let store = call.face.store().await?;
    let is_changed = store.revoke_key(&id).await?;
    if !is_changed && !store.api_keys().await?.iter().any(|key| key.id == id) {
        return Err(Refusal::new(ErrorCode::NotFound, "no such key").at("key_id"));
    }
    Ok(RevokedKey { id, is_changed })
}

async fn usage(call: Call, _: NoQuery) -> Result<UsageReport, Refusal> {
    let store = call.face.store().await?;
    let ids: Vec<String> = match call.caller.is_admin() {
        true => store
            .api_keys()
            .await?
            .into_iter()
            .map(|key| key.id)
            .collect(),
        false => vec![call.caller.id().to_owned()],
    };
    let mut keys = Vec::with_capacity(ids.len());
    for id in ids {
        let account = store.budget(&id).await?.unwrap_or_default();
        keys.push(usage_view(id, &account));
    }
    Ok(UsageReport { keys })
}

fn usage_view(key: String, account: &BudgetState) -> UsageView {
    UsageView {
        key,
        requests: account.requests,
        spent_usd: account.spent.dollars(),
        reserved_usd: account.reserved.dollars(),
        budget_usd: account.limit.map(MicroUsd::dollars),
        spent_tokens: account.spent_tokens,
        token_budget: account.token_limit,
    }
}

/// The refusal of a cursor that no page of the caller ended with.
pub(crate) fn wrong_cursor() -> Refusal {
    let message = "the cursor is not one that a page of this list ended with";
    Refusal::new(ErrorCode::ValidationFailed, message).at("cursor")
}
