//! Who may ask for what, and how often.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use abp_backend_core::RetryBudget;
use abp_core::{MicroUsd, Timestamp};
use abp_error::{AbpError, ErrorCode};
use abp_glob::GlobList;
use abp_store::{ApiKeyRecord, KeyScope};
use sha2::{Digest as _, Sha256};

use crate::Refusal;
use crate::lock::lock;

/// Gives every principal of the process a number of its own.
static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);

/// A caller, known by its key.
#[derive(Debug)]
pub struct Principal {
    /// Stands for it where it is looked up often.
    pub(crate) number: u64,
    /// What it is recorded as.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// Whether it may do everything, also what concerns others.
    pub is_operator: bool,
    /// What its key may do.
    scopes: Vec<KeyScope>,
    /// The models it may use; all where there is no list.
    models: Option<GlobList>,
    pub(crate) budget: Option<MicroUsd>,
    pub(crate) token_budget: Option<u64>,
    pub(crate) max_output_tokens: Option<u64>,
    /// The most requests at once.
    pub(crate) max_concurrent: Option<u64>,
    /// The most MCP sessions at once.
    pub max_sessions: Option<usize>,
    expires_at: Option<Timestamp>,
    requests: Option<Mutex<Bucket>>,
    tokens: Option<Mutex<Bucket>>,
    /// How many of its requests may be sent again: those of others do not pay for them.
    retries: Mutex<RetryBudget>,
}

impl Principal {
    /// The one that owns the key file.
    #[must_use]
    pub fn operator() -> Self {
        Self {
            number: number(),
            id: "operator".to_owned(),
            name: "operator".to_owned(),
            is_operator: true,
            scopes: vec![KeyScope::Admin],
            models: None,
            budget: None,
            token_budget: None,
            max_output_tokens: None,
            max_concurrent: None,
            max_sessions: None,
            expires_at: None,
            requests: None,
            tokens: None,
            retries: Mutex::default(),
        }
    }

    /// One with a key of its own.
    ///
    /// # Errors
    /// Fails where its list of models cannot be compiled.
    pub fn from_record(record: &ApiKeyRecord) -> Result<Self, AbpError> {
        let models = GlobList::new(&record.models).map_err(|error| {
            AbpError::new(
                ErrorCode::ConfigInvalid,
                format!("key {}: {error}", record.id),
            )
        })?;
        let bucket = |per_minute: u64| Mutex::new(Bucket::new(per_minute, Instant::now()));
        Ok(Self {
            number: number(),
            id: record.id.clone(),
            name: record.name.clone(),
            is_operator: false,
            scopes: record.scopes.clone(),
            models: (!record.models.is_empty()).then_some(models),
            budget: record.budget,
            token_budget: record.token_budget,
            max_output_tokens: record.max_output_tokens,
            max_concurrent: record.max_concurrent.map(u64::from),
            max_sessions: record.max_sessions.map(|most| most as usize),
            expires_at: record.expires_at,
            requests: record.requests_per_minute.map(|rate| bucket(rate.into())),
            tokens: record.tokens_per_minute.map(bucket),
            retries: Mutex::default(),
        })
    }

    /// What its key may do.
    #[must_use]
    pub fn scopes(&self) -> &[KeyScope] {
        &self.scopes
    }

    /// Whether its key may do that.
    #[must_use]
    pub fn may(&self, scope: KeyScope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&KeyScope::Admin)
    }

    /// Whether it may use a model.
    #[must_use]
    pub fn may_use(&self, model: &str) -> bool {
        self.models
            .as_ref()
            .is_none_or(|models| models.is_match(model))
    }

    /// Whether anything that it may use, say or spend is limited.
    pub(crate) fn is_limited(&self) -> bool {
        let budgets = self.has_budget() || self.tokens.is_some();
        budgets || self.models.is_some() || self.max_output_tokens.is_some()
    }

    /// Whether what it spends is limited.
    #[must_use]
    pub fn has_budget(&self) -> bool {
        self.budget.is_some() || self.token_budget.is_some()
    }

    pub(crate) fn retries(&self) -> MutexGuard<'_, RetryBudget> {
        lock(&self.retries)
    }

    /// Counts a request that is about to be made.
    pub(crate) fn count_request(&self, now: Instant) -> Result<(), Refusal> {
        if let Some(wait) = self
            .tokens
            .as_ref()
            .and_then(|tokens| lock(tokens).debt(now))
        {
            return Err(too_often("tokens", wait));
        }
        if let Some(requests) = &self.requests
            && let Err(wait) = lock(requests).take(1.0, now)
        {
            return Err(too_often("requests", wait));
        }
        Ok(())
    }

    /// Counts tokens that were used. They are known only afterwards, so this may leave a debt that has
    /// to be waited for.
    pub(crate) fn spend_tokens(&self, count: u64, now: Instant) {
        if let Some(tokens) = &self.tokens {
            lock(tokens).charge(count, now);
        }
    }

    fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

fn number() -> u64 {
    LAST_NUMBER.fetch_add(1, Ordering::Relaxed)
}

fn too_often(what: &str, wait: Duration) -> Refusal {
    let message = format!("the key's limit of {what} per minute is reached");
    let context = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    Refusal::from(
        AbpError::new(ErrorCode::RateLimitExceeded, message)
            .with_context("retry_after_ms", context),
    )
    .retry_after(wait)
}

