//! The control plane under load: submissions, runs at once, followers, events.
//!
//! `abp serve` is a process of its own with a new state directory on the disk; the load comes from this process,
//! on one thread. Runs are scripted: they sleep, or say something every two seconds.

mod followers;
mod many;
mod server;
mod submit;

use std::fs;

use anyhow::{Result, bail, ensure};

use self::server::Server;
use super::{run as whole_run, store};
use crate::output::say;
use crate::workspace::{cargo, root};

const EVENTS_BAR: f64 = 50_000.0;
const RUN_BAR_MS: f64 = 100.0;

/// Figures against their bars.
#[derive(Default)]
struct Bars {
    missed: Vec<String>,
}

impl Bars {
    /// A figure that must not be larger.
    fn at_most(&mut self, what: &str, figure: f64, bar: f64) {
        if figure > bar {
            self.missed
                .push(format!("{what}: {figure:.1}, the bar is {bar}"));
        }
    }

    /// A figure that must not be smaller.
    fn at_least(&mut self, what: &str, figure: f64, bar: f64) {
        if figure < bar {
            self.missed
                .push(format!("{what}: {figure:.1}, the bar is {bar}"));
        }
    }
}

pub(crate) fn run() -> Result<()> {
    let built = cargo()
        .args(["build", "--quiet", "--release", "--package", "abp-cli"])
        .status()?;
    ensure!(built.success(), "abp-cli does not build");
    let desk = root()?.join("target/bench-control");
    if desk.exists() {
        fs::remove_dir_all(&desk)?;
    }
    fs::create_dir_all(&desk)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut bars = Bars::default();
    runtime.block_on(async {
        let server = Server::start(&desk.join("submit"), 1)?;
        submit::measure(&server, &desk, &mut bars).await?;
        drop(server);
        let server = Server::start(&desk.join("many"), many::RUNS)?;
        many::measure(&server, &mut bars).await?;
        drop(server);
        let server = Server::start(&desk.join("followers"), followers::RUNS)?;
        followers::measure(&server, &mut bars).await
    })?;
    let events = tokio::runtime::Runtime::new()?.block_on(store::grouped(
        &desk.join("events"),
        &format!(
            r#"{{"type":"assistant_delta","text":"{}"}}"#,
            "x".repeat(250)
        ),
    ))?;
    say(format_args!(
        "events appended to one run: {events:.0} a second (bar: {EVENTS_BAR})"
    ));
    bars.at_least("events a second", events, EVENTS_BAR);
    let took = whole_run::measure()?.as_secs_f64() * 1e3;
    bars.at_most("abp run, ms", took, RUN_BAR_MS);
    fs::remove_dir_all(&desk)?;
    if !bars.missed.is_empty() {
        bail!("bars that are missed:\n  {}", bars.missed.join("\n  "));
    }
    Ok(())
}

/// The value that so many of a hundred do not exceed.
fn percentile(values: &mut [f64], percent: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let place = (values.len() as f64 * percent / 100.0).ceil() as usize;
    values
        .get(place.saturating_sub(1))
        .copied()
        .unwrap_or_default()
}
