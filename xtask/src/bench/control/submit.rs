//! From sending a submission to its 202, 500 times a second whether or not answers come.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::server::Server;
use super::{Bars, percentile};
use crate::output::say;

const PER_SECOND: u32 = 500;
const CALLERS: u32 = 50;
const SECONDS: u32 = 10;
/// Each key has a queue of its own, which takes a thousand runs.
const KEYS: usize = 8;
const BAR_MS: f64 = 5.0;
const SYNCS: usize = 1_000;

pub(super) async fn measure(server: &Server, desk: &Path, bars: &mut Bars) -> Result<()> {
    let mut floor = bare_syncs(&desk.join("floor"))?;
    let keys: Vec<String> = (0..KEYS)
        .map(|number| server.new_key(&format!("key-{number}")))
        .collect::<Result<_>>()?;
    // One sleeping run has the only place, so that every other one only queues.
    server.submit("sleepy").await?;
    let mut callers = JoinSet::new();
    let pause = Duration::from_secs(1) * CALLERS / PER_SECOND;
    let start = Instant::now() + Duration::from_millis(500);
    for (caller, key) in (0..CALLERS).zip(keys.iter().cycle()) {
        let target = server.submission(Some(key), "sleepy");
        let first = start + pause * caller / CALLERS;
        callers.spawn(async move {
            let mut connection = target.connect().await?;
            let mut took = Vec::new();
            for number in 0..PER_SECOND * SECONDS / CALLERS {
                let due = first + pause * number;
                sleep_until(due).await;
                let status = connection.ask(&target.request, |_| {}).await?;
                ensure!(status == 202, "a submission is answered {status}");
                took.push(due.elapsed().as_secs_f64() * 1e3);
            }
            Ok(took)
        });
    }
    let mut took = Vec::new();
    while let Some(done) = callers.join_next().await {
        took.extend(done??);
    }
    let after = bare_syncs(&desk.join("floor"))?;
    floor.extend(after);
    let p99 = percentile(&mut took, 99.0);
    say(format_args!(
        "submit to 202, {PER_SECOND}/s, {} submissions: p50 {:.2} ms, p99 {p99:.2} ms (bar: {BAR_MS} ms); \
         bare write + fdatasync: p50 {:.2} ms, p99 {:.2} ms",
        took.len(),
        percentile(&mut took, 50.0),
        percentile(&mut floor, 50.0),
        percentile(&mut floor, 99.0),
    ));
    bars.at_most("submit to 202, p99 ms", p99, BAR_MS);
    Ok(())
}

fn bare_syncs(path: &Path) -> Result<Vec<f64>> {
    let mut file = File::create(path)?;
    let row = [b'x'; 2_048];
    let mut took = Vec::new();
    for _ in 0..SYNCS {
        let start = std::time::Instant::now();
        file.write_all(&row)?;
        file.sync_data()?;
        took.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(took)
}
