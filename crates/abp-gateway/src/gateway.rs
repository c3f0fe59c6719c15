//! The gateway: one exchange from the caller's request to the caller's answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use abp_backend_core::{CircuitState, ModelOperation, Upstream};
use abp_core::{ExecutionMode, MicroUsd, Outcome, Timestamp};
use abp_dialect::Dialect;
use abp_dialect::sse::SseForm;
use abp_emulation::{EmulationConfig, EmulationEngine};
use abp_error::{AbpError, ErrorCode};
use abp_store::{BudgetState, ExchangeLog, Reservation, Reserved, Store};
use abp_telemetry::{BreakerLevel, MetricsCollector, MetricsSummary};
use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;
use uuid::Uuid;

use crate::admission::{Admission, Pools};
use crate::apart::{apart, is_large};
use crate::ask::{Answer, Ask};
use crate::dispatch::{Planner, Sent};
use crate::keep::{Continued, Pending};
use crate::ledgers::{Ledgers, REQUEST};
use crate::lock::lock;
use crate::principal::{CallerKeys, Principal};
use crate::route::{Choice, Choices, Member, Routes, UpstreamRules, seed};
use crate::scan::{Caller, Scan};
use crate::spend::{Most, output_limit};
use crate::tally::{Received, Room, Tally, now};
use crate::watch::Watchers;
use crate::whole::{is_json, is_stream};
use crate::{Refusal, headers, stream};

/// What is recorded of an exchange in which a model is asked for an answer.
pub(crate) const GENERATE: &str = "generate";

/// The shortest time between two looks into the store for keys that are not known.
const KEY_LOOKS: Duration = Duration::from_millis(20);

/// How the gateway behaves.
#[derive(Debug, Clone)]
pub struct GatewaySettings {
    /// How often a request is sent at most.
    pub max_attempts: usize,
    /// How many exchanges are under way at most.
    pub max_concurrent: usize,
    /// How many bytes of requests are in memory at most.
    pub max_body_bytes: u64,
    /// How long a caller of a translated stream hears nothing at most.
    pub keep_alive: Duration,
    /// Emulation strategies that replace the defaults.
    pub emulation: EmulationConfig,
    /// Where exchanges are counted; a collector of its own when absent.
    pub metrics: Option<Arc<MetricsCollector>>,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            max_concurrent: 4096,
            max_body_bytes: 128 << 20,
            keep_alive: Duration::from_secs(15),
            emulation: EmulationConfig::new(),
            metrics: None,
        }
    }
}

/// The vendors' endpoints in front of any upstream.
#[derive(Debug, Clone)]
pub struct Gateway {
    pub(crate) shared: Arc<Shared>,
}

/// What all exchanges share.
#[derive(Debug)]
pub(crate) struct Shared {
    routes: RwLock<Arc<Routes>>,
    pub(crate) settings: GatewaySettings,
    pub(crate) planner: Planner,
    pub(crate) store: Store,
    pub(crate) log: ExchangeLog,
    pub(crate) metrics: Arc<MetricsCollector>,
    pub(crate) ledgers: Ledgers,
    pub(crate) pending: Pending,
    /// Where work goes on that nobody waits for; an answer may be dropped outside of any task.
    pub(crate) tasks: Handle,
    pub(crate) watchers: Watchers,
    keys: CallerKeys,
    /// When the store was last asked for newer keys because of one that is not known.
    keys_looked_at: Mutex<Option<Instant>>,
    pools: Pools,
}

