//! Counting.

use std::sync::{Arc, OnceLock};

use abp_core::{ExecutionMode, MicroUsd, Outcome};

use crate::histogram::{Counter, Histogram};
use crate::names::{Place, Table};
use crate::summary::{
    ControlSummary, MetricsSummary, ModelSummary, RequestCount, RingSummary, RunSummary,
    UpstreamSummary,
};
use crate::{
    BreakerLevel, ExchangeMetrics, RouteFamily, RunMetrics, SpanQueue, StatusClass, TokenCounts,
};

const OUTCOMES: usize = 4;
const ROUTES: usize = RouteFamily::ALL.len();
const STATUSES: usize = StatusClass::ALL.len();
const MODES: [ExecutionMode; 2] = [ExecutionMode::Passthrough, ExecutionMode::Mapped];

/// Counts what happens, from any thread at once.
#[derive(Debug)]
pub struct MetricsCollector {
    runs: Table<RunSeries>,
    upstreams: Table<UpstreamSeries>,
    models: Table<UseSeries>,
    ring_used: Counter,
    ring_capacity: Counter,
    queue_depth: Counter,
    oldest_wait_ms: Counter,
    running: Counter,
    followers: Counter,
    lease_losses: Counter,
    spans: OnceLock<Arc<SpanQueue>>,
}

#[derive(Debug, Default)]
struct RunSeries {
    outcomes: [Counter; OUTCOMES],
    durations: Histogram,
    events: Counter,
    used: UseSeries,
}

#[derive(Debug, Default)]
struct UpstreamSeries {
    requests: [[[Counter; STATUSES]; MODES.len()]; ROUTES],
    durations: Histogram,
    first_bytes: Histogram,
    in_flight: Counter,
    chunks: Counter,
    retries: Counter,
    breaker: Counter,
}

/// Tokens and money.
#[derive(Debug, Default)]
struct UseSeries {
    input: Counter,
    output: Counter,
    cache_read: Counter,
    cache_write: Counter,
    micros: Counter,
}

impl UseSeries {
    fn add(&self, tokens: &TokenCounts, cost: MicroUsd) {
        self.input.add(tokens.input);
        self.output.add(tokens.output);
        self.cache_read.add(tokens.cache_read);
        self.cache_write.add(tokens.cache_write);
        self.micros.add(cost.micros());
    }

    fn tokens(&self) -> TokenCounts {
        TokenCounts {
            input: self.input.get(),
            output: self.output.get(),
            cache_read: self.cache_read.get(),
            cache_write: self.cache_write.get(),
        }
    }

    fn cost_usd(&self) -> f64 {
        MicroUsd::from_micros(self.micros.get()).dollars()
    }
}

