//! `abp exchanges`: what went through the gateway.

use std::collections::BTreeMap;

use abp_core::{MicroUsd, Outcome, Receipt, Timestamp};
use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_gateway::{current_time, exchange_receipt};
use abp_store::{ExchangeRecord, StoreReader};
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::args::{ExchangeFilter, ExchangesArgs, ExchangesCommand, GlobalArgs, GroupBy};
use crate::cmd::receipt::print_summary;
use crate::cmd::runs::stored;
use crate::output::{BAD, DIM, GOOD, Output, STRONG};
use crate::session::{Session, block_on};
use crate::text::one_line;

/// The number of records that are read at a time.
const PAGE: u32 = 1_000;
/// The number of exchanges that are searched for the beginning of an id.
const SEARCHED: usize = 10_000;

pub(crate) fn run(
    args: &ExchangesArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &[], output)?;
    block_on(async {
        // Looking creates nothing.
        let reader = StoreReader::open_existing(&session.config().state_dir).await;
        let reader = reader.map_err(stored)?;
        let done = match &args.command {
            ExchangesCommand::List { limit, filter } => {
                list(reader.as_ref(), *limit, filter, output).await
            }
            ExchangesCommand::Show { exchange } => show(reader.as_ref(), exchange, output).await,
            ExchangesCommand::Stats { by, filter } => {
                count(reader.as_ref(), *by, filter, output).await
            }
        };
        if let Some(reader) = reader {
            reader.close().await;
        }
        done
    })?;
    Ok(ExitStatus::Success)
}

/// Goes through the records that a filter lets pass, the newest first, until `take` says that it is enough.
async fn each(
    reader: &StoreReader,
    filter: &ExchangeFilter,
    mut take: impl FnMut(ExchangeRecord) -> bool,
) -> Result<(), AbpError> {
    let since = filter.since.map(|time| {
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_unix_millis(current_time().as_unix_millis().saturating_sub(millis))
    });
    let mut before = None;
    loop {
        let page = reader.exchanges(before, PAGE).await.map_err(stored)?;
        let Some(last) = page.last() else {
            return Ok(());
        };
        before = Some(last.run_id);
        // Records are in the order of their ends; a page that begins much later holds none that is due.
        let is_past = since.is_some_and(|since| page.iter().all(|one| ended_at(one) < since));
        if is_past {
            return Ok(());
        }
        for record in page {
            let is_recent = since.is_none_or(|since| record.started_at >= since);
            if is_recent && passes(filter, &record) && !take(record) {
                return Ok(());
            }
        }
    }
}

fn ended_at(record: &ExchangeRecord) -> Timestamp {
    record.started_at.plus_millis(record.duration_us / 1000)
}

fn passes(filter: &ExchangeFilter, record: &ExchangeRecord) -> bool {
    let is =
        |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
    is(&filter.key, &record.principal)
        && is(&filter.model, &record.model_asked)
        && is(&filter.upstream, &record.upstream)
        && !(filter.failed && is_good(record))
}

/// Whether a caller got what it asked for.
fn is_good(record: &ExchangeRecord) -> bool {
    record.outcome == Outcome::Complete && record.status < 400
}

async fn list(
    reader: Option<&StoreReader>,
    limit: usize,
    filter: &ExchangeFilter,
    output: &mut Output,
) -> Result<(), AbpError> {
    let mut rows = Vec::new();
    if let Some(reader) = reader.filter(|_| limit > 0) {
        let take = |record| {
            rows.push(record);
            rows.len() < limit
        };
        each(reader, filter, take).await?;
    }
    if output.is_json() {
        let rows: Vec<Value> = rows.iter().map(to_json).collect();
        return output.json(&json!({ "exchanges": rows }));
    }
    for record in &rows {
        let (style, status) = match is_good(record) {
            true => (GOOD, record.status.to_string()),
            false => (BAD, failure(record)),
        };
        output.line(&format!(
            "{}  {}  {style}{status}{style:#}  {} → {}  {} ms  {DIM}{}, {}{DIM:#}",
            record.run_id,
            record.started_at,
            one_line(&record.model_asked),
            one_line(&record.upstream),
            record.duration_us / 1000,
            one_line(&record.principal),
            tokens(record),
        ));
    }
    Ok(())
}

