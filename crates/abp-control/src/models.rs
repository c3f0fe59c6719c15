//! The gateway of a configuration, and the upstreams behind it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use abp_backend_core::Upstream;
use abp_backend_mock::MockModel;
use abp_config::{Config, UpstreamConfig};
use abp_core::PriceTable;
use abp_error::AbpError;
use abp_gateway::{Gateway, GatewaySettings, UpstreamRules};

use crate::ControlPlane;
use crate::upstream_spec::http_upstream;
use crate::upstreams::price_table;

/// The models of the embedded upstream; `mock-error-STATUS` answers with that error.
const MOCK_MODELS: [&str; 2] = ["mock", "mock-*"];

impl ControlPlane {
    /// A gateway to the configured upstreams, and after them the embedded model, over the store of this
    /// process.
    ///
    /// # Errors
    /// Fails where an upstream is not valid, its key cannot be had, or the store cannot be opened.
    pub async fn gateway(&self) -> Result<Gateway, AbpError> {
        let config = self.config();
        let mut upstreams: Vec<(Arc<dyn Upstream>, UpstreamRules)> = Vec::new();
        for (name, upstream) in &config.upstreams {
            upstreams.push((
                Arc::new(http_upstream(name, upstream)?),
                rules(upstream, &config.prices),
            ));
        }
        upstreams.push((Arc::new(MockModel::new()), mock_rules(config)));
        let settings = GatewaySettings {
            max_attempts: config.server.max_attempts as usize,
            max_concurrent: config.server.max_concurrent as usize,
            max_body_bytes: body_room(config),
            keep_alive: seconds(config.server.keepalive_secs),
            emulation: config.emulation_config(),
            metrics: Some(Arc::clone(self.metrics())),
        };
        Gateway::new(upstreams, self.store().await?.clone(), settings)
    }
}

/// The room for bodies. A key gets half of it at most, which has to be enough for the longest body.
fn body_room(config: &Config) -> u64 {
    let (all, one) = (config.server.max_bodies_mb, config.server.max_body_mb);
    u64::from(all).max(2 * u64::from(one)) << 20
}

pub(crate) fn rules(
    config: &UpstreamConfig,
    prices: &BTreeMap<String, BTreeMap<String, abp_core::ModelPrice>>,
) -> UpstreamRules {
    UpstreamRules {
        models: config.models.clone(),
        aliases: config.aliases.clone(),
        weight: config.weight,
        fallback: config.fallback.clone(),
        pass_through: config.pass_through.clone(),
        prices: config
            .prices
            .as_ref()
            .and_then(|table| prices.get(table))
            .map(price_table),
        max_concurrent: config.max_concurrent as usize,
    }
}

/// The embedded model answers to its own name, and to every other one while nothing is configured, so
/// that any client can be tried without a key.
pub(crate) fn mock_rules(config: &Config) -> UpstreamRules {
    let models: &[&str] = if config.upstreams.is_empty() {
        &["mock", "*"]
    } else {
        &MOCK_MODELS
    };
    UpstreamRules {
        models: models.iter().map(ToString::to_string).collect(),
        max_concurrent: 1 << 16,
        prices: Some(free()),
        ..UpstreamRules::default()
    }
}

/// What costs a little, so that budgets can be tried with it.
fn free() -> PriceTable {
    let mut table = PriceTable::default();
    let price = abp_core::ModelPrice {
        input_usd_per_mtok: 1.0,
        output_usd_per_mtok: 1.0,
        ..abp_core::ModelPrice::default()
    };
    table.set("*", price);
    table
}

pub(crate) fn seconds(count: u32) -> Duration {
    Duration::from_secs(count.into())
}
