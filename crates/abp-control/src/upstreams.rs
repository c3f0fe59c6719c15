//! The upstreams: which models they serve, and each of them as a backend of runs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use abp_backend_core::{Backend, BackendDescriptor, BoxFuture, OpenSpec, Session};
use abp_backend_http::{HttpUpstream, ModelBackend};
use abp_backend_mock::MockModel;
use abp_config::{Config, UpstreamAuthKind, UpstreamConfig};
use abp_core::{
    Capability, CapabilityManifest, ModelPrice, PriceTable, RuntimeConfig, SupportLevel,
};
use abp_dialect::Dialect;
use abp_error::AbpError;
use abp_plan::{ModelTarget, ServedModels};
use serde::Serialize;

use crate::agents::agent_names;
use crate::upstream_spec::http_upstream;

/// What the name of an upstream's backend begins with.
const PREFIX: &str = "upstream:";
/// The embedded upstream, and the model it always serves.
pub(crate) const MOCK: &str = "mock";
/// The embedded upstream as a backend.
pub(crate) const MOCK_BACKEND: &str = "upstream:mock";
/// What the embedded model costs by the million tokens, in and out, so that budgets can be tried.
const MOCK_RATE: f64 = 1.0;
/// What the embedded model can do.
const MOCK_CAN: [Capability; 6] = [
    Capability::Streaming,
    Capability::SystemMessage,
    Capability::MaxTokens,
    Capability::StopSequences,
    Capability::ToolUse,
    Capability::StructuredOutputJsonSchema,
];

/// A model that the gateway serves.
#[derive(Debug, Serialize)]
pub struct ConfiguredModel<'c> {
    /// What callers call it, or a pattern for such names.
    pub name: &'c str,
    /// The upstream that serves it.
    pub upstream: &'c str,
    /// The dialects that the upstream speaks.
    pub dialects: Vec<Dialect>,
    /// What the vendor calls it, where that is something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor_name: Option<&'c str>,
    /// What it costs, where that is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<ModelPrice>,
}

/// The models that are served, in the order of their upstreams, the embedded one last.
#[must_use]
pub fn configured_models(config: &Config) -> Vec<ConfiguredModel<'_>> {
    let mut models = Vec::new();
    for (name, upstream) in &config.upstreams {
        let plain = upstream.models.iter().map(|model| (model, None));
        let plain = plain.filter(|(model, _)| !upstream.aliases.contains_key(*model));
        let renamed = upstream
            .aliases
            .iter()
            .map(|(model, vendor)| (model, Some(vendor)));
        for (model, vendor) in plain.chain(renamed) {
            models.push(ConfiguredModel {
                name: model,
                upstream: name,
                dialects: vec![upstream.dialect],
                vendor_name: vendor.map(String::as_str),
                price: price(config, upstream, vendor.unwrap_or(model)),
            });
        }
    }
    let others = if config.upstreams.is_empty() {
        "*"
    } else {
        "mock-*"
    };
    models.extend([MOCK, others].map(|name| ConfiguredModel {
        name,
        upstream: MOCK,
        dialects: Dialect::ALL.to_vec(),
        vendor_name: None,
        price: Some(mock_price()),
    }));
    models
}

/// The first model of an upstream that is served by a name, and not by a pattern; the embedded one where
/// there is no upstream.
#[must_use]
pub fn first_configured_model(config: &Config) -> Option<&str> {
    if config.upstreams.is_empty() {
        return Some(MOCK);
    }
    let models = configured_models(config).into_iter();
    let names = models.filter(|model| model.upstream != MOCK);
    names.map(|model| model.name).find(is_plain)
}

fn is_plain(name: &&str) -> bool {
    !name.contains(['*', '?', '[', '{'])
}

fn price(config: &Config, upstream: &UpstreamConfig, model: &str) -> Option<ModelPrice> {
    let table = config.prices.get(upstream.prices.as_ref()?)?;
    table.get(model).or_else(|| table.get("*")).copied()
}

fn mock_price() -> ModelPrice {
    ModelPrice {
        input_usd_per_mtok: MOCK_RATE,
        output_usd_per_mtok: MOCK_RATE,
        ..ModelPrice::default()
    }
}

/// The prices of the upstreams that have their own, by the name of the backend.
pub(crate) fn prices_by_backend(config: &Config) -> BTreeMap<String, PriceTable> {
    let mut mock = PriceTable::default();
    mock.set("*", mock_price());
    let configured = config.upstreams.iter().filter_map(|(name, upstream)| {
        let table = config.prices.get(upstream.prices.as_ref()?)?;
        Some((format!("{PREFIX}{name}"), price_table(table)))
    });
    configured
        .chain([(MOCK_BACKEND.to_owned(), mock)])
        .chain(agent_prices(config))
        .collect()
}

/// The prices of agents, which ask any upstream: those of all upstreams together. Where two have a price for one
/// model it is the first upstream's, which is the one that is asked.
fn agent_prices(config: &Config) -> Vec<(String, PriceTable)> {
    let tables = config.upstreams.values();
    let tables = tables.filter_map(|upstream| config.prices.get(upstream.prices.as_ref()?));
    let mut together: BTreeMap<String, ModelPrice> = BTreeMap::new();
    for (model, price) in tables.flatten() {
        together.entry(model.clone()).or_insert(*price);
    }
    if together.is_empty() {
        return Vec::new();
    }
    let table = price_table(&together);
    let names = agent_names(config).into_iter();
    names.map(|name| (name, table.clone())).collect()
}

