//! What a run used, what that costs, and whether it is too much.

use abp_core::{AgentEventKind, Attestation, CancelReason, MicroUsd, ModelPrice, UsageNormalized};

/// A backend's counts without those that no receipt can carry as numbers: they are unknown then.
fn plausible(usage: &UsageNormalized) -> UsageNormalized {
    const MAX_SAFE: u64 = (1 << 53) - 1;
    let count = |count: Option<u64>| count.filter(|&count| count <= MAX_SAFE);
    UsageNormalized {
        input_tokens: count(usage.input_tokens),
        output_tokens: count(usage.output_tokens),
        cache_read_tokens: count(usage.cache_read_tokens),
        cache_write_tokens: count(usage.cache_write_tokens),
        request_units: count(usage.request_units),
        estimated_cost_usd: usage.estimated_cost_usd.filter(|cost| cost.is_finite()),
    }
}

/// Follows the events of one run.
#[derive(Debug)]
pub(crate) struct Meter {
    price: Option<ModelPrice>,
    provenance: Attestation,
    budget: Option<MicroUsd>,
    max_turns: Option<u32>,
    usage: UsageNormalized,
    turns: u32,
}

impl Meter {
    pub(crate) fn new(budget: Option<MicroUsd>, max_turns: Option<u32>) -> Self {
        Self {
            price: None,
            provenance: Attestation::Claimed,
            budget,
            max_turns,
            usage: UsageNormalized::default(),
            turns: 0,
        }
    }

    /// Sets what the engaged backend's model costs, and who counts its usage.
    pub(crate) fn engage(&mut self, price: Option<ModelPrice>, provenance: Attestation) {
        self.price = price;
        self.provenance = provenance;
    }

    /// Who counted the usage, where anything was counted.
    pub(crate) fn provenance(&self) -> Option<Attestation> {
        (self.usage != UsageNormalized::default()).then_some(self.provenance)
    }

    /// Takes an event into account; the reason to stop where it is one too many.
    ///
    /// A turn is one whole message of the agent.
    pub(crate) fn observe(&mut self, kind: &AgentEventKind) -> Option<CancelReason> {
        match kind {
            AgentEventKind::UsageUpdated { usage } => {
                self.usage = plausible(usage);
                (self.cost()? > self.budget?).then_some(CancelReason::Budget)
            }
            AgentEventKind::AssistantMessage { .. } => {
                self.turns = self.turns.saturating_add(1);
                (self.turns > self.max_turns?).then_some(CancelReason::TurnLimit)
            }
            _ => None,
        }
    }

    /// The usage with its cost.
    pub(crate) fn usage(&self) -> UsageNormalized {
        UsageNormalized {
            estimated_cost_usd: self.cost().map(MicroUsd::dollars),
            ..self.usage.clone()
        }
    }

    pub(crate) fn budget(&self) -> Option<MicroUsd> {
        self.budget
    }

    pub(crate) fn max_turns(&self) -> Option<u32> {
        self.max_turns
    }

    /// By our own prices; a backend's own figure counts where it is higher or the only one.
    pub(crate) fn cost(&self) -> Option<MicroUsd> {
        let reported = self
            .usage
            .estimated_cost_usd
            .and_then(MicroUsd::from_dollars);
        self.price
            .map(|price| price.cost(&self.usage))
            .max(reported)
    }
}
