//! What `abp serve` costs, beside nginx and beside a bare proxy without logic, on the same requests to
//! the same fake upstream, in one run.
//!
//! Absolute figures move from run to run; the bars are ratios to the two floors, taken in
//! interleaved rounds. Every server is a process of its own, and the load comes from this one.

mod bars;
pub(super) mod client;
mod closed;
mod decode;
mod dialogue;
mod figures;
mod held;
mod lane;
mod measure;
mod overload;
mod paced;
mod pauses;
mod peers;
pub(super) mod process;
mod proxy;
mod role;
mod upstream;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::client::Target;
use self::dialogue::Pace;
use self::figures::{millis, percentile};
use self::lane::{Way, lanes};
use self::overload::Overload;
use self::pauses::Witnesses;
use self::peers::{Abp, Desk, Nginx, Plain, Room};
use self::role::Role;
use crate::output::say;
pub(crate) use role::run_if_role;

/// Descriptors that are needed besides those of streams.
const OTHER_DESCRIPTORS: u64 = 256;

/// How much is measured.
#[derive(Debug)]
struct Plan {
    rounds: usize,
    slice: Duration,
    paced_rounds: usize,
    starts: usize,
    streams: usize,
    overload: Duration,
    /// How often at most a round is measured in which the machine pauses.
    tries: usize,
    /// Whether it is only tried out, and its bars mean nothing.
    is_trial: bool,
}

impl Plan {
    fn full() -> Self {
        Self {
            rounds: 9,
            slice: Duration::from_millis(700),
            paced_rounds: 7,
            starts: 9,
            streams: 8_000,
            overload: Duration::from_secs(4),
            tries: 5,
            is_trial: false,
        }
    }

    fn trial() -> Self {
        Self {
            rounds: 2,
            slice: Duration::from_millis(200),
            paced_rounds: 2,
            starts: 2,
            streams: 500,
            overload: Duration::from_secs(1),
            tries: 1,
            is_trial: true,
        }
    }
}

pub(crate) fn run() -> Result<()> {
    let plan = match std::env::var_os("ABP_BENCH_QUICK") {
        None => Plan::full(),
        Some(_) => Plan::trial(),
    };
    let program = peers::build_abp()?;
    let bench = Bench {
        descriptors: allow_descriptors()?,
        desk: Desk::new()?,
        witnesses: Witnesses::post()?,
        upstream: Plain::start(Role::Upstream)?,
        program,
        plan,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let missed = runtime.block_on(bench.measure())?;
    ensure!(
        missed == 0 || bench.plan.is_trial,
        "{missed} bars are not reached, or cannot be told to be"
    );
    Ok(())
}

/// Allows this process, and those it starts, as many open files as may be allowed.
fn allow_descriptors() -> Result<u64> {
    let most = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: most,
        maximum: most,
    };
    setrlimit(Resource::Nofile, limit).context("open files cannot be allowed")?;
    Ok(most.unwrap_or(u64::MAX))
}

/// A run.
struct Bench {
    plan: Plan,
    program: PathBuf,
    upstream: Plain,
    descriptors: u64,
    desk: Desk,
    witnesses: Witnesses,
}

/// What the gateway takes before and while it works.
struct Memory {
    /// From the start of the process to its first answer.
    ready: Duration,
    idle_mb: f64,
    loaded_mb: f64,
}

/// What open streams take.
struct OpenStreams {
    count: usize,
    hyper_kb: f64,
    abp_kb: f64,
}