impl Gateway {
    /// A gateway to these upstreams, tried in this order where nothing else decides.
    ///
    /// # Errors
    /// Fails where an upstream's rules are not valid, and outside of a runtime.
    pub fn new(
        upstreams: Vec<(Arc<dyn Upstream>, UpstreamRules)>,
        store: Store,
        settings: GatewaySettings,
    ) -> Result<Self, AbpError> {
        let members = upstreams
            .into_iter()
            .map(|(upstream, rules)| Member::new(upstream, rules).map(Arc::new))
            .collect::<Result<Vec<_>, _>>()?;
        let metrics = settings.metrics.clone().unwrap_or_else(|| {
            Arc::new(MetricsCollector::new(
                members.iter().map(|member| member.name()),
            ))
        });
        Ok(Self {
            shared: Arc::new(Shared {
                metrics,
                routes: RwLock::new(Arc::new(Routes::new(members))),
                keys_looked_at: Mutex::new(None),
                watchers: Watchers::default(),
                planner: Planner::new(EmulationEngine::new(settings.emulation.clone())),
                log: store.exchange_log(),
                store,
                ledgers: Ledgers::default(),
                pending: Pending::default(),
                tasks: Handle::try_current().map_err(|error| {
                    AbpError::new(ErrorCode::Internal, "a gateway needs a runtime")
                        .with_source(error)
                })?,
                keys: CallerKeys::default(),
                pools: Pools::new(settings.max_concurrent, settings.max_body_bytes),
                settings,
            }),
        })
    }

    /// The keys that are valid.
    #[must_use]
    pub fn keys(&self) -> &CallerKeys {
        &self.shared.keys
    }

    /// The store it keeps everything in.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// Where it counts, for others who count as well.
    #[must_use]
    pub fn collector(&self) -> Arc<MetricsCollector> {
        Arc::clone(&self.shared.metrics)
    }

    /// What it counted so far.
    #[must_use]
    pub fn metrics(&self) -> MetricsSummary {
        let (metrics, now) = (&self.shared.metrics, Instant::now());
        for member in &self.shared.routes().members {
            let level = match member.health.worst(now) {
                CircuitState::Closed => BreakerLevel::Closed,
                CircuitState::HalfOpen => BreakerLevel::HalfOpen,
                CircuitState::Open { .. } => BreakerLevel::Open,
            };
            metrics.set_breaker(member.name(), level);
        }
        let ring = self.shared.store.health().exchanges;
        metrics.set_ring(ring.taken_bytes as u64, ring.capacity_bytes as u64);
        metrics.summary()
    }

    /// Reads the keys of the store anew; `operator` is the hash of the operator's own.
    ///
    /// # Errors
    /// Fails where the store cannot be read.
    pub async fn reload_keys(&self, operator: Option<[u8; 32]>) -> Result<(), AbpError> {
        // Read first: the keys are then of this version, or of a later one.
        let version = self.shared.store.keys_version().await?;
        let records = self.shared.store.api_keys().await?;
        let mut keys: HashMap<[u8; 32], Arc<Principal>> = HashMap::new();
        for record in records.iter().filter(|record| record.revoked_at.is_none()) {
            let known = self.shared.keys.by_hash(&record.sha256);
            let principal = match known {
                // Whoever stays keeps what it has used of its rates.
                Some(known) => known,
                None => Arc::new(Principal::from_record(record)?),
            };
            keys.insert(record.sha256, principal);
        }
        if let Some(hash) = operator {
            let known = self.shared.keys.by_hash(&hash);
            let known = known.filter(|known| known.is_operator);
            keys.insert(
                hash,
                known.unwrap_or_else(|| Arc::new(Principal::operator())),
            );
        }
        self.shared.keys.replace(version, keys);
        Ok(())
    }

    /// Reads the keys anew where there are newer ones than are known, so that a key that was made just now
    /// is good at once. Wrong keys make it look no more than fifty times a second.
    pub async fn refresh_keys(&self) {
        {
            let mut last = lock(&self.shared.keys_looked_at);
            if last.is_some_and(|last| last.elapsed() < KEY_LOOKS) {
                return;
            }
            *last = Some(Instant::now());
        }
        let refreshed = async {
            let version = self.shared.store.keys_version().await?;
            if version > self.shared.keys.version() {
                self.reload_keys(self.shared.keys.operator()).await?;
            }
            Ok::<_, AbpError>(())
        };
        if let Err(error) = refreshed.await {
            tracing::error!(target: "abp.gateway", %error, "keys were not read");
        }
    }

