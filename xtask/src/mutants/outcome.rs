//! What cargo-mutants found, read from its `outcomes.json`.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

/// Of the file, what is used here.
#[derive(Debug, Deserialize)]
struct Outcomes {
    outcomes: Vec<Outcome>,
}

#[derive(Debug, Deserialize)]
struct Outcome {
    scenario: Scenario,
    summary: Summary,
}

#[derive(Debug, Deserialize)]
enum Scenario {
    /// The tests of the unchanged source.
    Baseline,
    /// Those of a changed one.
    Mutant(Mutant),
}

#[derive(Debug, Deserialize)]
struct Mutant {
    name: String,
    package: String,
    file: String,
    span: Span,
}

#[derive(Debug, Deserialize)]
struct Span {
    start: Position,
}

#[derive(Debug, Deserialize)]
struct Position {
    line: u64,
    column: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Summary {
    Success,
    CaughtMutant,
    MissedMutant,
    Unviable,
    Failure,
    Timeout,
}

/// How many mutants ended how, in all and by crate, and which were not noticed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    total: Counts,
    by_crate: BTreeMap<String, Counts>,
    survivors: Vec<Survivor>,
}

/// How many mutants ended how.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    /// A test failed.
    caught: u64,
    /// No test did.
    missed: u64,
    /// The tests did not end in time, which fails them as well.
    timeout: u64,
    /// It could not be built, so it says nothing.
    unviable: u64,
}

/// A change that no test noticed.
#[derive(Debug, PartialEq, Eq)]
struct Survivor {
    file: String,
    line: u64,
    column: u64,
    change: String,
}

impl Counts {
    fn add(&mut self, summary: Summary) {
        match summary {
            Summary::CaughtMutant => self.caught += 1,
            Summary::MissedMutant => self.missed += 1,
            Summary::Timeout => self.timeout += 1,
            // A mutant that fails before its tests is no better than one that cannot be built.
            Summary::Unviable | Summary::Failure | Summary::Success => self.unviable += 1,
        }
    }

    fn noticed(self) -> u64 {
        self.caught + self.timeout
    }

    fn judged(self) -> u64 {
        self.noticed() + self.missed
    }

    /// Tenths of a percent; nothing where there was nothing to notice.
    fn permille(self) -> Option<u64> {
        (self.noticed() * 1_000).checked_div(self.judged())
    }

    fn percent_text(self) -> String {
        match self.permille() {
            Some(permille) => format!("{}.{} %", permille / 10, permille % 10),
            None => "nothing to notice".to_owned(),
        }
    }

    fn to_json(self) -> Value {
        let percent = self.permille().map(|permille| permille as f64 / 10.0);
        json!({
            "caught": self.caught,
            "missed": self.missed,
            "timeout": self.timeout,
            "unviable": self.unviable,
            "percent": percent,
        })
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            caught,
            missed,
            timeout,
            unviable,
        } = self;
        write!(
            f,
            "{caught} caught, {missed} missed, {timeout} timeout, {unviable} unviable: {}",
            self.percent_text()
        )
    }
}

impl Report {
    /// Reads the outcome file.
    pub(super) fn read(text: &str) -> Result<Self> {
        let read: Outcomes =
            serde_json::from_str(text).context("the outcomes have another form than expected")?;
        let mut report = Self::default();
        for Outcome { scenario, summary } in read.outcomes {
            let mutant = match scenario {
                Scenario::Mutant(mutant) => mutant,
                Scenario::Baseline if summary == Summary::Success => continue,
                // Then every mutant would count as caught.
                Scenario::Baseline => bail!("the tests of the unchanged source fail"),
            };
            report.total.add(summary);
            let of_crate = report.by_crate.entry(mutant.package.clone()).or_default();
            of_crate.add(summary);
            if summary == Summary::MissedMutant {
                report.survivors.push(mutant.into());
            }
        }
        report
            .survivors
            .sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        Ok(report)
    }

    /// Whether at least so many percent were noticed.
    pub(super) fn reaches(&self, percent: u8) -> bool {
        let permille = self.total.permille();
        permille.is_none_or(|permille| permille >= u64::from(percent) * 10)
    }

    /// The report for people: the survivors, then the figures.
    pub(super) fn lines(&self) -> Vec<String> {
        let survivors = self.survivors.iter();
        let mut lines: Vec<_> = survivors
            .map(|one| format!("{}:{}:{}: {}", one.file, one.line, one.column, one.change))
            .collect();
        if self.by_crate.len() > 1 {
            let of_crate = |(name, counts): (&String, &Counts)| format!("{name}: {counts}");
            lines.extend(self.by_crate.iter().map(of_crate));
        }
        lines.push(self.total.to_string());
        lines
    }

