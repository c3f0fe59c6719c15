//! Another configuration for a gateway that goes on serving.

use std::collections::BTreeMap;
use std::sync::Arc;

use abp_backend_core::Upstream;
use abp_backend_mock::MockModel;
use abp_config::{Config, EnvValue, UpstreamConfig};
use abp_error::AbpError;
use abp_gateway::{Gateway, UpstreamUpdate};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::models::{mock_rules, rules};
use crate::upstream_spec::{http_upstream, upstream_key};
use crate::upstreams::MOCK;

/// Settings that are taken over while a gateway serves: the upstreams, and the prices that their rules hold.
const RELOADED: [&str; 2] = ["upstreams", "prices"];

/// Gives a gateway the upstreams of changed configurations.
#[derive(Debug)]
pub struct GatewayReloader {
    gateway: Gateway,
    /// The configuration that the process was started with.
    started: Value,
    /// The settings that each upstream was made from.
    known: BTreeMap<String, [u8; 32]>,
}

/// The result of taking a changed configuration over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReloadReport {
    /// Upstreams that are new.
    pub added: Vec<String>,
    /// Upstreams that are asked in another way, or with another key.
    pub changed: Vec<String>,
    /// Upstreams that are gone.
    pub removed: Vec<String>,
    /// Settings that differ from those the process was started with, and need another start.
    pub need_restart: Vec<String>,
}

impl GatewayReloader {
    /// # Errors
    /// Fails where the key of an upstream cannot be had.
    pub fn new(gateway: Gateway, config: &Config) -> Result<Self, AbpError> {
        Ok(Self {
            gateway,
            started: without_reloaded(config),
            known: fingerprints(config)?,
        })
    }

    /// Takes a configuration over, all of it or nothing. Upstreams that stay as they are keep their
    /// connections and their health.
    ///
    /// # Errors
    /// Fails, with everything as it was, where an upstream is not valid or its key cannot be had.
    pub fn reload(&mut self, config: &Config) -> Result<ReloadReport, AbpError> {
        let fresh = fingerprints(config)?;
        let mut report = ReloadReport {
            need_restart: differing(&self.started, &without_reloaded(config)),
            ..ReloadReport::default()
        };
        let mut updates = Vec::new();
        for (name, upstream) in &config.upstreams {
            match (self.known.get(name), fresh.get(name)) {
                (Some(known), Some(fresh)) if known == fresh => {
                    updates.push(UpstreamUpdate::Unchanged(name.clone()));
                    continue;
                }
                (Some(_), _) => report.changed.push(name.clone()),
                (None, _) => report.added.push(name.clone()),
            }
            let http: Arc<dyn Upstream> = Arc::new(http_upstream(name, upstream)?);
            let rules = Box::new(rules(upstream, &config.prices));
            updates.push(UpstreamUpdate::Replaced(http, rules));
        }
        updates.push(match self.known.get(MOCK) == fresh.get(MOCK) {
            true => UpstreamUpdate::Unchanged(MOCK.to_owned()),
            false => {
                let rules = Box::new(mock_rules(config));
                UpstreamUpdate::Replaced(Arc::new(MockModel::new()), rules)
            }
        });
        let gone = self.known.keys().filter(|name| !fresh.contains_key(*name));
        report.removed = gone.cloned().collect();
        self.gateway.replace_upstreams(updates)?;
        self.known = fresh;
        Ok(report)
    }
}

/// A hash of everything that an upstream is made from, its key included; and of the embedded one.
fn fingerprints(config: &Config) -> Result<BTreeMap<String, [u8; 32]>, AbpError> {
    let mut known = BTreeMap::new();
    for (name, upstream) in &config.upstreams {
        let key = upstream_key(name, upstream)?;
        let mut hash = Sha256::new();
        hash.update(text_of(upstream, config));
        if let Some(key) = key {
            hash.update([0]);
            hash.update(key.expose_secret());
        }
        known.insert(name.clone(), hash.finalize().into());
    }
    // It answers to every name while there is no other upstream.
    let mock = [u8::from(config.upstreams.is_empty()); 32];
    known.insert(MOCK.to_owned(), mock);
    Ok(known)
}

fn text_of(upstream: &UpstreamConfig, config: &Config) -> String {
    let prices = upstream.prices.as_ref();
    let prices = prices.and_then(|table| config.prices.get(table));
    let headers = EnvValue::exposed(&upstream.headers);
    format!("{upstream:?} {headers:?} {prices:?}")
}

fn without_reloaded(config: &Config) -> Value {
    let mut value = serde_json::to_value(config).unwrap_or_default();
    for name in RELOADED {
        if let Some(settings) = value.as_object_mut() {
            settings.remove(name);
        }
    }
    value
}

/// The settings that differ, one level below the groups.
fn differing(before: &Value, after: &Value) -> Vec<String> {
    let (Some(before), Some(after)) = (before.as_object(), after.as_object()) else {
        return Vec::new();
    };
    let names = before.keys().chain(after.keys());
    let mut found = Vec::new();
    for name in names {
        let (old, new) = (before.get(name), after.get(name));
        if old == new {
            continue;
        }
        match (old, new) {
            (Some(old @ Value::Object(_)), Some(new @ Value::Object(_))) => {
                let below = differing(old, new).into_iter();
                found.extend(below.map(|below| format!("{name}.{below}")));
            }
            _ => found.push(name.clone()),
        }
    }
    found.sort();
    found.dedup();
    found
}
