//! A closed loop: so many callers, each of which asks again as soon as it has its answer.

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;

use super::client::{Connection, Target, within};
use super::process::Process;

/// How much longer than planned a slice may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// What came of a slice.
#[derive(Debug)]
pub(super) struct Slice {
    pub(super) elapsed: Duration,
    /// The time that the measured process took of processors.
    pub(super) cpu: Duration,
    /// How long each answer took.
    pub(super) times: Vec<Duration>,
}

impl Slice {
    pub(super) fn per_second(&self) -> f64 {
        self.times.len() as f64 / self.elapsed.as_secs_f64()
    }

    pub(super) fn cpu_micros_each(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.times.len() as f64
    }
}

/// Asks for as long as `length`, over so many connections.
pub(super) async fn closed_loop(
    target: &Target,
    process: &Process,
    connections: usize,
    length: Duration,
) -> Result<Slice> {
    within(length + PATIENCE, async {
        let mut open = Vec::new();
        for _ in 0..connections {
            open.push(target.connect().await?);
        }
        let mut callers = JoinSet::new();
        let (before, started) = (process.cpu()?, Instant::now());
        for connection in open {
            callers.spawn(call(connection, target.clone(), started + length));
        }
        let mut times = Vec::new();
        while let Some(called) = callers.join_next().await {
            times.extend(called??);
        }
        Ok(Slice {
            elapsed: started.elapsed(),
            cpu: process.cpu()?.saturating_sub(before),
            times,
        })
    })
    .await
}

async fn call(mut connection: Connection, target: Target, end: Instant) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    let mut asked = Instant::now();
    while asked < end {
        connection.ask_well(&target.request).await?;
        let answered = Instant::now();
        times.push(answered - asked);
        asked = answered;
    }
    Ok(times)
}
