//! The list of test suites, what each needs, and how it is run.

use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use abp_testkit::SKIP_LOG_ENV;
use anyhow::{Context, Result};

use super::count::{Counts, Format, Tally};
use super::descendants;
use crate::output::say;
use crate::workspace::cargo;

/// How long the output of a runner that has ended may stay open. A process that the tests left behind
/// can hold it for ever.
const OUTPUT_LIMIT: Duration = Duration::from_secs(5);
/// Between two looks at a runner.
const PAUSE: Duration = Duration::from_millis(50);

const fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

/// Every suite, in the order they run. A new one is an entry here.
///
/// The limits include building, and downloading where a suite installs something. They are the last
/// resort: nextest ends each test by the limits in `.config/nextest.toml`, libtest has none.
pub(super) const SUITES: &[Suite] = &[
    Suite {
        name: "workspace",
        needs: &[CARGO, GIT],
        command: workspace_tests,
        limit: minutes(60),
    },
    Suite {
        name: "preserve-order",
        needs: &[CARGO],
        command: preserve_order_tests,
        limit: minutes(15),
    },
    Suite {
        name: "doc",
        needs: &[CARGO],
        command: doc_tests,
        limit: minutes(20),
    },
    Suite {
        name: "corpus",
        needs: &[CARGO],
        command: corpus_tests,
        limit: minutes(15),
    },
    Suite {
        name: "sdk",
        needs: &[CARGO],
        command: sdk_tests,
        limit: minutes(20),
    },
    Suite {
        name: "ag-ui",
        needs: &[CARGO],
        command: ag_ui_tests,
        limit: minutes(20),
    },
    Suite {
        name: "acp",
        needs: &[CARGO],
        command: acp_tests,
        limit: minutes(20),
    },
    Suite {
        name: "gateway",
        needs: &[CARGO],
        command: gateway_tests,
        limit: minutes(20),
    },
    Suite {
        name: "control",
        needs: &[CARGO],
        command: control_tests,
        limit: minutes(20),
    },
    Suite {
        name: "console",
        needs: &[CARGO],
        command: console_tests,
        limit: minutes(20),
    },
];

const CARGO: Need = Need {
    tool: "cargo",
    probe: &["cargo", "--version"],
    install: &[],
};

/// The diffs we print are applied with the real thing.
const GIT: Need = Need {
    tool: "git",
    probe: &["git", "--version"],
    install: &["apt-get", "install", "--yes", "git"],
};

/// A set of tests with one runner.
pub(super) struct Suite {
    pub(super) name: &'static str,
    needs: &'static [Need],
    command: fn() -> Runner,
    /// The longest it may take.
    limit: Duration,
}

/// A tool that a suite cannot do without.
struct Need {
    tool: &'static str,
    /// Succeeds where the tool is present.
    probe: &'static [&'static str],
    /// Gets the tool; empty if only a person can.
    install: &'static [&'static str],
}

/// A command and the form in which it reports.
struct Runner {
    command: Command,
    format: Format,
}

impl Suite {
    /// Makes sure that everything the suite needs is there, or says what is missing.
    ///
    /// A missing tool fails the suite: tests that quietly stop running are how a regression gets in.
    pub(super) fn prepare(&self) -> Result<(), String> {
        for need in self.needs {
            if succeeds(need.probe) {
                let tool = need.tool;
                say(format_args!(
                    "{}: {tool} is present, nothing to install",
                    self.name
                ));
                continue;
            }
            say(format_args!("{}: installing {}", self.name, need.tool));
            if !succeeds(need.install) || !succeeds(need.probe) {
                return Err(format!("needs {}, which could not be installed", need.tool));
            }
        }
        Ok(())
    }

    /// Runs the suite with its output passed through, and returns what the runner reported and
    /// what else went wrong.
    pub(super) fn run(
        &self,
        root: &Path,
        skip_log: &Path,
    ) -> Result<(Option<Counts>, Option<String>)> {
        let Runner {
            mut command,
            format,
        } = (self.command)();
        say(format_args!("{}: {}", self.name, shown(&command)));
        if io::stderr().is_terminal() {
            command.env("CARGO_TERM_COLOR", "always");
        }
        let mut child = command
            .current_dir(root)
            .env(SKIP_LOG_ENV, skip_log)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", shown(&command)))?;
        let stdout = child.stdout.take().context("standard output is piped")?;
        let stderr = child.stderr.take().context("standard error is piped")?;
        let tally = Arc::new(Mutex::new(Tally::new(format)));
        let (done, both_done) = mpsc::channel();
        spawn_copy(stdout, io::stdout(), &tally, &done);
        spawn_copy(stderr, io::stderr(), &tally, &done);
        let start = Instant::now();
        let mut problem = None;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if start.elapsed() >= self.limit {
                descendants::end(&mut child)?;
                let limit = self.limit.as_secs();
                problem = Some(format!("it did not end within {limit} s and was ended"));
                break child.wait()?;
            }
            thread::sleep(PAUSE);
        };
        let ended = Instant::now();
        for _ in 0..2 {
            let left = OUTPUT_LIMIT.saturating_sub(ended.elapsed());
            match both_done.recv_timeout(left) {
                Ok(copied) => copied.context("cannot pass the output of the tests on")?,
                Err(_) => {
                    let left = "a process that the tests left behind holds their output open";
                    problem.get_or_insert_with(|| left.to_owned());
                }
            }
        }
        let counts = tally.lock().ok().and_then(|tally| tally.counts());
        let explained = counts.is_some_and(|counts| counts.failed > 0);
        if !status.success() && !explained {
            problem.get_or_insert_with(|| {
                format!("the runner ended with {status} and no failed test")
            });
        }
        Ok((counts, problem))
    }
}