    /// Takes over the upstreams of another configuration. Exchanges that are under way end at the upstream
    /// where they began.
    ///
    /// # Errors
    /// Fails, with everything as it was, where an upstream's rules are not valid.
    pub fn replace_upstreams(&self, updates: Vec<UpstreamUpdate>) -> Result<(), AbpError> {
        let known = self.shared.routes();
        let mut members = Vec::new();
        for update in updates {
            match update {
                UpstreamUpdate::Unchanged(name) => {
                    let member = known.members.iter().find(|member| member.name() == name);
                    members.push(Arc::clone(member.ok_or_else(|| {
                        AbpError::new(ErrorCode::Internal, format!("there is no upstream {name}"))
                    })?));
                }
                UpstreamUpdate::Replaced(upstream, rules) => {
                    members.push(Arc::new(Member::new(upstream, *rules)?));
                }
            }
        }
        let routes = &self.shared.routes;
        *routes.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Routes::new(members));
        Ok(())
    }

    /// Lets a request in, whatever it is for: counts it against the key's rate and gives it a place among
    /// all requests. Called before anything of its body is read.
    ///
    /// # Errors
    /// Refuses where the key has used up its rate or its places, and where everything is taken.
    pub fn admit(&self, principal: &Arc<Principal>) -> Result<Admission, Refusal> {
        self.shared.pools.admit(principal)
    }

    /// Carries out an exchange. Whatever happens, the answer is one of the caller's dialect.
    pub async fn exchange(&self, ask: Ask) -> Answer {
        let dialect = ask.dialect;
        match self.shared.carry_out(ask).await {
            Ok(answer) => answer,
            Err(problem) => problem.answer(dialect),
        }
    }

    /// The models that are served by name, with their upstreams, for a caller.
    #[must_use]
    pub fn models(&self, principal: &Principal) -> Vec<ServedModel> {
        let mut served: Vec<ServedModel> = Vec::new();
        for member in &self.shared.routes().members {
            let plain = |name: &&String| !name.contains(['*', '?', '[', '{']);
            let names = member.rules.models.iter().filter(plain);
            for name in names.chain(member.rules.aliases.keys()) {
                let known = served.iter().any(|model| model.name == *name);
                if !known && principal.may_use(name) {
                    served.push(ServedModel {
                        name: name.clone(),
                        upstream: member.name().to_owned(),
                        dialects: member.upstream.descriptor().dialects.clone(),
                    });
                }
            }
        }
        served
    }

    /// A model that is served, by its name or by a pattern, and that a caller may use.
    #[must_use]
    pub fn model(&self, principal: &Principal, name: &str) -> Option<ServedModel> {
        let routes = self.shared.routes();
        let mut members = routes.members.iter();
        let member = members.find(|member| member.serves(name).is_some())?;
        principal.may_use(name).then(|| ServedModel {
            name: name.to_owned(),
            upstream: member.name().to_owned(),
            dialects: member.upstream.descriptor().dialects.clone(),
        })
    }

    /// The upstreams, with how they are.
    #[must_use]
    pub fn upstreams(&self) -> Vec<UpstreamStatus> {
        let now = Instant::now();
        let routes = self.shared.routes();
        let members = routes.members.iter();
        members
            .map(|member| UpstreamStatus {
                name: member.name().to_owned(),
                dialects: member.upstream.descriptor().dialects.clone(),
                circuit: member.health.worst(now),
                models: member.rules.models.clone(),
            })
            .collect()
    }

    /// Forgets answers and reasoning that have been kept for longer, and tells how many there were.
    ///
    /// # Errors
    /// Fails where the store cannot be written.
    pub async fn forget_older_than(&self, keep: Duration) -> Result<u64, AbpError> {
        let millis = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
        let before = now().as_unix_millis().saturating_sub(millis);
        let before = Timestamp::from_unix_millis(before);
        let store = &self.shared.store;
        let answers = store.forget_answers_before(before).await?;
        Ok(answers + store.forget_reasoning_before(before).await?)
    }

    /// Ends in order: everything that was recorded is written, and the store is closed.
    pub async fn close(self) {
        if let Err(error) = self.flush().await {
            tracing::error!(target: "abp.gateway", %error, "the last records were not written");
        }
        self.shared.store.clone().close().await;
    }

    /// Waits until everything that was recorded is durable.
    ///
    /// # Errors
    /// Fails where it cannot be made so.
    pub async fn flush(&self) -> Result<(), AbpError> {
        Ok(self.shared.log.flush().await?)
    }
}