fn failure(record: &ExchangeRecord) -> String {
    match &record.error_code {
        Some(code) => one_line(code),
        None => record.status.to_string(),
    }
}

fn tokens(record: &ExchangeRecord) -> String {
    let count = |tokens: Option<u64>| tokens.map_or_else(|| "?".to_owned(), |n| n.to_string());
    let usage = &record.usage;
    let cost = record.cost.map(MicroUsd::dollars);
    let cost = cost.map_or_else(String::new, |dollars| format!(", ${dollars}"));
    format!(
        "{} in, {} out{cost}",
        count(usage.input_tokens),
        count(usage.output_tokens)
    )
}

fn to_json(record: &ExchangeRecord) -> Value {
    json!({
        "run_id": record.run_id,
        "started_at": record.started_at,
        "duration_us": record.duration_us,
        "first_byte_us": record.first_byte_us,
        "key": record.principal,
        "operation": record.operation,
        "caller_dialect": record.caller_dialect,
        "upstream": record.upstream,
        "upstream_dialect": record.upstream_dialect,
        "model": record.model_asked,
        "model_sent": record.model_sent,
        "mode": record.mode,
        "streamed": record.streamed,
        "status": record.status,
        "outcome": record.outcome,
        "error_code": record.error_code,
        "attempts": record.attempts,
        "input_tokens": record.usage.input_tokens,
        "output_tokens": record.usage.output_tokens,
        "cost_usd": record.cost.map(MicroUsd::dollars),
        "is_estimate": record.cost_is_estimate,
        "emulated": record.emulated,
        "client_closed": record.client_closed,
    })
}

async fn show(
    reader: Option<&StoreReader>,
    text: &str,
    output: &mut Output,
) -> Result<(), AbpError> {
    let found = match reader {
        Some(reader) => find(reader, text).await?,
        None => None,
    };
    let Some(receipt) = found else {
        let message = format!("no exchange is {text:?}; `abp exchanges list` shows them");
        return Err(AbpError::new(ErrorCode::ValidationFailed, message));
    };
    print(&receipt, output)
}

/// Shows the receipt of an exchange.
pub(crate) fn print(receipt: &Receipt, output: &mut Output) -> Result<(), AbpError> {
    if output.is_json() {
        return output.json(&json!({ "receipt": receipt }));
    }
    let Some(exchange) = &receipt.exchange else {
        print_summary(receipt, output);
        return Ok(());
    };
    output.field("exchange", &receipt.meta.run_id.to_string());
    output.field("key", &one_line(&exchange.principal));
    let models = match exchange.model_asked == exchange.model_sent {
        true => one_line(&exchange.model_asked),
        false => one_line(&format!(
            "{} as {}",
            exchange.model_asked, exchange.model_sent
        )),
    };
    output.field("model", &models);
    let dialects = format!(
        "{} → {}",
        exchange.caller_dialect, exchange.upstream_dialect
    );
    output.field("dialects", &one_line(&dialects));
    output.field("status", &exchange.status.to_string());
    print_summary(receipt, output);
    for entry in exchange.ledger.as_array().into_iter().flatten() {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or("–");
        let line = format!(
            "{} {} → {}  {}",
            text("action"),
            text("source"),
            text("target"),
            text("label")
        );
        output.field("ledger", &one_line(&line));
    }
    Ok(())
}

/// The receipt of the exchange that a person means: by its id, the beginning of it, or `last`.
///
/// # Errors
/// Fails where several are meant, and where the store cannot be read.
pub(crate) async fn find(reader: &StoreReader, text: &str) -> Result<Option<Receipt>, AbpError> {
    let run_id = match text.parse::<Uuid>() {
        Ok(run_id) => Some(run_id),
        Err(_) => meant(reader, text).await?,
    };
    let Some(run_id) = run_id else {
        return Ok(None);
    };
    let Some(found) = reader.exchange(run_id).await.map_err(stored)? else {
        return Ok(None);
    };
    let ledger = match found.record.ledger {
        Some(hash) => reader.ledger(hash).await.map_err(stored)?,
        None => None,
    };
    exchange_receipt(&found.record, ledger.as_deref()).map(Some)
}

