//! The one way a test says that it did not run.
//!
//! The test harness knows only "passed" and "failed", and the runner hides what a passing test
//! prints. A skipping test therefore also leaves a line in the file that `cargo xtask test` names
//! in [`SKIP_LOG_ENV`]; the summary subtracts those tests from the passed ones and lists why.

use std::env;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, Write};

/// The environment variable that names the file [`skip`] appends to.
pub const SKIP_LOG_ENV: &str = "ABP_TEST_SKIP_LOG";

/// One test that did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// What was not tested.
    pub what: String,
    /// What was missing.
    pub why: String,
}

/// Reports that the calling test is skipped; the test returns right after the call.
///
/// A test calls this at most once, and before it has checked anything: one line is one test.
///
/// # Panics
///
/// When the log cannot be written, because the test would then be counted as passed.
pub fn skip(what: &str, why: &str) {
    let log = env::var_os(SKIP_LOG_ENV);
    if let Err(error) = record(log.as_deref(), what, why) {
        #[expect(
            clippy::panic,
            reason = "a lost line would turn a skipped test into a passed one"
        )]
        {
            panic!("cannot record that {what} was skipped: {error}");
        }
    }
}

/// Reads the lines that [`skip`] appended.
pub fn parse_skip_log(text: &str) -> Vec<Skip> {
    text.lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(what, why)| Skip {
            what: what.to_owned(),
            why: why.to_owned(),
        })
        .collect()
}

fn record(log: Option<&OsStr>, what: &str, why: &str) -> io::Result<()> {
    // Written to the stream itself: the harness captures only the print macros, and a skip should
    // be visible under a plain `cargo test` too.
    writeln!(io::stderr(), "skipped: {what} — {why}")?;
    let Some(log) = log else { return Ok(()) };
    // One write of one short line: tests append from many processes at once.
    let line = format!("{}\t{}\n", one_line(what), one_line(why));
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)?
        .write_all(line.as_bytes())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reason with a tab or a line break must neither split into two skips nor shift the columns.
    #[test]
    fn a_logged_skip_reads_back_as_one_line() {
        let log = env::temp_dir().join(format!("abp-testkit-skip-{}", std::process::id()));
        record(Some(log.as_os_str()), "the\tcorpus", "no data\nhere").expect("first line");
        record(Some(log.as_os_str()), "browser", "no binary").expect("second line");
        let text = std::fs::read_to_string(&log).expect("log exists");
        std::fs::remove_file(&log).expect("log is removed");
        let expected = [("the corpus", "no data here"), ("browser", "no binary")];
        let expected = expected.map(|(what, why)| Skip {
            what: what.to_owned(),
            why: why.to_owned(),
        });
        assert_eq!(parse_skip_log(&text), expected);
    }
}