    pub(super) fn to_json(&self) -> Value {
        let of_crate = |(name, counts): (&String, &Counts)| (name.clone(), counts.to_json());
        let survivors: Vec<_> = self
            .survivors
            .iter()
            .map(|one| {
                json!({
                    "file": one.file,
                    "line": one.line,
                    "column": one.column,
                    "change": one.change,
                })
            })
            .collect();
        json!({
            "total": self.total.to_json(),
            "crates": self.by_crate.iter().map(of_crate).collect::<serde_json::Map<_, _>>(),
            "survivors": survivors,
        })
    }
}

impl From<Mutant> for Survivor {
    fn from(mutant: Mutant) -> Self {
        let Position { line, column } = mutant.span.start;
        // The name begins with the place, which is kept apart.
        let place = format!("{}:{line}:{column}: ", mutant.file);
        let change = mutant.name.strip_prefix(&place).map(str::to_owned);
        Self {
            change: change.unwrap_or(mutant.name),
            file: mutant.file,
            line,
            column,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(package: &str, line: u64, summary: &str) -> Value {
        let file = format!("crates/{package}/src/lib.rs");
        json!({
            "scenario": { "Mutant": {
                "name": format!("{file}:{line}:5: replace f -> bool with true"),
                "package": package, "file": file, "genre": "FnValue", "replacement": "true",
                "function": { "function_name": "f", "return_type": "-> bool",
                    "span": { "start": { "line": 1, "column": 1 }, "end": { "line": 9, "column": 2 } } },
                "span": { "start": { "line": line, "column": 5 }, "end": { "line": line, "column": 9 } },
            } },
            "summary": summary, "log_path": "log/x.log", "diff_path": null, "phase_results": [],
        })
    }

    fn file(baseline: &str, outcomes: &[Value]) -> String {
        let mut all =
            vec![json!({ "scenario": "Baseline", "summary": baseline, "phase_results": [] })];
        all.extend_from_slice(outcomes);
        json!({ "outcomes": all, "total_mutants": 6, "cargo_mutants_version": "27.1.0" })
            .to_string()
    }

    #[test]
    fn figures_and_survivors_are_read() {
        let text = file(
            "Success",
            &[
                outcome("b", 7, "MissedMutant"),
                outcome("a", 9, "CaughtMutant"),
                outcome("a", 3, "MissedMutant"),
                outcome("a", 4, "Timeout"),
                outcome("b", 5, "Unviable"),
                outcome("b", 6, "CaughtMutant"),
            ],
        );
        let report = Report::read(&text).unwrap();
        assert_eq!(
            report.lines(),
            [
                "crates/a/src/lib.rs:3:5: replace f -> bool with true",
                "crates/b/src/lib.rs:7:5: replace f -> bool with true",
                "a: 1 caught, 1 missed, 1 timeout, 0 unviable: 66.6 %",
                "b: 1 caught, 1 missed, 0 timeout, 1 unviable: 50.0 %",
                "2 caught, 2 missed, 1 timeout, 1 unviable: 60.0 %",
            ]
        );
        for (percent, expected) in [(0, true), (60, true), (61, false), (100, false)] {
            assert_eq!(report.reaches(percent), expected, "{percent}");
        }
        let json = report.to_json();
        assert_eq!(json["total"]["percent"], 60.0);
        assert_eq!(json["crates"]["b"]["unviable"], 1);
        assert_eq!(json["survivors"][0]["line"], 3);
        assert_eq!(json["survivors"][1]["file"], "crates/b/src/lib.rs");
    }

    #[test]
    fn nothing_is_not_everything() {
        for (outcomes, expected) in [
            (
                vec![],
                "0 caught, 0 missed, 0 timeout, 0 unviable: nothing to notice",
            ),
            (
                vec![outcome("a", 1, "CaughtMutant")],
                "1 caught, 0 missed, 0 timeout, 0 unviable: 100.0 %",
            ),
        ] {
            let report = Report::read(&file("Success", &outcomes)).unwrap();
            assert_eq!(report.lines(), [expected]);
            assert!(report.reaches(100));
        }
        for broken in [
            "",
            "{}",
            r#"{"outcomes": [{"scenario": "Baseline", "summary": "NewWord"}]}"#,
            &file("Failure", &[outcome("a", 1, "CaughtMutant")]),
        ] {
            assert!(Report::read(broken).is_err(), "{broken}");
        }
    }
}
