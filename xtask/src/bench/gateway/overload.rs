//! Overload: three times as many requests as can be served, whether or not they are answered.
//!
//! The upstream takes a while for each answer, so that it is the number of exchanges at once, as
//! shipped, that sets the capacity, and not the processors, which whoever asks shares here.

use std::time::{Duration, Instant};

use abp_config::UpstreamConfig;
use anyhow::{Result, ensure};
use tokio::task::JoinSet;

use super::client::{Connection, Target, within};
use super::closed::closed_loop;
use super::figures::percentile;
use super::peers::Abp;

const FACTOR: f64 = 3.0;
/// What the start does not count for.
const SETTLE: Duration = Duration::from_millis(500);
/// More than these waiting at once is no overload any more but a standstill.
const MOST_WAITING: usize = 4_000;
const TICK: Duration = Duration::from_millis(1);
/// The status of a refusal.
const BUSY: u16 = 503;

/// What came of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Overload {
    /// Answers a second when as many ask as can be served.
    pub(super) peak: f64,
    pub(super) offered: f64,
    /// Answers a second under overload.
    pub(super) goodput: f64,
    pub(super) refused: f64,
    /// From when a request was due to when it was refused, for all but the slowest hundredth.
    pub(super) refused_p99: Duration,
}

pub(super) async fn measure(abp: &Abp, late: &Target, length: Duration) -> Result<Overload> {
    let callers = shipped_concurrency()?;
    let peak = closed_loop(late, &abp.process, callers, length).await?;
    let peak = peak.per_second();
    let offered = FACTOR * peak;
    let limit = length + Duration::from_secs(30);
    let ends = within(limit, open_loop(late, offered, SETTLE + length)).await?;
    let counted: Vec<_> = ends.iter().filter(|end| end.at >= SETTLE).collect();
    let answered = counted.iter().filter(|end| end.status == 200).count();
    let mut refusals: Vec<_> = counted
        .iter()
        .filter(|end| end.status == BUSY)
        .map(|end| end.took)
        .collect();
    let others = counted.len() - answered - refusals.len();
    ensure!(
        others == 0,
        "{others} requests were neither answered nor refused"
    );
    ensure!(!refusals.is_empty(), "nothing was refused");
    Ok(Overload {
        peak,
        offered,
        goodput: answered as f64 / length.as_secs_f64(),
        refused: refusals.len() as f64 / length.as_secs_f64(),
        refused_p99: percentile(&mut refusals, 0.99),
    })
}

/// How many requests an upstream gets at once where nothing is configured.
fn shipped_concurrency() -> Result<usize> {
    let least = "dialect = \"openai\"\nbase_url = \"https://vendor.example\"";
    let shipped: UpstreamConfig = toml::from_str(least)?;
    Ok(shipped.max_concurrent as usize)
}

/// How a request ended.
#[derive(Debug, Clone, Copy)]
struct End {
    status: u16,
    /// Since it was due.
    took: Duration,
    /// Since the start.
    at: Duration,
}

/// Asks at a rate, for so long; what has ended by then.
async fn open_loop(target: &Target, rate: f64, length: Duration) -> Result<Vec<End>> {
    let (mut idle, mut ends) = (Vec::new(), Vec::new());
    let mut waiting = JoinSet::new();
    let mut sent = 0_u32;
    let started = Instant::now();
    while started.elapsed() < length {
        while let Some(ended) = waiting.try_join_next() {
            let (end, connection) = ended??;
            ends.push(end);
            idle.push(connection);
        }
        while f64::from(sent) < started.elapsed().as_secs_f64() * rate {
            ensure!(waiting.len() < MOST_WAITING, "{MOST_WAITING} requests wait");
            let due = started + Duration::from_secs_f64(f64::from(sent) / rate);
            waiting.spawn(ask(idle.pop(), target.clone(), started, due));
            sent += 1;
        }
        tokio::time::sleep(TICK).await;
    }
    Ok(ends)
}

async fn ask(
    idle: Option<Connection>,
    target: Target,
    started: Instant,
    due: Instant,
) -> Result<(End, Connection)> {
    let mut connection = match idle {
        Some(connection) => connection,
        None => target.connect().await?,
    };
    let status = connection.ask(&target.request, |_| {}).await?;
    let end = End {
        status,
        took: due.elapsed(),
        at: started.elapsed(),
    };
    Ok((end, connection))
}
