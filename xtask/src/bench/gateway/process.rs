//! A process that is measured: its processor time and its memory, as the kernel counts them.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Deserializer, Value};

/// A running process; dropping it ends it.
#[derive(Debug)]
pub(in crate::bench) struct Process {
    child: Child,
}

impl Process {
    pub(in crate::bench) fn start(command: &mut Command) -> Result<Self> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let program = || format!("cannot start {}", command.get_program().display());
        let child = child.with_context(program)?;
        Ok(Self { child })
    }

    /// Waits for the first JSON value that it prints.
    pub(in crate::bench) fn first_value(&mut self) -> Result<Value> {
        let output = self.child.stdout.as_mut().context("it has no output")?;
        let mut values = Deserializer::from_reader(output).into_iter();
        Ok(values.next().context("it ended before it was ready")??)
    }

    /// How much time processors spent on it so far, on all its threads.
    pub(in crate::bench) fn cpu(&self) -> Result<Duration> {
        let stat = self.proc("stat")?;
        // The second field is the program's name, which may hold anything.
        let (_, fields) = stat.rsplit_once(')').context("no fields")?;
        let mut fields = fields.split_whitespace().skip(11).map(str::parse::<u64>);
        let mut ticks = || fields.next().context("no time")?.context("no number");
        let ticks = ticks()? + ticks()?;
        let per_second = rustix::param::clock_ticks_per_second();
        Ok(Duration::from_secs_f64(ticks as f64 / per_second as f64))
    }

    /// The memory it has now, in kilobytes.
    pub(in crate::bench) fn memory_kb(&self) -> Result<u64> {
        self.status("VmRSS:")
    }

    /// The most memory it ever had, in kilobytes.
    pub(in crate::bench) fn peak_memory_kb(&self) -> Result<u64> {
        self.status("VmHWM:")
    }

    fn status(&self, name: &str) -> Result<u64> {
        let status = self.proc("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let figure = line.and_then(|line| line.split_whitespace().next());
        Ok(figure.with_context(|| format!("no {name}"))?.parse()?)
    }

    fn proc(&self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.child.id());
        fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended already needs neither.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
