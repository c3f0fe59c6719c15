//! A thousand runs at once, and the memory they take.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::{Instant, sleep};

use super::Bars;
use super::server::Server;
use crate::output::say;

pub(super) const RUNS: usize = 1_000;
const BAR_MB: f64 = 300.0;
/// How long beginning them may take.
const PATIENCE: Duration = Duration::from_secs(300);

pub(super) async fn measure(server: &Server, bars: &mut Bars) -> Result<()> {
    let before = server.process.memory_kb()?;
    let start = Instant::now();
    for _ in 0..RUNS {
        server.submit("sleepy").await?;
    }
    let mut running = 0;
    while running < RUNS {
        sleep(Duration::from_millis(500)).await;
        running = server.running().await?;
        let late = start.elapsed() > PATIENCE;
        ensure!(!late, "only {running} runs go on");
    }
    let began = start.elapsed();
    sleep(Duration::from_secs(3)).await;
    let (after, peak) = (
        server.process.memory_kb()?,
        server.process.peak_memory_kb()?,
    );
    let megabytes = peak as f64 / 1024.0;
    say(format_args!(
        "{RUNS} mock runs at once: {megabytes:.0} MB at most (bar: {BAR_MB} MB), {:.0} MB with all of them going on, \
         {:.0} MB before; all went on after {:.1} s",
        after as f64 / 1024.0,
        before as f64 / 1024.0,
        began.as_secs_f64(),
    ));
    bars.at_most("memory of 1,000 runs, MB", megabytes, BAR_MB);
    Ok(())
}
