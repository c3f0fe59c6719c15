//! The account of a run on a model: what was exchanged, what it used, and which model answered.

use std::collections::BTreeMap;

use abp_core::{AgentEventKind, RunExchange, UsageNormalized};
use bytes::Bytes;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::usage::VendorUsage;

/// The account of a run. It is kept outside the exchange itself, so that a run that is stopped in the
/// middle of one still says what it sent.
#[derive(Debug, Default)]
pub(super) struct Account {
    exchanges: Vec<RunExchange>,
    /// The vendor's counts of the exchanges before the current one, and of the current one.
    told_before: Vec<VendorUsage>,
    told: VendorUsage,
    /// The usage of the exchanges before the current one.
    before: UsageNormalized,
    /// What the current exchange used so far.
    current: UsageNormalized,
}

/// Hashes an answer while it comes.
#[derive(Debug, Default)]
pub(super) struct AnswerHash(Sha256);

impl Account {
    /// Begins an exchange: these bytes are sent.
    pub(super) fn begin(&mut self, upstream: &str, request: &[u8]) {
        if !self.exchanges.is_empty() {
            self.before = sum(&self.before, &std::mem::take(&mut self.current));
            self.told_before.push(std::mem::take(&mut self.told));
        }
        self.exchanges.push(RunExchange {
            id: None,
            upstream: upstream.to_owned(),
            model: None,
            request_sha256: hex(&Sha256::digest(request)),
            response_sha256: None,
            status: None,
            fidelity: None,
        });
    }

    /// The status of the answer.
    pub(super) fn answered(&mut self, status: u16) {
        if let Some(exchange) = self.exchanges.last_mut() {
            exchange.status = Some(status);
        }
    }

    /// The answer arrived whole.
    pub(super) fn arrived(&mut self, hash: AnswerHash) {
        if let Some(exchange) = self.exchanges.last_mut() {
            exchange.response_sha256 = Some(hex(&hash.0.finalize()));
        }
    }

    /// The model that the vendor names in its answer.
    pub(super) fn named_model(&mut self, model: Option<&str>) {
        if let (Some(exchange), Some(model)) = (self.exchanges.last_mut(), model) {
            exchange.model = Some(model.to_owned());
        }
    }

    /// The vendor's counts of the current exchange.
    pub(super) fn usage(&mut self) -> &mut VendorUsage {
        &mut self.told
    }

    /// Makes the counts of an exchange those of the run: an event tells totals.
    pub(super) fn add_up(&mut self, events: &mut [AgentEventKind]) {
        for event in events {
            if let AgentEventKind::UsageUpdated { usage } = event {
                self.current = usage.clone();
                *usage = sum(&self.before, usage);
            }
        }
    }

    /// The extension of an event of usage: the model that the vendor names, so that the host counts at
    /// its price.
    pub(super) fn usage_ext(&self, event: &AgentEventKind) -> Option<BTreeMap<String, Value>> {
        if !matches!(event, AgentEventKind::UsageUpdated { .. }) {
            return None;
        }
        let model = self.exchanges.last()?.model.clone()?;
        Some(BTreeMap::from([("model".to_owned(), Value::String(model))]))
    }

    /// What the receipt is told: the model that answered last, the exchanges, and the vendor's counts.
    pub(super) fn close(self) -> (Option<String>, Vec<RunExchange>, Value) {
        let model = self.exchanges.iter().rev();
        let model = model.filter_map(|exchange| exchange.model.clone()).next();
        let last = self.told.into_value();
        let usage = if self.told_before.is_empty() {
            last
        } else {
            let before = self.told_before.into_iter().map(VendorUsage::into_value);
            Value::Array(before.chain([last]).collect())
        };
        (model, self.exchanges, usage)
    }
}

impl AnswerHash {
    /// Takes the next part.
    pub(super) fn update(&mut self, part: &Bytes) {
        self.0.update(part);
    }
}

/// Two exchanges together. A count that one of them lacks is unknown in the sum only where both lack it.
fn sum(a: &UsageNormalized, b: &UsageNormalized) -> UsageNormalized {
    let counts = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
    };
    UsageNormalized {
        input_tokens: counts(a.input_tokens, b.input_tokens),
        output_tokens: counts(a.output_tokens, b.output_tokens),
        cache_read_tokens: counts(a.cache_read_tokens, b.cache_read_tokens),
        cache_write_tokens: counts(a.cache_write_tokens, b.cache_write_tokens),
        request_units: counts(a.request_units, b.request_units),
        estimated_cost_usd: match (a.estimated_cost_usd, b.estimated_cost_usd) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0.0) + b.unwrap_or(0.0)),
        },
    }
}

pub(crate) fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
