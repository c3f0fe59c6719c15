//! Reads the figures out of what the test runners print.

use std::fmt;
use std::ops::AddAssign;

/// How many tests ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) skipped: usize,
}

/// Which runner's closing lines to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// One `Summary [...] N tests run: ...` at the end.
    Nextest,
    /// One `test result: ...` per binary.
    Libtest,
    /// Our own `N passed, N failed, N skipped`, alone at the end.
    Totals,
}

/// Follows the output of one runner, line by line.
#[derive(Debug)]
pub(super) struct Tally {
    format: Format,
    counts: Option<Counts>,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
        } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

impl Tally {
    pub(super) fn new(format: Format) -> Self {
        let counts = None;
        Self { format, counts }
    }

    pub(super) fn line(&mut self, line: &str) {
        let line = without_escapes(line);
        match self.format {
            // The last one counts: a failed test may have printed something that looks alike.
            Format::Nextest => self.counts = nextest(&line).or(self.counts),
            Format::Libtest => {
                if let Some(counts) = libtest(&line) {
                    *self.counts.get_or_insert_default() += counts;
                }
            }
            Format::Totals => self.counts = totals(&line).or(self.counts),
        }
    }

    /// Returns what was counted, or nothing if the runner never said.
    pub(super) fn counts(&self) -> Option<Counts> {
        self.counts
    }
}

fn nextest(line: &str) -> Option<Counts> {
    let (_, figures) = line
        .trim_start()
        .strip_prefix("Summary [")?
        .split_once(" run: ")?;
    figures_of(figures, ',')
}

fn libtest(line: &str) -> Option<Counts> {
    let (_verdict, figures) = line.strip_prefix("test result: ")?.split_once(". ")?;
    figures_of(figures, ';')
}

/// Like those of the other runners, its passed tests include the ones in the skip log.
fn totals(line: &str) -> Option<Counts> {
    let counts = figures_of(line, ',').filter(|counts| counts.to_string() == line)?;
    Some(Counts {
        passed: counts.passed + counts.skipped,
        skipped: 0,
        ..counts
    })
}

/// Reads `12 passed, 1 failed, ...`; an ending that is neither good nor skipped is a failure.
fn figures_of(text: &str, separator: char) -> Option<Counts> {
    let mut counts = Counts::default();
    let text = without_remarks(text);
    for figure in text.split(separator) {
        let Some((number, ending)) = figure.trim().split_once(' ') else {
            continue;
        };
        let Ok(number) = number.parse::<usize>() else {
            continue;
        };
        match ending.trim() {
            "passed" => counts.passed += number,
            "skipped" | "ignored" => counts.skipped += number,
            // Of libtest: a benchmark, and what the command line left out.
            "measured" | "filtered out" => {}
            _ => counts.failed += number,
        }
    }
    (counts != Counts::default() || text.contains("0 passed")).then_some(counts)
}

/// Removes what stands in parentheses, such as `(1 slow, 2 flaky)`.
fn without_remarks(text: &str) -> String {
    let mut depth = 0_usize;
    let keep = |c: &char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => return depth == 0,
        }
        false
    };
    text.chars().filter(keep).collect()
}

/// Removes terminal colours.
fn without_escapes(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut pieces = line.split('\u{1b}');
    plain.extend(pieces.next());
    for piece in pieces {
        let end = piece.find(|c: char| c.is_ascii_alphabetic());
        plain.extend(end.and_then(|end| piece.get(end + 1..)));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(format: Format, output: &str, expected: Option<[usize; 3]>) {
        let mut tally = Tally::new(format);
        output.lines().for_each(|line| tally.line(line));
        let found = tally.counts();
        let found = found.map(|counts| [counts.passed, counts.failed, counts.skipped]);
        assert_eq!(found, expected, "{output}");
    }

    #[test]
    fn nextest_summaries() {
        let check = |output: &str, expected| check(Format::Nextest, output, expected);
        check(
            "     Summary [   0.115s] 3 tests run: 1 passed, 2 failed, 1 skipped",
            Some([1, 2, 1]),
        );
        check(
            "     Summary [   0.1s] 1 test run: 1 passed, 0 skipped",
            Some([1, 0, 0]),
        );
        check(
            "  Summary [ 9.0s] 4/9 tests run: 1 passed (1 slow, 1 flaky), 1 failed (1 due to being leaky), 1 timed out, 1 exec failed, 5 skipped",
            Some([1, 3, 5]),
        );
        check(
            "\u{1b}[32;1m     Summary\u{1b}[0m [   0.1s] \u{1b}[1m2\u{1b}[0m tests run: \u{1b}[1m2\u{1b}[0m \u{1b}[32;1mpassed\u{1b}[0m, \u{1b}[1m0\u{1b}[0m \u{1b}[33;1mskipped\u{1b}[0m",
            Some([2, 0, 0]),
        );
        check(
            "    Summary [x] 1 tests run: 9 passed\n Summary [y] 2 tests run: 2 passed, 0 skipped",
            Some([2, 0, 0]),
        );
        check(
            "     Summary [   0.0s] 0 tests run: 0 passed, 0 skipped",
            Some([0, 0, 0]),
        );
        check("error: could not compile `a`", None);
        check("test result: ok. 1 passed; 0 failed", None);
    }

    #[test]
    fn libtest_results_add_up() {
        let check = |output: &str, expected| check(Format::Libtest, output, expected);
        let ok = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.00s";
        let failed = "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s";
        check(ok, Some([3, 0, 1]));
        check(&format!("{ok}\nother\n{failed}"), Some([4, 2, 1]));
        check(
            "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
            Some([0, 0, 0]),
        );
        check("    test result: ok. 3 passed; 0 failed", None);
        check("running 3 tests", None);
    }

    #[test]
    fn totals_stand_alone() {
        let check = |output: &str, expected| check(Format::Totals, output, expected);
        check("3 passed, 1 failed, 2 skipped", Some([5, 1, 0]));
        check("0 passed, 0 failed, 1 skipped", Some([1, 0, 0]));
        check("FAIL a: got \"3 passed, 1 failed, 2 skipped\"", None);
        check("3 passed, 1 failed", None);
    }
}
