//! Many streams open at once: what each of them takes of the memory of whoever is between.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::client::{Target, within};
use super::closed::closed_loop;
use super::process::Process;

/// How many streams are being opened at the same time.
const OPENING: usize = 64;
/// How long they are held open; each of them sends something meanwhile.
const HOLD: Duration = Duration::from_millis(2_500);
const WARM_UP: Duration = Duration::from_millis(300);

/// Opens so many streams, and tells how much memory the process took for each, in kilobytes.
pub(super) async fn kilobytes_each(
    process: &Process,
    warm_up: &Target,
    slow: &Target,
    count: usize,
) -> Result<f64> {
    closed_loop(warm_up, process, OPENING, WARM_UP).await?;
    let before = process.memory_kb()?;
    let mut streams = Streams::default();
    within(Duration::from_secs(60), streams.open(slow, count)).await?;
    let pieces = streams.pieces.load(Ordering::Relaxed);
    tokio::time::sleep(HOLD).await;
    let after = process.memory_kb()?;
    streams.check_open()?;
    let came = streams.pieces.load(Ordering::Relaxed) - pieces;
    ensure!(came >= count, "{count} streams sent {came} pieces");
    streams.tasks.shutdown().await;
    Ok(after.saturating_sub(before) as f64 / count as f64)
}

#[derive(Default)]
struct Streams {
    tasks: JoinSet<Result<u16>>,
    pieces: Arc<AtomicUsize>,
}

impl Streams {
    async fn open(&mut self, target: &Target, count: usize) -> Result<()> {
        let gate = Arc::new(Semaphore::new(OPENING));
        for _ in 0..count {
            let mut place = Some(Arc::clone(&gate).acquire_owned().await?);
            let (target, pieces) = (target.clone(), Arc::clone(&self.pieces));
            self.tasks.spawn(async move {
                let mut connection = target.connect().await?;
                let piece = |_: &[u8]| {
                    drop(place.take());
                    pieces.fetch_add(1, Ordering::Relaxed);
                };
                connection.ask(&target.request, piece).await
            });
            self.check_open()?;
        }
        drop(gate.acquire_many(OPENING as u32).await?);
        self.check_open()
    }

    /// Fails where a stream has ended: none of them does by itself.
    fn check_open(&mut self) -> Result<()> {
        match self.tasks.try_join_next() {
            None => Ok(()),
            Some(ended) => bail!("a stream ended with {}", ended??),
        }
    }
}
