//! Requests of keys with limits: everything that decides is said once, in the dialect's own words.
//!
//! Vendors and the gateways in front of them read more than their dialects document: other names for a
//! limit, names in other capitals (a parser that ignores case takes `"Model"` for `"model"`), lists of
//! models to fall back to. What we check and what they read must not differ, so for a key whose models,
//! answers or spending are limited such members are refused. Keys without limits may send them.

use abp_dialect::{Dialect, WireFamily};
use abp_error::{AbpError, ErrorCode};
use abp_json::{Tape, View};

use super::given_twice;

/// Members that name other models, or who is to answer, at some vendor or gateway.
const DIRECTING: [&str; 17] = [
    "models",
    "model_list",
    "model_id",
    "model_name",
    "engine",
    "engine_id",
    "deployment",
    "deployment_id",
    "fallback",
    "fallbacks",
    "fallback_model",
    "fallback_models",
    "route",
    "provider",
    "providers",
    "preset",
    "extra_body",
];

/// Members that limit an answer or multiply it, in any dialect.
const COUNTS: [&str; 8] = [
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_new_tokens",
    "max_tokens_to_sample",
    "n",
    "best_of",
    "candidate_count",
];

/// Other members whose meaning we rely on.
const RELIED_ON: [&str; 9] = [
    "model",
    "stream",
    "stream_options",
    "generation_config",
    "service_tier",
    "speed",
    "previous_response_id",
    "store",
    "tools",
];

/// The tiers at which a vendor charges no more than the price that is configured.
const TIERS: [&str; 6] = [
    "auto",
    "default",
    "flex",
    "standard",
    "standard_only",
    "batch",
];

/// Refuses what could be read in another way.
pub(super) fn check(
    dialect: Dialect,
    root: View<'_>,
    model_of_route: Option<&str>,
    tape: &Tape<'_>,
) -> Result<(), AbpError> {
    let checked = [Some(root), root.get("stream_options")];
    let config = root.get("generationConfig");
    let config = config.or_else(|| root.get("generation_config"));
    for object in checked.into_iter().chain([config]).flatten() {
        once(object, tape)?;
    }
    let own = root_words(dialect.family());
    let mut limit = None;
    for (key, value) in root.entries() {
        let name = key.as_str().unwrap_or_default();
        plain(&name, own)?;
        let limits = own.contains(&name.as_ref()) && name.starts_with("max_");
        if limits && let Some(before) = limit.replace(name.clone().into_owned()) {
            let why = format!("/{before} limits the answer already");
            return Err(not_taken(&name, &why));
        }
        costs_more(&name, value)?;
    }
    for (key, _) in config.into_iter().flat_map(View::entries) {
        plain(&key.as_str().unwrap_or_default(), CONFIG_WORDS)?;
    }
    // The model in the address is the one that was checked.
    match (model_of_route, root.get("model").and_then(View::as_str)) {
        (Some(route), Some(model)) if model.strip_prefix("models/").unwrap_or(&model) != route => {
            Err(not_taken("model", "the address names another model"))
        }
        _ => Ok(()),
    }
}

/// The counts in the settings of a Gemini request.
const CONFIG_WORDS: &[&str] = &[
    "maxOutputTokens",
    "max_output_tokens",
    "candidateCount",
    "candidate_count",
];

/// The names of a dialect's own for the counts in the root of a request.
fn root_words(family: WireFamily) -> &'static [&'static str] {
    match family {
        WireFamily::Chat => &["max_tokens", "max_completion_tokens", "n"],
        WireFamily::Responses => &["max_output_tokens"],
        WireFamily::Messages => &["max_tokens"],
        WireFamily::GenerateContent => &["generationConfig", "generation_config"],
        _ => &[],
    }
}

fn once(object: View<'_>, tape: &Tape<'_>) -> Result<(), AbpError> {
    for duplicate in tape.duplicates() {
        let key = tape.view(duplicate.key).and_then(View::as_str);
        if duplicate.object == object.id() {
            return Err(given_twice(&key.unwrap_or_default()));
        }
    }
    Ok(())
}

/// Refuses a name that directs, and one that is a word we look at in another spelling.
fn plain(name: &str, own: &[&str]) -> Result<(), AbpError> {
    if own.contains(&name) {
        return Ok(());
    }
    let folded = fold(name);
    let is = |word: &&&str| fold(word) == folded;
    if DIRECTING.iter().any(|word| is(&word)) {
        return Err(not_taken(name, "it may name another model"));
    }
    if COUNTS.iter().any(|word| is(&word)) {
        return Err(not_taken(
            name,
            "the dialect has another name for the limit",
        ));
    }
    match RELIED_ON.iter().find(is) {
        Some(word) if *word != name => Err(not_taken(name, &format!("it may be read as /{word}"))),
        _ => Ok(()),
    }
}

/// A name as the most forgiving parser compares it.
fn fold(name: &str) -> String {
    let letters = name.chars().filter(|one| !matches!(one, '_' | '-' | ' '));
    letters.flat_map(char::to_lowercase).collect()
}

/// Refuses what makes the same tokens cost more than their configured price.
fn costs_more(name: &str, value: View<'_>) -> Result<(), AbpError> {
    let dear = match name {
        "service_tier" => {
            !value.is_null() && value.as_str().is_none_or(|tier| !TIERS.contains(&&*tier))
        }
        "speed" => !value.is_null() && value.as_str().is_none_or(|speed| speed != "standard"),
        _ => false,
    };
    match dear {
        true => Err(not_taken(
            name,
            "it may cost more than the configured price",
        )),
        false => Ok(()),
    }
}

fn not_taken(name: &str, why: &str) -> AbpError {
    let message = format!("/{name} is not taken from a key with limits: {why}");
    AbpError::new(ErrorCode::ValidationFailed, message)
}
