//! `abp keys`: who may use the gateway, for what, and how much of it they used.

use std::time::Duration;

use abp_config::Config;
use abp_control::{new_key, operator_key, operator_key_file};
use abp_core::MicroUsd;
use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_gateway::{current_time, key_hash};
use abp_glob::GlobList;
use abp_store::{ApiKeyRecord, BudgetState, KeyScope, NewApiKey, Store};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::args::{GlobalArgs, KeyLimits, KeysArgs, KeysCommand, NewKeyArgs};
use crate::output::{BAD, DIM, GOOD, Output, STRONG};
use crate::session::{Session, block_on};
use crate::text::one_line;

pub(crate) fn run(
    args: &KeysArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &[], output)?;
    if let KeysCommand::Show { key } = &args.command {
        return show_operator(key, session.config(), output);
    }
    block_on(async {
        let plane = &session.plane;
        match &args.command {
            KeysCommand::Create(args) => create(plane.store().await?, args, output).await?,
            // Only the first key makes a store.
            KeysCommand::List { all } => {
                list(plane.runtime().existing_store().await?, *all, output).await?;
            }
            KeysCommand::Revoke { id } => {
                let store = plane.runtime().existing_store().await?;
                revoke(store.ok_or_else(|| unknown_key(id))?, id, output).await?;
            }
            // Answered above, without a store.
            KeysCommand::Show { .. } => {}
        }
        session.plane.close().await;
        Ok(ExitStatus::Success)
    })
}

/// Prints the operator's key. Looking makes none: the server does when it is started first.
fn show_operator(name: &str, config: &Config, output: &mut Output) -> Result<ExitStatus, AbpError> {
    let file = operator_key_file(config);
    if !file.exists() {
        let message = "there is no operator's key yet; `abp serve` makes one when it starts";
        return Err(AbpError::new(ErrorCode::ConfigInvalid, message));
    }
    let key = operator_key(&file)?;
    if output.is_json() {
        let file = file.display().to_string();
        output.json(&json!({ "id": name, "key": key.expose_secret(), "file": file }))?;
    } else {
        output.line(key.expose_secret());
    }
    Ok(ExitStatus::Success)
}

/// A key that was made, and the only copy of its secret.
pub(crate) struct MadeKey {
    pub(crate) id: String,
    pub(crate) secret: SecretString,
}

/// Makes a key and keeps its hash.
pub(crate) async fn make(
    store: &Store,
    name: &str,
    expires: Option<Duration>,
    scopes: &[KeyScope],
    limits: &KeyLimits,
) -> Result<MadeKey, AbpError> {
    GlobList::new(&limits.models).map_err(|error| {
        AbpError::new(ErrorCode::ValidationFailed, format!("--models: {error}"))
    })?;
    let secret = new_key()?;
    let random = Uuid::new_v4().simple().to_string();
    let id = format!("key_{}", random.get(..12).unwrap_or(&random));
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let key = NewApiKey {
        id: id.clone(),
        name: name.to_owned(),
        sha256: key_hash(secret.expose_secret().as_bytes()),
        models: limits.models.clone(),
        requests_per_minute: limits.rpm,
        tokens_per_minute: limits.tpm,
        budget: limits.budget_usd,
        token_budget: limits.token_budget,
        max_output_tokens: limits.max_output_tokens,
        max_concurrent: limits.max_concurrent,
        max_sessions: limits.max_sessions,
        scopes: scopes.to_vec(),
        expires_at: expires.map(|time| current_time().plus_millis(millis(time))),
    };
    store.add_key(key).await?;
    Ok(MadeKey { id, secret })
}

async fn create(store: &Store, args: &NewKeyArgs, output: &mut Output) -> Result<(), AbpError> {
    let usual = KeyScope::USUAL;
    let scopes = args.scopes.as_deref().unwrap_or(&usual);
    let made = make(store, &args.name, args.expires, scopes, &args.limits);
    let MadeKey { id, secret } = made.await?;
    let secret = secret.expose_secret();
    if output.is_json() {
        return output
            .json(&json!({ "id": id, "name": args.name, "key": secret, "scopes": scopes }));
    }
    output.field("key", &format!("{STRONG}{secret}{STRONG:#}"));
    output.field("id", &id);
    output.field("name", &args.name);
    let scopes: Vec<_> = scopes.iter().map(|scope| scope.as_str()).collect();
    output.field("scopes", &scopes.join(", "));
    output.line(&format!(
        "{DIM}The key is shown this once; only its hash is kept.{DIM:#}"
    ));
    Ok(())
}

async fn list(store: Option<&Store>, all: bool, output: &mut Output) -> Result<(), AbpError> {
    let mut rows = Vec::new();
    let mut hidden = 0;
    if let Some(store) = store {
        for key in store.api_keys().await? {
            let state = State::of(&key);
            if state != State::Active && !all {
                hidden += 1;
                continue;
            }
            let account = store.budget(&key.id).await?.unwrap_or_default();
            rows.push((key, state, account));
        }
    }
    if output.is_json() {
        let rows: Vec<_> = rows
            .iter()
            .map(|(key, state, account)| to_json(key, *state, account))
            .collect();
        return output.json(&json!({ "keys": rows }));
    }
    for (key, state, account) in &rows {
        print(key, *state, account, output);
    }
    if hidden > 0 {
        output.line(&format!(
            "{DIM}{hidden} revoked or expired, see --all{DIM:#}"
        ));
    }
    Ok(())
}