pub(crate) fn price_table(prices: &BTreeMap<String, ModelPrice>) -> PriceTable {
    let mut table = PriceTable::default();
    for (model, price) in prices {
        table.set(model, *price);
    }
    table
}

/// How each upstream is asked, by the name of the backend.
pub(crate) fn targets(upstreams: &[UpstreamBackend]) -> BTreeMap<String, ModelTarget> {
    let targets = upstreams.iter().filter_map(|upstream| {
        let name = upstream.backend.descriptor().name.clone();
        Some((name, upstream.target.clone()?))
    });
    targets.collect()
}

/// Settles which model a run on an upstream asks for: it is named as its vendor names it and, where
/// nobody named one, it is the first that the upstream serves by name.
pub(crate) fn settle_model(config: &Config, backend: &str, asked: &mut RuntimeConfig) {
    let served = configured(config, backend);
    // A vendor's request names its model itself.
    if asked.model.is_none() && asked.abp_setting("request").is_none() {
        let is_mock = backend == MOCK_BACKEND;
        let first = served.and_then(|upstream| {
            let mut names = upstream.models.iter().chain(upstream.aliases.keys());
            names.find(|name| is_plain(&name.as_str())).cloned()
        });
        asked.model = first.or_else(|| is_mock.then(|| MOCK.to_owned()));
        if agent_names(config).iter().any(|name| name == backend) {
            asked.model = first_configured_model(config).map(ToOwned::to_owned);
        }
    }
    let aliases = served.map(|upstream| &upstream.aliases);
    let vendor_name = |name: &String| aliases?.get(name).cloned();
    if let Some(name) = asked.model.as_ref().and_then(vendor_name) {
        asked.model = Some(name);
    }
}

fn configured<'c>(config: &'c Config, backend: &str) -> Option<&'c UpstreamConfig> {
    config.upstreams.get(backend.strip_prefix(PREFIX)?)
}

/// An upstream as a backend, and what a plan has to know to write requests for it.
#[derive(Debug)]
pub(crate) struct UpstreamBackend {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) target: Option<ModelTarget>,
}

/// Every upstream as a backend.
///
/// # Errors
/// Fails where an upstream could not be used even with a key.
pub(crate) fn backends(config: &Config) -> Result<Vec<UpstreamBackend>, AbpError> {
    let mock = ModelBackend::new(Arc::new(MockModel::new()), mock_abilities, 0);
    let mut backends = vec![usable(mock.serving(mock_models(config)))];
    for (name, upstream) in &config.upstreams {
        let over = |http: HttpUpstream| over(http, upstream);
        backends.push(match http_upstream(name, upstream) {
            Ok(http) => usable(over(http)),
            Err(problem) => {
                let bare = UpstreamConfig {
                    api_key_env: None,
                    api_key_file: None,
                    api_key_command: Vec::new(),
                    auth: UpstreamAuthKind::Dialect,
                    proxy: Some("none".to_owned()),
                    headers: BTreeMap::new(),
                    ca_file: None,
                    ..upstream.clone()
                };
                let model = over(http_upstream(name, &bare)?);
                let target = model.target();
                let backend = Arc::new(Unusable { model, problem });
                UpstreamBackend { backend, target }
            }
        });
    }
    Ok(backends)
}

/// An upstream as a backend of the models that are listed for it.
fn over(http: HttpUpstream, configured: &UpstreamConfig) -> ModelBackend {
    let served = ServedModels {
        names: configured.models.clone(),
        aliases: configured.aliases.clone(),
    };
    ModelBackend::new(Arc::new(http), abp_translate::manifest, configured.priority).serving(served)
}

/// The embedded model answers to its own name, and to every other one while nothing is configured.
fn mock_models(config: &Config) -> ServedModels {
    let others = if config.upstreams.is_empty() {
        "*"
    } else {
        "mock-*"
    };
    ServedModels {
        names: [MOCK, others].map(str::to_owned).to_vec(),
        ..ServedModels::default()
    }
}

fn mock_abilities(_: Dialect, _: Option<&str>) -> CapabilityManifest {
    MOCK_CAN
        .map(|capability| (capability, SupportLevel::Native))
        .into()
}

fn usable(model: ModelBackend) -> UpstreamBackend {
    UpstreamBackend {
        target: model.target(),
        backend: Arc::new(model),
    }
}

/// An upstream that lacks its key or its certificates. It is there, and says so when it is opened.
struct Unusable {
    model: ModelBackend,
    problem: AbpError,
}

impl Backend for Unusable {
    fn descriptor(&self) -> &BackendDescriptor {
        self.model.descriptor()
    }

    fn manifest(&self, model: Option<&str>) -> Option<CapabilityManifest> {
        self.model.manifest(model)
    }

    fn open(&self, _: OpenSpec) -> BoxFuture<'_, Result<Box<dyn Session>, AbpError>> {
        let problem = AbpError::new(self.problem.code(), self.problem.message());
        Box::pin(async move { Err(problem) })
    }
}

impl fmt::Debug for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unusable")
            .field("model", &self.model)
            .field("problem", &self.problem)
            .finish()
    }
}