/// An upstream of another configuration.
#[derive(Debug)]
pub enum UpstreamUpdate {
    /// The one of this name stays as it is, with its connections and its health.
    Unchanged(String),
    /// It is new, or another one than before.
    Replaced(Arc<dyn Upstream>, Box<UpstreamRules>),
}

/// A model that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedModel {
    /// The name a caller uses.
    pub name: String,
    /// The first upstream that serves it.
    pub upstream: String,
    /// The dialects that upstream speaks.
    pub dialects: Vec<Dialect>,
}

/// An upstream, and how it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamStatus {
    /// Its name.
    pub name: String,
    /// The dialects it speaks.
    pub dialects: Vec<Dialect>,
    /// Whether it is used.
    pub circuit: CircuitState,
    /// The models it serves, as configured.
    pub models: Vec<String>,
}

impl Shared {
    /// The upstreams of the moment. An exchange that has chosen keeps its own.
    pub(crate) fn routes(&self) -> Arc<Routes> {
        let routes = self.routes.read();
        Arc::clone(&routes.unwrap_or_else(PoisonError::into_inner))
    }

    async fn carry_out(self: &Arc<Self>, mut ask: Ask) -> Result<Answer, Refusal> {
        let room = Room {
            place: ask.admitted.place(),
            record: self.log.admit().ok_or_else(overloaded)?,
        };
        let received = received(&ask.body).await?;
        let mut tally = Tally::new(self, ask.principal(), room, ask.dialect, received);
        tally.join_trace(&ask.headers);
        let run_id = tally.run_id();
        match self.prepared(&mut ask, &mut tally).await {
            Ok((scan, choices)) => self.exchange(&ask, &scan, &choices, tally).await,
            Err(problem) => {
                tally.close(Outcome::Failed, Some(problem.error.code()));
                Err(problem)
            }
        }
        .map_err(|problem| problem.of_run(run_id))
    }

    /// Everything that has to be known, and allowed, before anything is sent.
    async fn prepared(&self, ask: &mut Ask, tally: &mut Tally) -> Result<(Scan, Choices), Refusal> {
        let mut scan = scanned(ask).await?;
        tally.record.model_asked.clone_from(&scan.model);
        tally.record.streamed = scan.stream;
        operation_name(&ask.operation).clone_into(&mut tally.record.operation);
        self.allow(ask, &scan)?;
        let mut home = None;
        if let Some(previous) = &scan.previous {
            let id = &ask.principal().id;
            match self.continued(id, previous, &ask.body).await? {
                Continued::Expanded(body) => ask.body = body,
                Continued::AtVendor(upstream) => home = Some(upstream),
            }
        }
        let mut choices = self.choices(ask, &scan, tally.run_id(), home.as_deref())?;
        if ask.principal().budget.is_some() {
            choices = priced(&choices, &scan.model)?;
        }
        // The request is then another one, and its ledger says so.
        if let Some(most) = output_limit(ask.principal(), &ask.operation, &scan) {
            scan.max_output = Some(most);
            let limited = choices.iter().map(|choice| choice.limited(most));
            choices = limited.map(Arc::new).collect();
        }
        if ask.principal().has_budget() && scan.stream && !scan.asks_usage {
            let counted = choices.iter().map(Choice::counted);
            choices = counted.collect();
        }
        tally.limited(&scan);
        Ok((scan, choices))
    }

    /// The upstreams to try; only `home` where nobody else knows what the request goes on from.
    fn choices(
        &self,
        ask: &Ask,
        scan: &Scan,
        run_id: Uuid,
        home: Option<&str>,
    ) -> Result<Choices, Refusal> {
        let session = headers::session(&ask.headers).or(scan.session.as_deref());
        let seed = seed(session, run_id);
        let mut choices = self.routes().choices(ask.dialect, &scan.model, seed);
        if let Some(home) = home {
            let at_home = choices.iter().filter(|one| one.member.name() == home);
            choices = at_home.cloned().collect();
        }
        if !choices.is_empty() {
            return Ok(choices);
        }
        let model = &scan.model;
        let message = match home {
            None => format!("no upstream serves the model {model}"),
            Some(home) => format!(
                "upstream {home}, which keeps the previous response, does not serve the model {model}"
            ),
        };
        Err(Refusal::new(ErrorCode::BackendModelNotFound, message))
    }

