//! What a run used, what that costs, and whether it is too much.

use std::collections::BTreeMap;

use abp_core::{
    AgentEventKind, Attestation, CancelReason, MicroUsd, ModelPrice, PriceTable, UsageNormalized,
};

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
    prices: PriceTable,
    /// The model that was asked for: its price is that of usage of which no model is known, and of
    /// models that have no price of their own, such as a dated version of the one asked for.
    asked_model: Option<String>,
    provenance: Attestation,
    budget: Option<MicroUsd>,
    max_turns: Option<u32>,
    usage: UsageNormalized,
    /// The usage of each model that answered; together they are `usage`.
    by_model: BTreeMap<Option<String>, UsageNormalized>,
    turns: u32,
    /// The usage of earlier attempts, whose backends counted from nothing.
    earlier: UsageNormalized,
    /// Whether a message is being told piece by piece; its turn is counted already.
    is_streaming: bool,
}

impl Meter {
    pub(crate) fn new(budget: Option<MicroUsd>, max_turns: Option<u32>) -> Self {
        Self {
            prices: PriceTable::default(),
            asked_model: None,
            provenance: Attestation::Claimed,
            budget,
            max_turns,
            usage: UsageNormalized::default(),
            by_model: BTreeMap::new(),
            turns: 0,
            earlier: UsageNormalized::default(),
            is_streaming: false,
        }
    }

    /// Sets the prices of the engaged backend, the model it is asked for, and who counts its usage.
    pub(crate) fn engage(
        &mut self,
        prices: PriceTable,
        asked_model: Option<String>,
        provenance: Attestation,
    ) {
        self.prices = prices;
        self.asked_model = asked_model;
        self.provenance = provenance;
    }

    /// Who counted the usage, where anything was counted.
    pub(crate) fn provenance(&self) -> Option<Attestation> {
        (self.usage != UsageNormalized::default()).then_some(self.provenance)
    }

    /// Takes an event into account; the reason to stop where it is one too many. `model` is the model
    /// that the event names, which counts only where the host itself read it from the vendor's answer.
    ///
    /// A turn is one message of the agent, told whole or in pieces. Pieces belong to one message until
    /// the message itself comes, or the agent did something in between.
    pub(crate) fn observe(
        &mut self,
        kind: &AgentEventKind,
        model: Option<&str>,
    ) -> Option<CancelReason> {
        match kind {
            AgentEventKind::UsageUpdated { usage } => {
                let model = model.filter(|_| self.provenance == Attestation::Measured);
                self.take_usage(&plausible(usage), model.map(ToOwned::to_owned));
                (self.cost()? > self.budget?).then_some(CancelReason::Budget)
            }
            AgentEventKind::AssistantMessage { .. } => {
                let is_told = std::mem::take(&mut self.is_streaming);
                self.count_turn(!is_told)
            }
            AgentEventKind::AssistantDelta { .. } => {
                let is_told = std::mem::replace(&mut self.is_streaming, true);
                self.count_turn(!is_told)
            }
            AgentEventKind::ToolResult { .. }
            | AgentEventKind::CommandExecuted { .. }
            | AgentEventKind::FileChanged { .. } => {
                self.is_streaming = false;
                None
            }
            _ => None,
        }
    }

    /// Takes an event of an earlier attempt into account, which ended for another reason.
    pub(crate) fn recall(&mut self, kind: &AgentEventKind, model: Option<&str>) {
        if matches!(kind, AgentEventKind::RunResumed { .. }) {
            self.begin_attempt();
        }
        // Whatever it was too much of, that attempt was let go on.
        let _ = self.observe(kind, model);
    }

    /// Another attempt begins: its backend counts from nothing.
    pub(crate) fn begin_attempt(&mut self) {
        let reported = self.usage.estimated_cost_usd;
        self.earlier = UsageNormalized {
            estimated_cost_usd: reported,
            ..self.usage.clone()
        };
        self.is_streaming = false;
    }

    fn count_turn(&mut self, is_new: bool) -> Option<CancelReason> {
        self.turns = self.turns.saturating_add(u32::from(is_new));
        (self.turns > self.max_turns?).then_some(CancelReason::TurnLimit)
    }

    /// Takes the totals so far. What is new since another model answered is this model's.
    fn take_usage(&mut self, total: &UsageNormalized, model: Option<String>) {
        let reported = match (total.estimated_cost_usd, self.earlier.estimated_cost_usd) {
            (None, None) => None,
            (now, earlier) => Some(now.unwrap_or(0.0) + earlier.unwrap_or(0.0)),
        };
        let total = UsageNormalized {
            estimated_cost_usd: reported,
            ..with(total, &self.earlier)
        };
        self.by_model.remove(&model);
        let others = self.by_model.values();
        let own = others.fold(total.clone(), |left, other| without(&left, other));
        self.by_model.insert(model, own);
        self.usage = total;
    }

    /// Names the model of the usage that came without one.
    pub(crate) fn name_model(&mut self, model: &str) {
        if let Some(unnamed) = self.by_model.remove(&None) {
            let named = self.by_model.entry(Some(model.to_owned())).or_default();
            *named = with(named, &unnamed);
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
        self.priced().max(reported)
    }

    /// The cost of everything at the prices of the models that answered; `None` where one has none.
    fn priced(&self) -> Option<MicroUsd> {
        if self.by_model.is_empty() {
            let price = self.price_of(None)?;
            return Some(price.cost(&self.usage));
        }
        let costs = self.by_model.iter();
        costs
            .map(|(model, usage)| Some(self.price_of(model.as_deref())?.cost(usage)))
            .sum()
    }

    fn price_of(&self, model: Option<&str>) -> Option<&ModelPrice> {
        let own = model.and_then(|model| self.prices.exact(model));
        own.or_else(|| self.prices.get(self.asked_model.as_deref()))
    }
}

fn with(a: &UsageNormalized, b: &UsageNormalized) -> UsageNormalized {
    combine(a, b, u64::saturating_add)
}

fn without(a: &UsageNormalized, b: &UsageNormalized) -> UsageNormalized {
    combine(a, b, u64::saturating_sub)
}

/// Combines the counts that are priced; one that is known in neither stays unknown.
fn combine(a: &UsageNormalized, b: &UsageNormalized, by: fn(u64, u64) -> u64) -> UsageNormalized {
    let count = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (None, None) => None,
        (a, b) => Some(by(a.unwrap_or(0), b.unwrap_or(0))),
    };
    UsageNormalized {
        input_tokens: count(a.input_tokens, b.input_tokens),
        output_tokens: count(a.output_tokens, b.output_tokens),
        cache_read_tokens: count(a.cache_read_tokens, b.cache_read_tokens),
        cache_write_tokens: count(a.cache_write_tokens, b.cache_write_tokens),
        request_units: count(a.request_units, b.request_units),
        estimated_cost_usd: None,
    }
}