/// Copies on a thread of its own, which reports its end.
fn spawn_copy(
    from: impl Read + Send + 'static,
    to: impl Write + Send + 'static,
    tally: &Arc<Mutex<Tally>>,
    done: &mpsc::Sender<io::Result<()>>,
) {
    let (tally, done) = (Arc::clone(tally), done.clone());
    thread::spawn(move || {
        // The receiver is gone when it stopped waiting; then there is nothing to report to.
        drop(done.send(pass_through(from, to, &tally)));
    });
}

/// Copies line by line, so that progress shows while the figures are picked out.
fn pass_through(from: impl Read, mut to: impl Write, tally: &Mutex<Tally>) -> io::Result<()> {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        to.flush()?;
        if let Ok(mut tally) = tally.lock() {
            tally.line(String::from_utf8_lossy(&line).trim_end());
        }
        line.clear();
    }
    Ok(())
}

/// Everything but the doc tests, which nextest cannot run.
fn workspace_tests() -> Runner {
    let mut command = cargo();
    let format = if succeeds(&["cargo", "nextest", "--version"]) {
        command.args(["nextest", "run"]);
        Format::Nextest
    } else {
        command.args(["test", "--tests"]);
        Format::Libtest
    };
    command.args(["--workspace", "--no-fail-fast"]);
    Runner { command, format }
}

/// The contract's tests with a feature on that any other crate of a binary can switch on for all:
/// no hash may depend on it.
fn preserve_order_tests() -> Runner {
    let mut command = cargo();
    command.args(["test", "--package", "abp-core", "--test", "it"]);
    command.args(["--features", "serde_json/preserve_order"]);
    Runner {
        command,
        format: Format::Libtest,
    }
}

fn doc_tests() -> Runner {
    let mut command = cargo();
    command.args(["test", "--doc", "--workspace", "--no-fail-fast"]);
    Runner {
        command,
        format: Format::Libtest,
    }
}

/// Recorded traffic, there and back. It is no part of the repository; where it is absent the task says
/// so and skips.
fn corpus_tests() -> Runner {
    let mut command = cargo();
    command.args(["xtask", "corpus"]);
    Runner {
        command,
        format: Format::Totals,
    }
}

/// Says itself what it misses and skips: it needs two other languages and their packages.
fn sdk_tests() -> Runner {
    let mut command = cargo();
    command.args(["xtask", "sdk"]);
    Runner {
        command,
        format: Format::Totals,
    }
}

/// As the one before; AG-UI's client follows runs of a live server.
fn ag_ui_tests() -> Runner {
    let mut command = cargo();
    command.args(["xtask", "ag-ui"]);
    Runner {
        command,
        format: Format::Totals,
    }
}

/// As the one before; the official client drives ABP as an agent.
fn acp_tests() -> Runner {
    let mut command = cargo();
    command.args(["xtask", "acp"]);
    Runner {
        command,
        format: Format::Totals,
    }
}

/// As the one before; the SDKs talk through the gateway to a vendor on this machine.
fn gateway_tests() -> Runner {
    let mut command = cargo();
    command.args(["xtask", "gateway"]);
    Runner {
        command,
        format: Format::Totals,
    }
}

/// As the one before; programs that know nothing but the OpenAPI document use the control plane.
fn control_tests() -> Runner {
    let mut command = cargo();
    command.args(["xtask", "control"]);
    Runner {
        command,
        format: Format::Totals,
    }
}

/// As the one before; a browser uses the console.
fn console_tests() -> Runner {
    let mut command = cargo();
    command.args(["xtask", "console"]);
    Runner {
        command,
        format: Format::Totals,
    }
}

fn succeeds(words: &[&str]) -> bool {
    let Some((program, arguments)) = words.split_first() else {
        return false;
    };
    Command::new(program)
        .args(arguments)
        .output()
        .is_ok_and(|output| output.status.success())
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_stem();
    let words = program.into_iter().chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const WELL: &str = "echo '1 passed, 0 failed, 0 skipped'";

    fn sh(script: &str) -> Runner {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Runner {
            command,
            format: Format::Totals,
        }
    }

    /// The suite ends soon, and so does everything it started.
    #[track_caller]
    fn check(command: fn() -> Runner, limit: Duration, expected: Option<&str>) {
        let suite = Suite {
            name: "test",
            needs: &[],
            command,
            limit,
        };
        let start = Instant::now();
        let (_, problem) = suite.run(Path::new("."), Path::new("skips")).unwrap();
        assert!(start.elapsed() < Duration::from_secs(30));
        match expected {
            Some(expected) => assert!(problem.as_ref().unwrap().contains(expected), "{problem:?}"),
            None => assert_eq!(problem, None),
        }
    }

    #[test]
    fn a_suite_that_hangs_is_ended_with_all_it_started() {
        let limit = Duration::from_secs(1);
        let hangs = || sh("sleep 3601 & (trap '' TERM; sleep 3602; sleep 3602)");
        check(hangs, limit, Some("did not end within 1 s"));
        let ours = |entry: std::fs::DirEntry| {
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8(line).ok()?;
            (line == "sleep\x003601\0" || line == "sleep\x003602\0").then_some(line)
        };
        let left: Vec<_> = std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(ours)
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn a_process_left_behind_does_not_hold_the_suite_up() {
        let limit = Duration::from_secs(60);
        check(|| sh(WELL), limit, None);
        let leaves = || sh(&format!("sleep 20 & {WELL}"));
        check(leaves, limit, Some("holds their output open"));
    }
}
