//! Exchanges with filters, usage over time, losses by field, and the upstreams.
//!
//! Exchanges are stored in sealed segments without an index but time, so every question here walks back
//! from the newest. The walk is bounded; an answer that did not see everything says so.

use std::collections::{BTreeMap, HashMap};

use abp_core::{ExecutionMode, MicroUsd, Outcome, Timestamp};
use abp_error::ErrorCode;
use abp_gateway::{CircuitState, Refusal, current_time};
use abp_store::{ExchangeRecord, KeyScope, Store};
use abp_translate::LedgerEntry;
use uuid::Uuid;

use crate::api::{
    ExchangePage, ExchangeView, ExchangesQuery, FieldLoss, LossReport, LossesQuery, SeriesBy,
    SeriesQuery, UpstreamPage, UpstreamView, UsagePoint, UsageSeries, UsageSeriesReport,
};
use crate::call::Call;
use crate::keys::wrong_cursor;
use crate::query::NoQuery;
use crate::table::RouteRow;

/// The number of exchanges that a page has where nothing is said.
const PAGE: u32 = 100;
/// The number of exchanges that are read at once.
const READ: u32 = 500;
/// The most exchanges that are looked at for one page.
const MAX_SEARCHED: u64 = 10_000;
/// The most exchanges that are looked at for a report.
const MAX_COUNTED: u64 = 100_000;
/// The hours of a report where nothing is said.
const HOURS: u32 = 24;
/// The points of a series where nothing is said.
const POINTS: u32 = 48;
/// The most series of a report, and the most fields.
const MAX_SERIES: usize = 50;
const MAX_FIELDS: usize = 500;

pub(crate) fn rows() -> Vec<RouteRow> {
    let models = KeyScope::Models;
    vec![
        RouteRow::get(
            "/exchanges",
            models,
            "list_exchanges",
            "Lists requests through the gateway, newest first.",
            exchanges,
        ),
        RouteRow::get(
            "/exchanges/losses",
            models,
            "count_losses",
            "Counts what translation lost, by field and pair of dialects.",
            losses,
        ),
        RouteRow::get(
            "/usage/series",
            models,
            "get_usage_series",
            "Reports requests, tokens, cost and latency over time, by key, model or upstream.",
            series,
        ),
        RouteRow::get(
            "/upstreams",
            models,
            "list_upstreams",
            "Lists the upstreams and whether they are in cooldown.",
            upstreams,
        ),
    ]
}

/// The time so many hours ago.
fn hours_ago(hours: u32) -> Timestamp {
    let millis = i64::from(hours) * 3_600_000;
    Timestamp::from_unix_millis(current_time().as_unix_millis().saturating_sub(millis))
}

/// Whether an exchange, and so every one recorded before it, lies before a time.
fn is_before(record: &ExchangeRecord, since: Timestamp) -> bool {
    record.started_at.plus_millis(record.duration_us / 1000) < since
}

/// The number of entries of ledgers that tell of a loss; each ledger is read once.
struct Ledgers<'s> {
    store: &'s Store,
    read: HashMap<[u8; 32], Vec<LedgerEntry>>,
}

impl<'s> Ledgers<'s> {
    fn new(store: &'s Store) -> Self {
        Self {
            store,
            read: HashMap::new(),
        }
    }

    /// The entries of an exchange's ledger that tell of a loss.
    async fn losses_of(&mut self, record: &ExchangeRecord) -> Result<&[LedgerEntry], Refusal> {
        let Some(hash) = record.ledger else {
            return Ok(&[]);
        };
        if !self.read.contains_key(&hash) {
            let json = self.store.ledger(hash).await?;
            let entries: Vec<LedgerEntry> = json
                .and_then(|json| serde_json::from_str(&json).ok())
                .unwrap_or_default();
            let losses = entries.into_iter().filter(LedgerEntry::is_loss).collect();
            self.read.insert(hash, losses);
        }
        Ok(self.read.get(&hash).map_or(&[], Vec::as_slice))
    }
}