async fn meant(reader: &StoreReader, text: &str) -> Result<Option<Uuid>, AbpError> {
    if text == "last" {
        let newest = reader.exchanges(None, 1).await.map_err(stored)?;
        return Ok(newest.first().map(|record| record.run_id));
    }
    let wanted = text.to_lowercase();
    let (mut found, mut searched, mut before) = (Vec::new(), 0, None);
    while searched < SEARCHED {
        let page = reader.exchanges(before, PAGE).await.map_err(stored)?;
        let Some(last) = page.last() else { break };
        before = Some(last.run_id);
        searched += page.len();
        let ids = page.iter().map(|record| record.run_id);
        found.extend(ids.filter(|id| id.to_string().starts_with(&wanted)));
    }
    match found.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(*only)),
        several => {
            let message = format!(
                "{} exchanges begin with {text:?}; give more of the id",
                several.len()
            );
            Err(AbpError::new(ErrorCode::ValidationFailed, message))
        }
    }
}

/// Sums over exchanges.
#[derive(Debug, Clone, Default, Serialize)]
struct Sums {
    exchanges: u64,
    failed: u64,
    input_tokens: u64,
    output_tokens: u64,
    cost_usd: f64,
    /// Exchanges of whose tokens or cost nothing is known, or only an estimate.
    uncounted: u64,
    #[serde(skip)]
    durations_us: Vec<u64>,
    p50_ms: u64,
    p99_ms: u64,
}

impl Sums {
    fn add(&mut self, record: &ExchangeRecord) {
        self.exchanges += 1;
        self.failed += u64::from(!is_good(record));
        self.input_tokens += record.usage.input_tokens.unwrap_or(0);
        self.output_tokens += record.usage.output_tokens.unwrap_or(0);
        self.cost_usd += record.cost.map_or(0.0, MicroUsd::dollars);
        let is_known = record.usage.input_tokens.is_some() && !record.cost_is_estimate;
        self.uncounted += u64::from(!is_known);
        self.durations_us.push(record.duration_us);
    }

    fn settle(&mut self) {
        self.durations_us.sort_unstable();
        let at = |part: usize| {
            let index = (self.durations_us.len() * part / 100)
                .min(self.durations_us.len().saturating_sub(1));
            self.durations_us.get(index).copied().unwrap_or(0) / 1000
        };
        (self.p50_ms, self.p99_ms) = (at(50), at(99));
    }
}

async fn count(
    reader: Option<&StoreReader>,
    by: GroupBy,
    filter: &ExchangeFilter,
    output: &mut Output,
) -> Result<(), AbpError> {
    let (mut groups, mut total) = (BTreeMap::<String, Sums>::new(), Sums::default());
    if let Some(reader) = reader {
        let take = |record: ExchangeRecord| {
            let name = match by {
                GroupBy::Model => &record.model_asked,
                GroupBy::Key => &record.principal,
                GroupBy::Upstream => &record.upstream,
            };
            groups.entry(name.clone()).or_default().add(&record);
            total.add(&record);
            true
        };
        each(reader, filter, take).await?;
    }
    groups.values_mut().for_each(Sums::settle);
    total.settle();
    if output.is_json() {
        return output.json(&json!({ "groups": groups, "total": total }));
    }
    for (name, sums) in groups.iter().chain([(&"total".to_owned(), &total)]) {
        output.line(&format!(
            "{STRONG}{}{STRONG:#}  {} exchanges, {} failed  {} in, {} out  ${:.6}  p50 {} ms, p99 {} ms{}",
            one_line(name),
            sums.exchanges,
            sums.failed,
            sums.input_tokens,
            sums.output_tokens,
            sums.cost_usd,
            sums.p50_ms,
            sums.p99_ms,
            match sums.uncounted {
                0 => String::new(),
                uncounted => format!("  {DIM}{uncounted} not counted by a vendor{DIM:#}"),
            },
        ));
    }
    Ok(())
}