/// A bucket that fills at a rate and holds what comes in a minute.
#[derive(Debug)]
struct Bucket {
    per_second: f64,
    size: f64,
    level: f64,
    at: Instant,
}

impl Bucket {
    fn new(per_minute: u64, now: Instant) -> Self {
        #[expect(
            clippy::cast_precision_loss,
            reason = "a rate need not be exact beyond 2^53"
        )]
        let size = per_minute.max(1) as f64;
        Self {
            per_second: size / 60.0,
            size,
            level: size,
            at: now,
        }
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.level = (self.level + passed * self.per_second).min(self.size);
        self.at = now;
    }

    fn take(&mut self, amount: f64, now: Instant) -> Result<(), Duration> {
        self.fill(now);
        if self.level < amount {
            return Err(self.wait(amount));
        }
        self.level -= amount;
        Ok(())
    }

    /// How long until there is anything again.
    fn debt(&mut self, now: Instant) -> Option<Duration> {
        self.fill(now);
        (self.level < 1.0).then(|| self.wait(1.0))
    }

    /// How long until there is as much; whatever a vendor counted, a day at most.
    fn wait(&self, amount: f64) -> Duration {
        const LONGEST: f64 = 86_400.0;
        Duration::from_secs_f64(((amount - self.level) / self.per_second).clamp(0.0, LONGEST))
    }

    fn charge(&mut self, count: u64, now: Instant) {
        self.fill(now);
        #[expect(
            clippy::cast_precision_loss,
            reason = "a rate need not be exact beyond 2^53"
        )]
        let count = count as f64;
        self.level -= count;
    }
}

/// The keys that are valid now, by their hash. A key itself is never kept.
#[derive(Debug, Default)]
pub struct CallerKeys {
    keys: RwLock<Known>,
}

/// Keys, and how new they are.
#[derive(Debug, Default)]
struct Known {
    version: u64,
    by_hash: Arc<HashMap<[u8; 32], Arc<Principal>>>,
}

impl CallerKeys {
    /// Replaces all keys, unless newer ones are known: whoever reads them first may be done last.
    pub fn replace(
        &self,
        version: u64,
        keys: impl IntoIterator<Item = ([u8; 32], Arc<Principal>)>,
    ) {
        let mut known = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        if version >= known.version {
            let by_hash = Arc::new(keys.into_iter().collect());
            *known = Known { version, by_hash };
        }
    }

    fn known(&self) -> Arc<HashMap<[u8; 32], Arc<Principal>>> {
        let known = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&known.by_hash)
    }

    /// Who has a key. The key is hashed first, so how long looking it up takes says nothing about it.
    ///
    /// # Errors
    /// Fails in the same way for a key that never was, was revoked or has expired.
    pub fn find(&self, secret: &[u8], now: Timestamp) -> Result<Arc<Principal>, Refusal> {
        let hash = key_hash(secret);
        self.known()
            .get(&hash)
            .filter(|principal| !principal.has_expired(now))
            .cloned()
            .ok_or_else(|| Refusal::new(ErrorCode::Unauthenticated, "the key is not valid"))
    }

    /// Who has the key with this id, where it is still good.
    #[must_use]
    pub fn by_id(&self, id: &str, now: Timestamp) -> Option<Arc<Principal>> {
        let keys = self.known();
        let mut principals = keys.values();
        let found = principals.find(|principal| principal.id == id)?;
        (!found.has_expired(now)).then(|| Arc::clone(found))
    }

    /// The generation of the keys.
    pub(crate) fn version(&self) -> u64 {
        let known = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        known.version
    }

    /// The hash of the operator's key, where there is one.
    pub(crate) fn operator(&self) -> Option<[u8; 32]> {
        let keys = self.known();
        let mut keys = keys.iter();
        let found = keys.find(|(_, principal)| principal.is_operator);
        found.map(|(hash, _)| *hash)
    }

    /// Who has the key with this hash.
    #[must_use]
    pub fn by_hash(&self, hash: &[u8; 32]) -> Option<Arc<Principal>> {
        self.known().get(hash).cloned()
    }
}

/// What is kept of a key.
#[must_use]
pub fn key_hash(secret: &[u8]) -> [u8; 32] {
    Sha256::digest(secret).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_rate_and_no_more() {
        let start = Instant::now();
        let mut bucket = Bucket::new(60, start);
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let taken = (0..100)
            .filter(|_| bucket.take(1.0, at(0.0)).is_ok())
            .count();
        assert_eq!(taken, 60, "a minute's worth at once");
        let wait = bucket.take(1.0, at(0.0)).expect_err("empty");
        assert!(
            wait > Duration::from_millis(900) && wait <= Duration::from_secs(1),
            "{wait:?}"
        );
        let taken = (0..100)
            .filter(|_| bucket.take(1.0, at(10.0)).is_ok())
            .count();
        assert_eq!(taken, 10, "ten seconds later");
        bucket.charge(30, at(10.0));
        let debt = bucket.debt(at(10.0)).expect("a debt");
        assert!(debt > Duration::from_secs(30), "{debt:?}");
        assert_eq!(bucket.debt(at(42.0)), None);
        bucket.charge(u64::MAX, at(42.0));
        let longest = bucket.debt(at(42.0)).expect("a debt");
        assert_eq!(longest, Duration::from_secs(86_400));
    }
}