    fn allow(&self, ask: &Ask, scan: &Scan) -> Result<(), Refusal> {
        let principal = ask.principal();
        if !principal.may_use(&scan.model) {
            let message = format!("the key may not use the model {}", scan.model);
            return Err(Refusal::new(ErrorCode::ModelNotAllowed, message));
        }
        if let (Some(most), Some(asked)) = (principal.max_output_tokens, scan.max_output)
            && asked > most
        {
            let asked = match asked {
                u64::MAX => "any number".to_owned(),
                asked => asked.to_string(),
            };
            let message = format!("the key allows {most} tokens of output, not {asked}");
            return Err(Refusal::new(ErrorCode::ValidationFailed, message));
        }
        Ok(())
    }

    async fn exchange(
        self: &Arc<Self>,
        ask: &Ask,
        scan: &Scan,
        choices: &[Arc<Choice>],
        mut tally: Box<Tally>,
    ) -> Result<Answer, Refusal> {
        if ask.operation == ModelOperation::CountTokens {
            return self.count_tokens(ask, scan, choices, tally).await;
        }
        let sent = match self.reserve(ask, scan, choices, &mut tally).await {
            Ok(()) => self.dispatch(ask, scan, choices, &mut tally).await,
            Err(problem) => Err(problem),
        };
        let mut sent = match sent {
            Ok(sent) => sent,
            Err(problem) => {
                tally.close(Outcome::Failed, Some(problem.error.code()));
                return Err(problem);
            }
        };
        tally.account(std::mem::take(&mut sent.planned.ledger), REQUEST);
        tally.emulated(headers::emulated(&sent.planned.emulation));
        let streams = scan.stream && sent.reply.status.is_success();
        if streams && is_streamed(ask, &sent) {
            self.streamed(ask, scan, sent, tally)
        } else if streams && sent.planned.mode == ExecutionMode::Mapped {
            let name = sent.choice.member.name();
            let message = format!("upstream {name} was asked for a stream and sends none");
            tally.close(Outcome::Failed, Some(ErrorCode::BackendBrokenAnswer));
            Err(Refusal::new(ErrorCode::BackendBrokenAnswer, message))
        } else {
            self.whole(ask, scan, sent, tally).await
        }
    }

    /// Takes room in the caller's budget for the most that the request can cost.
    async fn reserve(
        &self,
        ask: &Ask,
        scan: &Scan,
        choices: &[Arc<Choice>],
        tally: &mut Tally,
    ) -> Result<(), Refusal> {
        let principal = ask.principal();
        if !principal.has_budget() {
            return Ok(());
        }
        let most = most(ask, scan, choices).await?;
        let asked = Reservation {
            exchange: tally.run_id(),
            key: principal.id.clone(),
            cost: most.cost,
            tokens: most.tokens,
        };
        // From here on it may be granted, whether or not the caller waits for it; what was not granted is
        // settled without effect.
        tally.reserved(most);
        match self.store.reserve(asked).await? {
            Reserved::Granted => Ok(()),
            Reserved::Refused(state) => Err(no_room(most, &state)),
        }
    }

    /// Puts what was really used in the place of what was reserved.
    pub(crate) fn settle(
        self: &Arc<Self>,
        principal: &Principal,
        run_id: Uuid,
        reserved: bool,
        cost: MicroUsd,
        tokens: u64,
    ) {
        if principal.is_operator || (!reserved && tokens == 0) {
            return;
        }
        let shared = Arc::clone(self);
        let key = principal.id.clone();
        self.tasks.spawn(async move {
            let done = if reserved {
                shared.store.settle(run_id, cost, tokens).await.map(drop)
            } else {
                shared.store.spend(&key, cost, tokens).await.map(drop)
            };
            if let Err(error) = done {
                tracing::error!(target: "abp.gateway", %error, %run_id, "what was used is not settled");
            }
        });
    }
}