impl MetricsCollector {
    /// A collector for these upstreams; what is told of any other counts as that of others.
    #[must_use]
    pub fn new<'u>(upstreams: impl IntoIterator<Item = &'u str>) -> Self {
        let collector = Self {
            runs: Table::new(),
            upstreams: Table::new(),
            models: Table::new(),
            ring_used: Counter::default(),
            ring_capacity: Counter::default(),
            queue_depth: Counter::default(),
            oldest_wait_ms: Counter::default(),
            running: Counter::default(),
            followers: Counter::default(),
            lease_losses: Counter::default(),
            spans: OnceLock::new(),
        };
        for name in upstreams {
            collector.upstreams.named(name);
        }
        collector
    }

    /// Counts a run.
    pub fn record(&self, run: &RunMetrics<'_>) {
        let series = self.runs.named(run.backend);
        let [complete, partial, failed, cancelled] = &series.outcomes;
        let outcome = match run.outcome {
            Outcome::Complete => complete,
            Outcome::Partial => partial,
            Outcome::Failed => failed,
            Outcome::Cancelled => cancelled,
        };
        outcome.add(1);
        series.durations.record(run.duration);
        series.events.add(run.events);
        series.used.add(&run.tokens, run.cost);
    }

    /// Counts an exchange.
    pub fn record_exchange(&self, exchange: &ExchangeMetrics<'_>) {
        let series = self.upstreams.known(exchange.upstream);
        let mode = match exchange.mode {
            ExecutionMode::Passthrough => 0,
            ExecutionMode::Mapped => 1,
        };
        let requests = series.requests.get(exchange.route as usize);
        let requests = requests.and_then(|modes| modes.get(mode)?.get(exchange.status as usize));
        if let Some(requests) = requests {
            requests.add(1);
        }
        series.durations.record(exchange.duration);
        if let Some(first_byte) = exchange.first_byte {
            series.first_bytes.record(first_byte);
        }
        series.chunks.add(exchange.chunks);
        series.retries.add(exchange.retries);
        // A caller can name any model; only one that was answered for gets a name of its own.
        let model = match exchange.status {
            StatusClass::Success => self.models.named(exchange.model),
            _ => self.models.known(exchange.model),
        };
        model.add(&exchange.tokens, exchange.cost);
    }

    /// Counts an exchange as going on until what is returned is dropped.
    pub fn enter(self: &Arc<Self>, upstream: &str) -> InFlight {
        let upstream = self.upstreams.place(upstream);
        self.upstreams.at(upstream).in_flight.add(1);
        InFlight {
            collector: Arc::clone(self),
            upstream,
        }
    }

    /// Tells whether an upstream is asked.
    pub fn set_breaker(&self, upstream: &str, level: BreakerLevel) {
        let series = self.upstreams.known(upstream);
        series.breaker.set(level as u64);
    }

    /// Tells how much room the records of exchanges take, and how much there is.
    pub fn set_ring(&self, used_bytes: u64, capacity_bytes: u64) {
        self.ring_used.set(used_bytes);
        self.ring_capacity.set(capacity_bytes);
    }

    /// Tells how many runs wait, for how long the oldest of them has, and how many this process carries out.
    pub fn set_queue(&self, depth: u64, oldest_wait_ms: u64, running: u64) {
        self.queue_depth.set(depth);
        self.oldest_wait_ms.set(oldest_wait_ms);
        self.running.set(running);
    }

    /// Counts a run that this process lost to another.
    pub fn count_lease_loss(&self) {
        self.lease_losses.add(1);
    }

    /// Counts a reader of a run until what is returned is dropped.
    #[must_use]
    pub fn follow(self: &Arc<Self>) -> Following {
        self.followers.add(1);
        Following {
            collector: Arc::clone(self),
        }
    }

    /// Lets spans be recorded from now on, into this queue. Only the first queue counts.
    pub fn record_spans(&self, queue: Arc<SpanQueue>) {
        drop(self.spans.set(queue));
    }

    /// Where finished spans go; `None` where nobody wants them.
    #[must_use]
    pub fn spans(&self) -> Option<&SpanQueue> {
        self.spans.get().map(AsRef::as_ref)
    }

    /// Everything that was counted so far. Counts of different things may be a moment apart.
    #[must_use]
    pub fn summary(&self) -> MetricsSummary {
        let owned = |name: &str| name.to_owned();
        let runs = self
            .runs
            .iter()
            .map(|(name, series)| (owned(name), series.summary()));
        let upstreams = self.upstreams.iter();
        let upstreams = upstreams.map(|(name, series)| (owned(name), series.summary()));
        let models = self.models.iter().map(|(name, series)| {
            let (tokens, cost_usd) = (series.tokens(), series.cost_usd());
            (owned(name), ModelSummary { tokens, cost_usd })
        });
        MetricsSummary {
            runs: runs.filter(|(_, run)| run.count > 0).collect(),
            upstreams: upstreams.filter(|(name, one)| one.is_told(name)).collect(),
            models: models
                .filter(|(_, model)| *model != ModelSummary::default())
                .collect(),
            ring: RingSummary {
                used_bytes: self.ring_used.get(),
                capacity_bytes: self.ring_capacity.get(),
            },
            control: ControlSummary {
                queue_depth: self.queue_depth.get(),
                oldest_wait_ms: self.oldest_wait_ms.get(),
                running: self.running.get(),
                followers: self.followers.get(),
                lease_losses: self.lease_losses.get(),
                spans_dropped: self.spans().map_or(0, SpanQueue::dropped),
            },
        }
    }
}

impl RunSeries {
    fn summary(&self) -> RunSummary {
        let [complete, partial, failed, cancelled] = self.outcomes.each_ref().map(Counter::get);
        RunSummary {
            count: complete + partial + failed + cancelled,
            complete,
            partial,
            failed,
            cancelled,
            duration: self.durations.summary(),
            events: self.events.get(),
            tokens: self.used.tokens(),
            cost_usd: self.used.cost_usd(),
        }
    }
}

impl UpstreamSeries {
    fn summary(&self) -> UpstreamSummary {
        let mut requests = Vec::new();
        for (route, modes) in RouteFamily::ALL.iter().zip(&self.requests) {
            for (mode, statuses) in MODES.iter().zip(modes) {
                for (status, count) in StatusClass::ALL.iter().zip(statuses) {
                    let count = count.get();
                    if count > 0 {
                        requests.push(RequestCount {
                            route: *route,
                            mode: *mode,
                            status: *status,
                            count,
                        });
                    }
                }
            }
        }
        let level = usize::try_from(self.breaker.get()).unwrap_or(0);
        UpstreamSummary {
            requests,
            duration: self.durations.summary(),
            first_byte: self.first_bytes.summary(),
            in_flight: self.in_flight.get(),
            chunks: self.chunks.get(),
            retries: self.retries.get(),
            breaker: BreakerLevel::ALL
                .get(level)
                .copied()
                .unwrap_or(BreakerLevel::Closed),
        }
    }
}

/// An exchange that is going on.
#[derive(Debug)]
pub struct InFlight {
    collector: Arc<MetricsCollector>,
    upstream: Place,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let series = self.collector.upstreams.at(self.upstream);
        series.in_flight.take_away(1);
    }
}

/// A reader that follows a run.
#[derive(Debug)]
pub struct Following {
    collector: Arc<MetricsCollector>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.collector.followers.take_away(1);
    }
}