impl Bench {
    /// Measures everything; how many bars are not reached.
    async fn measure(&self) -> Result<usize> {
        let started = Instant::now();
        let address = self.upstream.address;
        let abp = self.abp("main", Room::AsShipped)?;
        let nginx = Nginx::start(&self.desk, address)?;
        let hyper = Plain::start(Role::Proxy(address))?;
        let idle_mb = megabytes(abp.process.memory_kb()?);
        let lanes = lanes(&self.upstream, nginx.as_ref(), &hyper, &abp);
        for lane in &lanes {
            lane.check().await.context(lane.way.name())?;
        }

        let json = measure::json(&self.plan, &lanes).await?;
        measure::tell_json(&json);
        let streams = measure::streams(&self.plan, &self.witnesses, &lanes).await?;
        measure::tell_streams(&streams);
        let memory = Memory {
            ready: self.ready().await?,
            idle_mb,
            loaded_mb: megabytes(abp.process.peak_memory_kb()?),
        };
        memory.tell();
        let late = Way::Passthrough.target(abp.address, &abp.key, Pace::Late);
        let overload = self.witnesses.undisturbed(self.plan.tries, async || {
            overload::measure(&abp, &late, self.plan.overload).await
        });
        let overload = overload.await?;
        overload.figure.tell();
        drop((nginx, hyper));
        let open = self.open_streams().await?;
        open.tell();

        let mut bars = bars::of_json(&json);
        bars.extend(bars::of_streams(&streams));
        bars.extend(bars::of_memory(&memory));
        bars.extend(bars::of_open_streams(&open, self.plan.streams));
        bars.extend(bars::of_overload(&overload));
        let missed = bars::tell(&bars);
        say(format_args!("\n{:.0} s", started.elapsed().as_secs_f64()));
        Ok(missed)
    }

    fn abp(&self, name: &str, room: Room) -> Result<Abp> {
        let program: &Path = &self.program;
        Abp::start(program, &self.desk, name, self.upstream.address, room)
            .context("abp does not start")
    }

    /// How long it takes from the start of the gateway, with a new state, to its first answer.
    async fn ready(&self) -> Result<Duration> {
        let mut times = Vec::new();
        for number in 0..self.plan.starts {
            let started = Instant::now();
            let abp = self.abp(&format!("start-{number}"), Room::AsShipped)?;
            let request = format!("GET /readyz HTTP/1.1\r\nhost: {}\r\n\r\n", abp.address);
            let ready = Target {
                address: abp.address,
                request: request.into(),
            };
            ready.connect().await?.ask_well(&ready.request).await?;
            times.push(started.elapsed());
        }
        Ok(percentile(&mut times, 0.5))
    }

    async fn open_streams(&self) -> Result<OpenStreams> {
        // Whoever is between has two for each stream.
        let most = self.descriptors.saturating_sub(OTHER_DESCRIPTORS) / 2;
        let count = usize::try_from(most)?.min(self.plan.streams);
        let hyper = Plain::start(Role::Proxy(self.upstream.address))?;
        let target = |pace| Way::Hyper.target(hyper.address, "key", pace);
        let (warm_up, slow) = (target(Pace::Unpaced), target(Pace::Slow));
        let hyper_kb = held::kilobytes_each(&hyper.process, &warm_up, &slow, count)
            .await
            .context("open streams through bare hyper")?;
        let abp = self.abp("streams", Room::Streams(2 * self.plan.streams))?;
        let target = |pace| Way::Passthrough.target(abp.address, &abp.key, pace);
        let (warm_up, slow) = (target(Pace::Unpaced), target(Pace::Slow));
        let abp_kb = held::kilobytes_each(&abp.process, &warm_up, &slow, count)
            .await
            .context("open streams through abp")?;
        Ok(OpenStreams {
            count,
            hyper_kb,
            abp_kb,
        })
    }
}

impl Memory {
    fn tell(&self) {
        say(format_args!(
            "\nabp: ready {:.1} ms after its start with a new state; memory {:.1} MB idle, at most {:.1} MB under load",
            millis(self.ready),
            self.idle_mb,
            self.loaded_mb,
        ));
    }
}

impl OpenStreams {
    fn tell(&self) {
        let Self {
            count,
            hyper_kb,
            abp_kb,
        } = self;
        say(format_args!(
            "{count} open streams (two descriptors each): {abp_kb:.1} KB each in abp, {hyper_kb:.1} KB in bare hyper"
        ));
    }
}

impl Overload {
    fn tell(&self) {
        say(format_args!(
            "overload: {:.0} requests/s where {:.0} can be served: {:.0} answered, {:.0} refused, p99 of refusals {:.1} ms",
            self.offered,
            self.peak,
            self.goodput,
            self.refused,
            millis(self.refused_p99),
        ));
    }
}

fn megabytes(kilobytes: u64) -> f64 {
    kilobytes as f64 / 1024.0
}
