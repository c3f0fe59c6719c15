//! The machine's own pauses.
//!
//! A host may give the processor of a virtual machine to somebody else; whoever runs there then stands
//! still for milliseconds. Where the longest of many waits is measured, that is all that is measured. So
//! a witness on every processor sleeps in short steps and notes by how much it overslept without having
//! waited for anybody in this machine. Which of several rounds counts is decided by that, never by what
//! was measured.

use std::convert::Infallible;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::output::say;

/// How long a witness sleeps at a time.
const STEP: Duration = Duration::from_micros(500);
/// Waking takes a while on any machine.
const USUAL: Duration = Duration::from_micros(200);

/// A figure, and the longest pause of the machine while it was taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken<T> {
    pub(super) figure: T,
    pub(super) pause: Duration,
}

/// Witnesses on all processors; dropping them ends them.
#[derive(Debug)]
pub(super) struct Witnesses {
    seen: Arc<Seen>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The longest pause since somebody asked, in nanoseconds.
    longest: AtomicU64,
    ended: AtomicBool,
}

impl Witnesses {
    /// Posts one on every processor that may be used, and waits until they watch.
    pub(super) fn post() -> Result<Self> {
        let seen = Arc::<Seen>::default();
        let (watches, watching) = mpsc::channel();
        let allowed = sched_getaffinity(None).context("the processors are not told")?;
        let processors = (0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number));
        let threads = processors.map(|processor| {
            let (seen, watches) = (Arc::clone(&seen), watches.clone());
            thread::Builder::new()
                .name(format!("witness-{processor}"))
                .spawn(move || {
                    if let Err(error) = witness(processor, &seen, watches) {
                        say(format_args!(
                            "pauses of processor {processor} are not seen: {error}"
                        ));
                    }
                })
        });
        let threads = threads.collect::<std::io::Result<_>>()?;
        // Each lets go of its end when it watches, or when it cannot.
        drop(watches);
        watching.into_iter().for_each(drop::<Infallible>);
        Ok(Self { seen, threads })
    }

    /// Measures until the machine did not pause meanwhile, but no more than `tries` times. The try that
    /// counts is the one with the shortest pause.
    pub(super) async fn undisturbed<T>(
        &self,
        tries: usize,
        measure: impl AsyncFn() -> Result<T>,
    ) -> Result<Taken<T>> {
        quietest(tries, || self.longest(), measure).await
    }

    /// The longest pause since this was last asked.
    fn longest(&self) -> Duration {
        Duration::from_nanos(self.seen.longest.swap(0, Ordering::Relaxed))
    }
}

impl Drop for Witnesses {
    fn drop(&mut self) {
        self.seen.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}

/// Notes the pauses of a processor, as far as the system lets it, once it has let go of `watches`.
fn witness(processor: usize, seen: &Seen, watches: mpsc::Sender<Infallible>) -> Result<()> {
    let mut only = CpuSet::new();
    only.set(processor);
    sched_setaffinity(None, &only)?;
    let own = File::open("/proc/thread-self/schedstat")?;
    let (mut queued, mut looked) = (time_queued(&own)?, Instant::now());
    drop(watches);
    while !seen.ended.load(Ordering::Relaxed) {
        thread::sleep(STEP);
        let (now_queued, now) = (time_queued(&own)?, Instant::now());
        // From one look to the next, so that no moment is left out.
        let overslept = now.duration_since(looked).saturating_sub(STEP);
        // Whoever ran here instead of the witness is no pause of the machine.
        let pause = overslept.saturating_sub(now_queued.saturating_sub(queued));
        (queued, looked) = (now_queued, now);
        if pause > USUAL {
            let pause = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
            seen.longest.fetch_max(pause, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// How long a thread was ready and did not run, because others did.
fn time_queued(schedstat: &File) -> Result<Duration> {
    let mut text = [0; 64];
    let length = schedstat.read_at(&mut text, 0)?;
    let text = std::str::from_utf8(text.get(..length).unwrap_or_default())?;
    queued_in(text)
}

/// The second figure: the first is how long it ran.
fn queued_in(schedstat: &str) -> Result<Duration> {
    let queued = schedstat.split_whitespace().nth(1);
    Ok(Duration::from_nanos(
        queued.context("no time in a queue")?.parse()?,
    ))
}

async fn quietest<T>(
    tries: usize,
    longest: impl Fn() -> Duration,
    measure: impl AsyncFn() -> Result<T>,
) -> Result<Taken<T>> {
    let mut best: Option<Taken<T>> = None;
    for _ in 0..tries {
        // What was before does not count.
        longest();
        let figure = measure().await?;
        let pause = longest();
        if best.as_ref().is_none_or(|best| pause < best.pause) {
            best = Some(Taken { figure, pause });
        }
        if pause.is_zero() {
            break;
        }
    }
    best.context("nothing was measured")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::process::Command;

    use super::*;

    #[tokio::test]
    async fn the_quietest_try_counts() {
        let cases: [(&[u64], usize, u64); 4] = [
            (&[0, 9], 1, 0),
            (&[7, 0, 3], 2, 0),
            (&[7, 3, 5], 2, 3),
            (&[4, 4, 4], 1, 4),
        ];
        for (pauses, counted, left) in cases {
            let (tries, pause) = (Cell::new(0), Cell::new(11));
            let measure = async || {
                let next = pauses.get(tries.get()).context("one try too many")?;
                pause.set(*next);
                tries.set(tries.get() + 1);
                Ok(tries.get())
            };
            let longest = || Duration::from_millis(pause.take());
            let taken = quietest(3, longest, measure).await.expect("it is measured");
            let taken = (taken.figure, taken.pause);
            assert_eq!(taken, (counted, Duration::from_millis(left)), "{pauses:?}");
        }
    }

    /// Whoever is stopped is not ready to run, as whoever is on a processor that was taken away.
    #[test]
    fn a_pause_that_nobody_here_causes_is_seen() {
        let witnesses = Witnesses::post().expect("witnesses");
        // A busy machine may take its time to stop every thread, and to wake one afterwards.
        let stop = "kill -STOP $PPID
            while grep -q 'State:.[^T]' /proc/$PPID/task/*/status; do sleep 0.01; done
            sleep 0.2; kill -CONT $PPID";
        let stopped = Command::new("sh").args(["-c", stop]).status();
        assert!(stopped.expect("a shell").success());
        let given_up = Instant::now() + Duration::from_secs(60);
        while witnesses.longest() < Duration::from_millis(150) {
            assert!(Instant::now() < given_up, "the pause was not seen");
            thread::sleep(STEP);
        }
    }

    #[test]
    fn time_in_a_queue_is_found() {
        let queued = queued_in("1829384 40250 17\n").expect("a time");
        assert_eq!(queued, Duration::from_nanos(40_250));
        assert!(queued_in("1829384").is_err());
    }
}
