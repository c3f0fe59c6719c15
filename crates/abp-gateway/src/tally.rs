//! What one exchange came to: its record, its cost, its share of the caller's budget.
//!
//! A tally is closed exactly once, whatever happens to the exchange: where nobody closes it, dropping it
//! does, as a caller that went away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use abp_core::ir::IrUsage;
use abp_core::{ExecutionMode, ModelPrice, Outcome, Timestamp, UsageNormalized};
use abp_dialect::{Dialect, DocumentKind, WireFamily};
use abp_error::ErrorCode;
use abp_store::{ExchangePermit, ExchangeRecord, ExchangeUsage};
use abp_telemetry::{
    ExchangeMetrics, InFlight, RouteFamily, StatusClass, TelemetrySpan, TraceContext,
};
use abp_translate::{FidelityLevel, Ledger, LossCount, StreamSummary, normalized_usage};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;
use uuid::Uuid;

use crate::Principal;
use crate::admission::RequestPlace;
use crate::dispatch::Planned;
use crate::gateway::{GENERATE, Shared};
use crate::ledgers::{REQUEST, Told};
use crate::route::{Choice, Member};
use crate::scan::Scan;
use crate::spend::Most;

/// About how many bytes of a request or an answer make a token, where nobody counts them.
pub(crate) const BYTES_PER_TOKEN: u64 = 4;

/// The room that an exchange takes until it ends.
pub(crate) struct Room {
    /// Among all requests.
    pub(crate) place: Option<RequestPlace>,
    /// For its record.
    pub(crate) record: ExchangePermit,
}

/// A request's body, as the record has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    pub(crate) sha256: [u8; 32],
    pub(crate) bytes: u64,
}

/// An exchange under way.
pub(crate) struct Tally {
    pub(crate) shared: Arc<Shared>,
    pub(crate) principal: Arc<Principal>,
    route: WireFamily,
    room: Option<Room>,
    pub(crate) record: ExchangeRecord,
    started: Instant,
    price: Option<ModelPrice>,
    /// What the budget was asked for.
    reserved: Option<Most>,
    /// An attempt may have been answered without our hearing of it.
    unheard: bool,
    /// The vendor said what was used in all.
    counted: bool,
    usage: Option<UsageNormalized>,
    /// What became of request and answer.
    told: Vec<Told>,
    fidelity: FidelityLevel,
    losses: LossCount,
    /// The upstream has one more to do.
    in_flight: Option<InFlight>,
    /// How many pieces the answer came in.
    chunks: u64,
    /// The most tokens that the answer may have, where the caller says so.
    most_output: Option<u64>,
    /// Whether a request is on its way, so that something may be used.
    sent: bool,
    /// What the vendor that is asked last answers.
    heard: Option<u16>,
    /// How many events of a stream came: about as many as there are tokens.
    events: u64,
    received: Sha256,
    delivered: Sha256,
    /// What was given to the caller is not only what came.
    own: bool,
    span: Option<TelemetrySpan>,
    /// The place of the caller in a trace, where spans are recorded.
    pub(crate) caller_trace: Option<TraceContext>,
}

