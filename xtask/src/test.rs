//! Runs every test suite and ends with one summary that can be trusted.
//!
//! A suite that fails does not stop the others. Every figure is read from what the runner printed;
//! a suite whose runner printed none has none, and fails. The last line is always
//! `N passed, N failed, N skipped`, alone.

mod count;
mod descendants;
mod suite;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use abp_testkit::{Skip, parse_skip_log};
use anyhow::{Context, Result};

use crate::output::say;
use count::Counts;
use suite::{SUITES, Suite};

/// What became of one suite.
struct Outcome {
    suite: &'static str,
    /// Absent when the runner reported nothing.
    counts: Option<Counts>,
    skips: Vec<Skip>,
    /// Why the suite failed, beyond failed tests.
    problem: Option<String>,
    time: Duration,
}

/// Runs all suites. The summary is the last thing printed, also when something failed.
pub(crate) fn run() -> Result<ExitCode> {
    let root = crate::workspace::root()?;
    let logs = root.join("target/test-skips");
    fs::create_dir_all(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
    let mut outcomes = Vec::new();
    for suite in SUITES {
        let log = logs.join(format!("{}.log", suite.name));
        outcomes.push(run_suite(suite, &root, &log)?);
    }
    let (lines, all_is_well) = summary(&outcomes);
    say("");
    for line in lines {
        say(line);
    }
    Ok(if all_is_well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn run_suite(suite: &Suite, root: &Path, log: &Path) -> Result<Outcome> {
    // Left from an earlier run, it would be counted again.
    if log.exists() {
        fs::remove_file(log).with_context(|| format!("cannot remove {}", log.display()))?;
    }
    let start = Instant::now();
    let (reported, problem) = match suite.prepare() {
        Ok(()) => suite.run(root, log)?,
        Err(missing) => (None, Some(missing)),
    };
    let skips = parse_skip_log(&fs::read_to_string(log).unwrap_or_default());
    Ok(judge(suite.name, reported, problem, skips, start.elapsed()))
}

/// Moves the tests that skipped themselves from the passed ones to the skipped ones.
fn judge(
    suite: &'static str,
    reported: Option<Counts>,
    problem: Option<String>,
    skips: Vec<Skip>,
    time: Duration,
) -> Outcome {
    let mut problem = problem;
    let counts = reported.map(|mut counts| {
        match counts.passed.checked_sub(skips.len()) {
            Some(passed) => counts.passed = passed,
            None => problem = Some("more tests said they skipped than passed".to_owned()),
        }
        counts.skipped += skips.len();
        counts
    });
    if counts.is_none() && problem.is_none() {
        problem = Some("the runner reported no result".to_owned());
    }
    Outcome {
        suite,
        counts,
        skips,
        problem,
        time,
    }
}

/// Returns the lines of the summary, the totals last, and whether all is well.
fn summary(outcomes: &[Outcome]) -> (Vec<String>, bool) {
    let mut total = Counts::default();
    let mut lines = Vec::new();
    for outcome in outcomes {
        let figures = match &outcome.counts {
            Some(counts) => counts.to_string(),
            None => "no result".to_owned(),
        };
        total += outcome.counts.unwrap_or_default();
        let seconds = outcome.time.as_secs_f64();
        lines.push(format!("{:<10} {figures}  ({seconds:.1} s)", outcome.suite));
    }
    for outcome in outcomes {
        let problem = outcome.problem.iter();
        lines.extend(problem.map(|problem| format!("{}: {problem}", outcome.suite)));
    }
    for outcome in outcomes {
        for Skip { what, why } in &outcome.skips {
            lines.push(format!("{} skipped: {what} — {why}", outcome.suite));
        }
    }
    if total.passed + total.failed == 0 {
        lines.push("no test ran".to_owned());
    }
    lines.push(total.to_string());
    let is_broken = outcomes.iter().any(|outcome| outcome.problem.is_some());
    (lines, !is_broken && total.failed == 0 && total.passed > 0)
}

#[cfg(test)]
mod tests;