async fn revoke(store: &Store, id: &str, output: &mut Output) -> Result<(), AbpError> {
    let changed = store.revoke_key(id).await?;
    if !changed && !store.api_keys().await?.iter().any(|key| key.id == id) {
        return Err(unknown_key(id));
    }
    if output.is_json() {
        return output.json(&json!({ "id": id, "revoked": true, "changed": changed }));
    }
    output.line(&if changed {
        format!("{id} is revoked")
    } else {
        format!("{id} was revoked before")
    });
    Ok(())
}

fn unknown_key(id: &str) -> AbpError {
    let message = format!("no key is {id:?}; `abp keys list` shows them");
    AbpError::new(ErrorCode::NotFound, message)
}

/// Whether a key is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Active,
    Expired,
    Revoked,
}

impl State {
    fn of(key: &ApiKeyRecord) -> Self {
        let expired = key.expires_at.is_some_and(|end| end <= current_time());
        match key.revoked_at {
            Some(_) => Self::Revoked,
            None if expired => Self::Expired,
            None => Self::Active,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

fn to_json(key: &ApiKeyRecord, state: State, account: &BudgetState) -> Value {
    let left = left(account);
    json!({
        "id": key.id,
        "name": key.name,
        "state": state.as_str(),
        "scopes": key.scopes,
        "models": key.models,
        "requests_per_minute": key.requests_per_minute,
        "tokens_per_minute": key.tokens_per_minute,
        "max_output_tokens": key.max_output_tokens,
        "max_concurrent": key.max_concurrent,
        "max_sessions": key.max_sessions,
        "requests": account.requests,
        "abandoned": account.abandoned,
        "budget_usd": account.limit.map(MicroUsd::dollars),
        "spent_usd": account.spent.dollars(),
        "reserved_usd": account.reserved.dollars(),
        "left_usd": left.money.map(MicroUsd::dollars),
        "token_budget": account.token_limit,
        "spent_tokens": account.spent_tokens,
        "reserved_tokens": account.reserved_tokens,
        "left_tokens": left.tokens,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
    })
}

/// What a key may still spend, where that is limited.
struct Left {
    money: Option<MicroUsd>,
    tokens: Option<u64>,
}

fn left(account: &BudgetState) -> Left {
    let taken = (account.spent + account.reserved).micros();
    let money = |limit: MicroUsd| MicroUsd::from_micros(limit.micros().saturating_sub(taken));
    let tokens = |limit: u64| {
        limit.saturating_sub(account.spent_tokens.saturating_add(account.reserved_tokens))
    };
    Left {
        money: account.limit.map(money),
        tokens: account.token_limit.map(tokens),
    }
}

fn print(key: &ApiKeyRecord, state: State, account: &BudgetState, output: &mut Output) {
    let (style, word) = match state {
        State::Active => (GOOD, state.as_str()),
        State::Expired | State::Revoked => (BAD, state.as_str()),
    };
    let name = one_line(&key.name);
    output.line(&format!(
        "{STRONG}{}{STRONG:#}  {name}  {style}{word}{style:#}",
        key.id
    ));
    let left = left(account);
    let of_budget = |limit: Option<String>, left: Option<String>| {
        limit.zip(left).map_or_else(String::new, |(limit, left)| {
            format!(" of {limit}, {left} left")
        })
    };
    let text = |amount: MicroUsd| amount.to_string();
    output.line(&format!(
        "  spent     {}{}; {} reserved",
        account.spent,
        of_budget(account.limit.map(text), left.money.map(text)),
        account.reserved
    ));
    let count = |count: u64| count.to_string();
    output.line(&format!(
        "  tokens    {}{}; {} reserved",
        account.spent_tokens,
        of_budget(account.token_limit.map(count), left.tokens.map(count)),
        account.reserved_tokens
    ));
    output.line(&format!("  requests  {}", account.requests));
    let limits = limits(key);
    if !limits.is_empty() {
        output.line(&format!("  limits    {}", one_line(&limits.join(", "))));
    }
}

fn limits(key: &ApiKeyRecord) -> Vec<String> {
    let models = (!key.models.is_empty()).then(|| format!("models {}", key.models.join(" ")));
    let requests = key.requests_per_minute;
    let tokens = key.tokens_per_minute;
    let longest = key.max_output_tokens;
    let limits = [
        models,
        requests.map(|rate| format!("{rate} requests a minute")),
        tokens.map(|rate| format!("{rate} tokens a minute")),
        longest.map(|longest| format!("{longest} tokens an answer")),
        key.max_concurrent
            .map(|most| format!("{most} requests at once")),
        key.max_sessions
            .map(|most| format!("{most} MCP sessions at once")),
        key.expires_at.map(|end| format!("until {end}")),
    ];
    limits.into_iter().flatten().collect()
}