impl Tally {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        principal: &Arc<Principal>,
        room: Room,
        dialect: Dialect,
        request: Received,
    ) -> Box<Self> {
        let record = ExchangeRecord {
            run_id: Uuid::now_v7(),
            principal: principal.id.clone(),
            started_at: now(),
            caller_dialect: dialect.as_str().to_owned(),
            request_sha256: request.sha256,
            request_bytes: request.bytes,
            duration_us: 0,
            first_byte_us: None,
            upstream: String::new(),
            upstream_dialect: String::new(),
            model_asked: String::new(),
            model_sent: String::new(),
            operation: String::new(),
            streamed: false,
            mode: ExecutionMode::Passthrough,
            status: 0,
            outcome: Outcome::Failed,
            error_code: None,
            attempts: 0,
            sent_sha256: [0; 32],
            received_sha256: [0; 32],
            delivered_sha256: [0; 32],
            response_bytes: 0,
            usage: ExchangeUsage::default(),
            cost: None,
            cost_is_estimate: false,
            ledger: None,
            emulated: Vec::new(),
            client_closed: false,
        };
        // It goes through many hands until the exchange is over.
        Box::new(Self {
            shared: Arc::clone(shared),
            principal: Arc::clone(principal),
            route: dialect.family(),
            room: Some(room),
            record,
            started: Instant::now(),
            price: None,
            reserved: None,
            unheard: false,
            counted: false,
            usage: None,
            told: Vec::new(),
            fidelity: FidelityLevel::Lossless,
            losses: LossCount::default(),
            in_flight: None,
            chunks: 0,
            most_output: None,
            sent: false,
            heard: None,
            events: 0,
            received: Sha256::new(),
            delivered: Sha256::new(),
            own: false,
            span: TelemetrySpan::is_heard().then(|| TelemetrySpan::start("exchange")),
            caller_trace: None,
        })
    }

    pub(crate) fn run_id(&self) -> Uuid {
        self.record.run_id
    }

    /// The budget is asked for room.
    pub(crate) fn reserved(&mut self, most: Most) {
        self.reserved = Some(most);
    }

    /// An upstream got the request, and what it made of it is not known.
    pub(crate) fn unheard(&mut self) {
        self.unheard = true;
    }

    /// Whether everything that was reserved may be spent.
    pub(crate) fn has_spent(&self) -> bool {
        self.is_reserved() && self.unheard
    }

    pub(crate) fn has_left(&self) -> bool {
        self.record.client_closed
    }

    /// Where work goes on that nobody waits for.
    pub(crate) fn tasks(&self) -> Handle {
        self.shared.tasks.clone()
    }

    /// The caller is gone: whatever still comes is not given to it.
    pub(crate) fn left(&mut self) {
        self.record.client_closed = true;
        if !self.own {
            self.own = true;
            self.delivered = self.received.clone();
        }
    }

    /// What the caller says about the length of the answer.
    pub(crate) fn limited(&mut self, scan: &Scan) {
        let most = scan.max_output;
        self.most_output = most.map(|most| most.saturating_mul(scan.choices.max(1)));
    }

    /// An upstream is asked, or the one that was asked before is what the caller is told of.
    pub(crate) fn directed(&mut self, choice: &Choice, planned: &Planned) {
        let name = choice.member.name();
        self.price = choice.price();
        self.in_flight = Some(self.shared.metrics.enter(name));
        let record = &mut self.record;
        name.clone_into(&mut record.upstream);
        choice
            .dialect
            .as_str()
            .clone_into(&mut record.upstream_dialect);
        record.model_sent.clone_from(&choice.model);
        record.mode = planned.mode;
        record.sent_sha256 = planned.sha256.unwrap_or(record.request_sha256);
    }

    /// A request is passed on as it is, without being understood.
    pub(crate) fn passed_to(&mut self, member: &Member, model: &str, dialect: Dialect) {
        self.price = member.price(model);
        self.in_flight = Some(self.shared.metrics.enter(member.name()));
        let record = &mut self.record;
        member.name().clone_into(&mut record.upstream);
        dialect.as_str().clone_into(&mut record.upstream_dialect);
        model.clone_into(&mut record.model_sent);
        record.mode = ExecutionMode::Passthrough;
        record.sent_sha256 = record.request_sha256;
    }

    /// What is passed on was written in another form.
    pub(crate) fn maps(&mut self, body: &[u8]) {
        self.record.mode = ExecutionMode::Mapped;
        self.record.sent_sha256 = Sha256::digest(body).into();
    }

    /// Something is sent to an upstream.
    pub(crate) fn sent(&mut self) {
        self.sent = true;
        self.heard = None;
        self.record.attempts = self.record.attempts.saturating_add(1);
    }

    /// What the upstream answers is what the caller is told.
    pub(crate) fn answers(&mut self, status: u16) {
        self.heard = Some(status);
        self.record.status = status;
    }

    /// The upstream begins to answer.
    pub(crate) fn answered(&mut self, status: u16) {
        self.answers(status);
        self.record.first_byte_us = Some(self.elapsed_us());
    }

    /// Bytes came.
    pub(crate) fn received(&mut self, bytes: &[u8]) {
        self.received.update(bytes);
    }

    /// Bytes of our own are given to the caller.
    pub(crate) fn delivered(&mut self, bytes: &[u8]) {
        if !self.own {
            // Until now everything was what came.
            self.own = true;
            self.delivered = self.received.clone();
        }
        self.delivered.update(bytes);
        self.gave(bytes);
    }

    /// The bytes that came are given to the caller as they are.
    pub(crate) fn passed_on(&mut self, bytes: &[u8]) {
        self.received.update(bytes);
        self.gave(bytes);
    }

    fn gave(&mut self, bytes: &[u8]) {
        self.chunks += 1;
        self.record.response_bytes += bytes.len() as u64;
    }

    /// Nothing of what comes is given to the caller as it is.
    pub(crate) fn translates(&mut self) {
        self.own = true;
    }

    /// What is known of a stream that ends, in whatever way.
    pub(crate) fn streamed(&mut self, summary: &StreamSummary) {
        // Where the vendor counted to the end, nothing is left to guess.
        if summary.usage.is_none() || !summary.complete {
            self.events = summary.events;
        }
        if let Some(usage) = &summary.usage {
            self.used(usage);
            // Before the end a vendor tells only what was used so far.
            self.counted = summary.complete;
        }
    }

    /// What the vendor says was used, by one answer.
    pub(crate) fn used(&mut self, usage: &IrUsage) {
        let more = normalized_usage(usage);
        self.counted = true;
        self.usage = Some(match self.usage.take() {
            Some(before) => sum(&before, &more),
            None => more,
        });
    }

    pub(crate) fn is_reserved(&self) -> bool {
        self.reserved.is_some()
    }

    /// The same upstream is asked once more, for a better answer.
    pub(crate) fn repairs(&mut self, body: &[u8]) {
        self.record.attempts = self.record.attempts.saturating_add(1);
        self.record.sent_sha256 = Sha256::digest(body).into();
        self.record.emulated.push("repaired_answer".to_owned());
    }

    /// What became of the parts of a document: the `request` or the `answer`.
    pub(crate) fn account(&mut self, ledger: Ledger, document: &'static str) {
        self.fidelity = self.fidelity.max(ledger.fidelity());
        self.losses += ledger.count_losses(match document {
            REQUEST => DocumentKind::Request,
            _ => DocumentKind::Response,
        });
        if !ledger.entries().is_empty() {
            self.told.push(Told { document, ledger });
        }
    }

    /// How true the exchange was so far, and how much was lost.
    pub(crate) fn fidelity(&self) -> (FidelityLevel, LossCount) {
        (self.fidelity, self.losses)
    }

    pub(crate) fn emulated(&mut self, names: Vec<String>) {
        self.record.emulated = names;
    }

    /// The exchange is over.
    pub(crate) fn close(mut self: Box<Self>, outcome: Outcome, error: Option<ErrorCode>) {
        self.settle(outcome, error);
    }

    fn elapsed_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn settle(&mut self, outcome: Outcome, error: Option<ErrorCode>) {
        let Some(Room {
            place,
            record: permit,
        }) = self.room.take()
        else {
            return;
        };
        drop(place);
        let (usage, estimated) = self.consumed(outcome);
        let told = self.price.map(|price| price.cost(&usage));
        // What nobody counted is paid as it was reserved: an estimate would be the caller's to shape.
        let uncounted = self
            .reserved
            .filter(|_| self.may_have_used() && !self.is_counted());
        let cost = match uncounted {
            Some(most) => Some(most.cost.max(told.unwrap_or_default())),
            None => told,
        };
        let record = &mut self.record;
        if let (0, Some(code)) = (record.status, error) {
            record.status = code.http_status();
        }
        record.duration_us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        record.outcome = outcome;
        record.error_code = error.map(|code| code.as_str().to_owned());
        record.received_sha256 = std::mem::take(&mut self.received).finalize().into();
        record.delivered_sha256 = if self.own {
            std::mem::take(&mut self.delivered).finalize().into()
        } else {
            record.received_sha256
        };
        record.usage = (&usage).into();
        record.cost = cost;
        record.cost_is_estimate = estimated || uncounted.is_some();
        record.ledger = self.shared.ledgers.keep(&self.told, &self.shared.log);
        self.shared
            .watchers
            .tell(record, self.fidelity, self.losses.total());
        permit.record(record);
        self.record_span();
        self.tell();
        drop(self.in_flight.take());
        self.count(&usage);
        let counted = tokens(&usage);
        let tokens = uncounted.map_or(counted, |most| most.tokens.max(counted));
        self.principal.spend_tokens(tokens, Instant::now());
        let cost = cost.unwrap_or_default();
        let run_id = self.record.run_id;
        self.shared
            .settle(&self.principal, run_id, self.is_reserved(), cost, tokens);
    }

    /// Tells the log of the exchange, where anybody reads that.
    fn tell(&mut self) {
        let Some(mut span) = self.span.take() else {
            return;
        };
        let record = &self.record;
        span.set("run_id", record.run_id.to_string());
        span.set("key", record.principal.as_str());
        span.set("model", record.model_asked.as_str());
        span.set("upstream", record.upstream.as_str());
        span.set("mode", json!(record.mode));
        span.set("status", record.status);
        span.set("outcome", json!(record.outcome));
        span.set("input_tokens", record.usage.input_tokens);
        span.set("output_tokens", record.usage.output_tokens);
    }

    fn count(&self, usage: &UsageNormalized) {
        let record = &self.record;
        let route = match (record.operation.as_str(), self.route) {
            (GENERATE, WireFamily::Chat) => RouteFamily::Chat,
            (GENERATE, WireFamily::Responses) => RouteFamily::Responses,
            (GENERATE, WireFamily::Messages) => RouteFamily::Messages,
            (GENERATE, WireFamily::GenerateContent) => RouteFamily::GenerateContent,
            _ => RouteFamily::Other,
        };
        self.shared.metrics.record_exchange(&ExchangeMetrics {
            route,
            upstream: &record.upstream,
            model: &record.model_asked,
            mode: record.mode,
            status: status(record),
            duration: Duration::from_micros(record.duration_us),
            first_byte: record.first_byte_us.map(Duration::from_micros),
            tokens: usage.into(),
            cost: record.cost.unwrap_or_default(),
            chunks: if record.streamed { self.chunks } else { 0 },
            retries: u64::from(record.attempts.saturating_sub(1)),
        });
    }

    /// Whether an upstream may have generated anything.
    fn may_have_used(&self) -> bool {
        let answers = self
            .heard
            .is_some_and(|status| (200..300).contains(&status));
        // A vendor whose answer nobody waited for has read the request all the same.
        let left = self.record.client_closed && self.heard.is_none();
        let pays = self.record.operation == GENERATE || self.is_reserved();
        self.sent && pays && (answers || left || self.unheard)
    }

    fn is_counted(&self) -> bool {
        let told = self
            .usage
            .as_ref()
            .is_some_and(|usage| usage.input_tokens.is_some() && usage.output_tokens.is_some());
        told && self.counted && !self.unheard
    }

    /// What was used, and whether part of that is only what was probably used: a vendor counts at the
    /// end, which an answer that broke off does not have.
    fn consumed(&self, outcome: Outcome) -> (UsageNormalized, bool) {
        let generates = self.record.operation == GENERATE;
        let answers = self
            .heard
            .is_some_and(|status| (200..300).contains(&status));
        // A vendor whose answer nobody waited for has read the request all the same.
        let unheard = self.record.client_closed && self.heard.is_none();
        if !(self.sent && generates && (answers || unheard)) {
            return (self.usage.clone().unwrap_or_default(), false);
        }
        let mut usage = self.usage.clone().unwrap_or_default();
        usage.request_units = Some(1);
        let told = (usage.input_tokens, usage.output_tokens);
        if usage.input_tokens.is_none() {
            usage.input_tokens = Some(self.record.request_bytes / BYTES_PER_TOKEN);
        }
        if usage.output_tokens.is_none() || outcome != Outcome::Complete {
            let guess = if self.record.streamed {
                self.events
            } else {
                self.record.response_bytes / BYTES_PER_TOKEN
            };
            let guess = guess.min(self.most_output.unwrap_or(u64::MAX));
            usage.output_tokens = usage.output_tokens.max(Some(guess));
        }
        let estimated = told != (usage.input_tokens, usage.output_tokens);
        (usage, estimated)
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.record.client_closed = true;
        self.settle(Outcome::Cancelled, Some(ErrorCode::StreamClosed));
    }
}

