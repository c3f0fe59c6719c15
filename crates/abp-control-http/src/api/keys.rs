//! Keys, what they used, and the exchanges they made.

use abp_core::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The keys.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct KeyPage {
    /// Every key, revoked ones included.
    pub keys: Vec<KeyView>,
}

/// A key, without its secret.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct KeyView {
    /// Its public name.
    pub id: String,
    /// What its owner calls it.
    pub name: String,
    /// `active`, `expired` or `revoked`.
    pub state: String,
    /// What it may do.
    pub scopes: Vec<String>,
    /// The models it may use, as globs; none means all.
    pub models: Vec<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it is no longer good.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// A key to be made.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateKeyRequest {
    /// What its owner calls it.
    #[schemars(length(min = 1, max = 200))]
    pub name: String,
    /// What it may do; `models` and `assist` where the list is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<String>>,
    /// The models it may use, as globs; none means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// How much it may spend, in dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1_000_000_000.0))]
    pub budget_usd: Option<f64>,
    /// How many requests it may make in a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u32>,
    /// How many seconds it is good for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3_153_600_000_u64))]
    pub expires_in_secs: Option<u64>,
}

/// A key that was made. The secret is shown this once.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CreatedKey {
    /// Its public name.
    pub id: String,
    /// The secret.
    pub key: String,
    /// What it may do.
    pub scopes: Vec<String>,
}

/// A key that was revoked.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RevokedKey {
    /// Its public name.
    pub id: String,
    /// Whether this request changed anything.
    pub is_changed: bool,
}

/// What keys used.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct UsageReport {
    /// The caller's own key; every key for the scope `admin`.
    pub keys: Vec<UsageView>,
}

/// What a key used.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct UsageView {
    /// The key.
    pub key: String,
    /// How many exchanges it began.
    pub requests: u64,
    /// What it spent, in dollars.
    pub spent_usd: f64,
    /// What exchanges under way may cost, in dollars.
    pub reserved_usd: f64,
    /// What it may spend, in dollars.
    pub budget_usd: Option<f64>,
    /// The tokens it used.
    pub spent_tokens: u64,
    /// The tokens it may use.
    pub token_budget: Option<u64>,
}