/// The body of a request, for its record.
pub(crate) async fn received(body: &Bytes) -> Result<Received, AbpError> {
    let hash = |body: &[u8]| Sha256::digest(body).into();
    let sha256 = match is_large(body) {
        false => hash(body),
        true => {
            let body = body.clone();
            apart(move || hash(&body)).await?
        }
    };
    let bytes = body.len() as u64;
    Ok(Received { sha256, bytes })
}

/// What a request says that matters, and may say under the limits of its key.
async fn scanned(ask: &Ask) -> Result<Scan, AbpError> {
    let scan = |ask: &Ask| {
        let caller = match ask.principal().is_limited() {
            true => Caller::Limited,
            false => Caller::Free,
        };
        let model = ask.model.as_deref();
        Scan::of(ask.dialect, &ask.operation, model, &ask.body, caller)
    };
    if !is_large(&ask.body) {
        return scan(ask);
    }
    let ask = ask.clone();
    apart(move || scan(&ask)).await?
}

/// The most that a request may cost at any of its upstreams.
async fn most(ask: &Ask, scan: &Scan, choices: &[Arc<Choice>]) -> Result<Most, AbpError> {
    let prices = choices.iter().filter_map(|choice| choice.price());
    if !is_large(&ask.body) {
        return Ok(Most::of(&ask.body, ask.dialect, scan, prices));
    }
    let prices: Vec<_> = prices.collect();
    let (ask, scan) = (ask.clone(), scan.clone());
    apart(move || Most::of(&ask.body, ask.dialect, &scan, prices.into_iter())).await
}

/// The refusal of a request that may cost more than is left.
pub(crate) fn no_room(most: Most, state: &BudgetState) -> Refusal {
    let mut parts = Vec::new();
    if let Some(limit) = state.limit {
        let taken = (state.spent + state.reserved).micros();
        let left = MicroUsd::from_micros(limit.micros().saturating_sub(taken));
        let reserved = state.reserved;
        parts.push(format!(
            "it may cost {}, and {left} of {limit} are left ({reserved} are reserved for requests under way)",
            most.cost
        ));
    }
    if let Some(limit) = state.token_limit {
        let taken = state.spent_tokens.saturating_add(state.reserved_tokens);
        let left = limit.saturating_sub(taken);
        parts.push(format!(
            "it may use {} tokens, and {left} of {limit} are left ({} are reserved for requests under way)",
            most.tokens, state.reserved_tokens
        ));
    }
    let message = format!(
        "the key's budget has no room for the request: {}",
        parts.join("; ")
    );
    Refusal::new(ErrorCode::BudgetExceeded, message)
}

/// The upstreams whose price for a model is known: nobody else can be paid from a budget.
fn priced(choices: &[Arc<Choice>], model: &str) -> Result<Choices, Refusal> {
    let priced = choices.iter().filter(|choice| choice.price().is_some());
    let priced: Choices = priced.cloned().collect();
    if priced.is_empty() {
        let message = format!("the model {model} has no price, and the key a budget");
        return Err(Refusal::new(ErrorCode::BudgetExceeded, message));
    }
    Ok(priced)
}

/// Whether an answer comes as a stream of the form that belongs to its dialect.
fn is_streamed(ask: &Ask, sent: &Sent) -> bool {
    let headers = &sent.reply.headers;
    let as_array = sent.choice.is_native(ask.dialect)
        && stream::form(ask) == SseForm::JsonArray
        && is_json(headers);
    is_stream(headers) || as_array
}

pub(crate) fn overloaded() -> Refusal {
    let message = "there are as many records under way as are taken at once";
    Refusal::new(ErrorCode::Overloaded, message).retry_after(Duration::from_secs(1))
}

fn operation_name(operation: &ModelOperation) -> &'static str {
    match operation {
        ModelOperation::Generate { .. } => GENERATE,
        ModelOperation::CountTokens => "count_tokens",
        ModelOperation::Stored { .. } => "stored",
        ModelOperation::Other(_) => "other",
    }
}

/// The time, for keys that expire.
#[must_use]
pub fn current_time() -> Timestamp {
    now()
}