impl std::fmt::Debug for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tally")
            .field("run_id", &self.record.run_id)
            .finish_non_exhaustive()
    }
}

/// What the caller got, as far as it can be told from the record.
fn status(record: &ExchangeRecord) -> StatusClass {
    match (record.outcome, record.status) {
        _ if record.client_closed => StatusClass::Cancelled,
        (Outcome::Complete, _) => StatusClass::Success,
        (_, 200..=299) => StatusClass::Broken,
        (_, 400..=499) => StatusClass::ClientError,
        _ => StatusClass::ServerError,
    }
}

fn sum(one: &UsageNormalized, other: &UsageNormalized) -> UsageNormalized {
    let add = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    };
    UsageNormalized {
        input_tokens: add(one.input_tokens, other.input_tokens),
        output_tokens: add(one.output_tokens, other.output_tokens),
        cache_read_tokens: add(one.cache_read_tokens, other.cache_read_tokens),
        cache_write_tokens: add(one.cache_write_tokens, other.cache_write_tokens),
        request_units: add(one.request_units, other.request_units),
        estimated_cost_usd: None,
    }
}

/// All tokens that were read or written, from wherever.
fn tokens(usage: &UsageNormalized) -> u64 {
    [
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
    ]
    .into_iter()
    .flatten()
    .fold(0, u64::saturating_add)
}

/// The time, in whole milliseconds.
pub(crate) fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let millis = since.map_or(0, |since| since.as_millis());
    Timestamp::from_unix_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}