async fn exchanges(call: Call, query: ExchangesQuery) -> Result<ExchangePage, Refusal> {
    if let Some(asked) = &query.principal
        && !call.caller.owns(asked)
    {
        let message = "exchanges of other principals need the scope admin";
        return Err(Refusal::new(ErrorCode::PolicyDenied, message).at("principal"));
    }
    call.face.gateway().flush().await?;
    let store = call.face.store().await?;
    let limit = query.limit.unwrap_or(PAGE) as usize;
    let since = query.hours.map(hours_ago);
    let mut before = query.cursor.as_deref().map(cursor).transpose()?;
    // A cursor is an exchange that the caller saw: any other id says nothing about what exists.
    if let Some(id) = before {
        let found = store.exchange(id).await?;
        let is_own = found.is_some_and(|found| call.caller.owns(&found.record.principal));
        if !is_own {
            return Err(wrong_cursor());
        }
    }
    let mut ledgers = Ledgers::new(store);
    let mut views: Vec<ExchangeView> = Vec::new();
    let mut last_own = None;
    let mut searched = 0;
    while views.len() < limit && searched < MAX_SEARCHED {
        let page = store.exchanges(before, READ).await?;
        let is_end = page.last().is_none_or(|last| {
            let is_old = since.is_some_and(|since| is_before(last, since));
            page.len() < READ as usize || is_old
        });
        for record in page {
            if views.len() == limit {
                break;
            }
            searched += 1;
            before = Some(record.run_id);
            if !call.caller.owns(&record.principal) {
                continue;
            }
            last_own = Some(record.run_id);
            let losses = ledgers.losses_of(&record).await?.len() as u64;
            if fits(&query, since, &record, losses) {
                views.push(exchange_view(record, losses));
            }
        }
        if is_end && views.len() < limit {
            let (exchanges, next) = (views, None);
            return Ok(ExchangePage { exchanges, next });
        }
    }
    let next = last_own.map(|id| id.to_string());
    let exchanges = views;
    Ok(ExchangePage { exchanges, next })
}

/// Whether an exchange passes the filters.
fn fits(
    query: &ExchangesQuery,
    since: Option<Timestamp>,
    record: &ExchangeRecord,
    losses: u64,
) -> bool {
    let same = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|w| w == found);
    let is_success = record.outcome == Outcome::Complete;
    same(&query.principal, &record.principal)
        && same(&query.upstream, &record.upstream)
        && same(&query.model, &record.model_asked)
        && same(&query.dialect, &record.caller_dialect)
        && query.succeeded.is_none_or(|wanted| wanted == is_success)
        && query.lossy.is_none_or(|wanted| wanted == (losses > 0))
        && since.is_none_or(|since| record.started_at >= since)
}

fn cursor(text: &str) -> Result<Uuid, Refusal> {
    text.parse().map_err(|_| wrong_cursor())
}

fn exchange_view(record: ExchangeRecord, losses: u64) -> ExchangeView {
    ExchangeView {
        id: record.run_id,
        principal: record.principal,
        started_at: record.started_at,
        duration_us: record.duration_us,
        first_byte_us: record.first_byte_us,
        dialect: record.caller_dialect,
        upstream: record.upstream,
        upstream_dialect: record.upstream_dialect,
        model: record.model_asked,
        model_sent: record.model_sent,
        mode: record.mode,
        is_streamed: record.streamed,
        losses,
        status: record.status,
        outcome: record.outcome,
        error_code: record.error_code,
        input_tokens: record.usage.input_tokens,
        output_tokens: record.usage.output_tokens,
        cost_usd: record.cost.map(MicroUsd::dollars),
    }
}

/// The exchanges of the caller since a time, and whether these are all.
async fn since(call: &Call, since: Timestamp) -> Result<(Vec<ExchangeRecord>, bool), Refusal> {
    call.face.gateway().flush().await?;
    let store = call.face.store().await?;
    let mut records = Vec::new();
    let mut before = None;
    let mut searched = 0;
    loop {
        let page = store.exchanges(before, READ).await?;
        let Some(last) = page.last() else {
            return Ok((records, true));
        };
        let is_end = is_before(last, since);
        before = Some(last.run_id);
        searched += page.len() as u64;
        let own = page
            .into_iter()
            .filter(|record| record.started_at >= since && call.caller.owns(&record.principal));
        records.extend(own);
        if is_end {
            return Ok((records, true));
        }
        if searched >= MAX_COUNTED {
            return Ok((records, false));
        }
    }
}

/// A point of a series in the making.
#[derive(Debug, Clone, Default)]
struct Tally {
    point: UsagePoint,
    micros: u64,
    durations: Vec<u64>,
}

impl Tally {
    fn count(&mut self, record: &ExchangeRecord) {
        self.point.requests += 1;
        self.point.failed += u64::from(record.outcome != Outcome::Complete);
        self.point.input_tokens += record.usage.input_tokens.unwrap_or(0);
        self.point.output_tokens += record.usage.output_tokens.unwrap_or(0);
        self.micros = self
            .micros
            .saturating_add(record.cost.map_or(0, MicroUsd::micros));
        self.durations.push(record.duration_us);
    }

    fn finish(mut self) -> UsagePoint {
        self.durations.sort_unstable();
        let at = |percent: usize| {
            let last = self.durations.len().checked_sub(1)?;
            self.durations.get(last * percent / 100).copied()
        };
        UsagePoint {
            cost_usd: MicroUsd::from_micros(self.micros).dollars(),
            p50_us: at(50),
            p95_us: at(95),
            ..self.point
        }
    }
}

async fn series(call: Call, query: SeriesQuery) -> Result<UsageSeriesReport, Refusal> {
    let by = query.by.unwrap_or_default();
    let hours = query.hours.unwrap_or(HOURS);
    let points = query.points.unwrap_or(POINTS).max(1);
    let point_secs = (u64::from(hours) * 3_600 / u64::from(points)).max(1);
    let start = hours_ago(hours);
    let (records, is_complete) = since(&call, start).await?;
    let mut series: BTreeMap<String, (Tally, Vec<Tally>)> = BTreeMap::new();
    for record in &records {
        let name = match by {
            SeriesBy::Key => &record.principal,
            SeriesBy::Model => &record.model_asked,
            SeriesBy::Upstream => &record.upstream,
            SeriesBy::Total => "total",
        };
        let (total, tallies) = series
            .entry(name.to_owned())
            .or_insert_with(|| (Tally::default(), vec![Tally::default(); points as usize]));
        total.count(record);
        let millis = record.started_at.as_unix_millis() - start.as_unix_millis();
        let index = millis.unsigned_abs() / 1000 / point_secs;
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let last = tallies.len().saturating_sub(1);
        if let Some(tally) = tallies.get_mut(index.min(last)) {
            tally.count(record);
        }
    }
    let mut series: Vec<UsageSeries> = series
        .into_iter()
        .map(|(name, (total, tallies))| UsageSeries {
            name,
            total: total.finish(),
            points: tallies.into_iter().map(Tally::finish).collect(),
        })
        .collect();
    series.sort_by_key(|one| std::cmp::Reverse(one.total.requests));
    series.truncate(MAX_SERIES);
    Ok(UsageSeriesReport {
        since: start,
        point_secs,
        series,
        counted: records.len() as u64,
        is_complete,
    })
}

async fn losses(call: Call, query: LossesQuery) -> Result<LossReport, Refusal> {
    let start = hours_ago(query.hours.unwrap_or(HOURS));
    let (records, is_complete) = since(&call, start).await?;
    let mut ledgers = Ledgers::new(call.face.store().await?);
    let mut fields: BTreeMap<(String, String, String, String), FieldLoss> = BTreeMap::new();
    for record in &records {
        if record.mode == ExecutionMode::Passthrough {
            continue;
        }
        let mut seen = std::collections::BTreeSet::new();
        for entry in ledgers.losses_of(record).await? {
            let field = field_of(entry);
            let action = entry.action.as_str().to_owned();
            let (from, to) = (&record.caller_dialect, &record.upstream_dialect);
            let key = (from.clone(), to.clone(), field, action);
            if !seen.insert(key.clone()) {
                continue;
            }
            let loss = fields.entry(key.clone()).or_insert_with(|| FieldLoss {
                from: key.0,
                to: key.1,
                field: key.2,
                action: key.3,
                reason: entry.reason.as_deref().map(str::to_owned),
                exchanges: 0,
            });
            loss.exchanges += 1;
        }
    }
    let mut losses: Vec<FieldLoss> = fields.into_values().collect();
    losses.sort_by_key(|loss| std::cmp::Reverse(loss.exchanges));
    losses.truncate(MAX_FIELDS);
    Ok(LossReport {
        losses,
        counted: records.len() as u64,
        is_complete,
    })
}

/// The place of an entry without positions in lists, so that the same field of two messages is one.
fn field_of(entry: &LedgerEntry) -> String {
    let pointer = entry.source.as_deref().or(entry.target.as_deref());
    let is_position = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let parts = pointer.unwrap_or_default().split('/');
    let parts: Vec<&str> = parts
        .map(|part| if is_position(part) { "*" } else { part })
        .collect();
    parts.join("/")
}

async fn upstreams(call: Call, _: NoQuery) -> Result<UpstreamPage, Refusal> {
    let upstreams = call.face.gateway().upstreams().into_iter().map(|upstream| {
        let (circuit, retry_in_ms) = match upstream.circuit {
            CircuitState::Closed => ("closed", None),
            CircuitState::Open { retry_in } => ("open", u64::try_from(retry_in.as_millis()).ok()),
            CircuitState::HalfOpen => ("half_open", None),
        };
        UpstreamView {
            name: upstream.name,
            dialects: upstream
                .dialects
                .iter()
                .map(|d| d.as_str().to_owned())
                .collect(),
            models: upstream.models,
            circuit: circuit.to_owned(),
            retry_in_ms,
        }
    });
    Ok(UpstreamPage {
        upstreams: upstreams.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_field_of_two_messages_is_one() {
        let cases = [
            ("/request/messages/0/name", "/request/messages/*/name"),
            ("/request/messages/12/name", "/request/messages/*/name"),
            ("/request/top_k", "/request/top_k"),
            ("/answer/0", "/answer/*"),
        ];
        for (pointer, expected) in cases {
            let entry = serde_json::json!({
                "action": "dropped", "source": pointer, "target": null, "label": null, "reason": null,
            });
            let entry: LedgerEntry = serde_json::from_value(entry).unwrap();
            assert_eq!(field_of(&entry), expected);
        }
    }
}
