//! The official conformance suite.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Case;
use super::stage::Stage;

/// A revision, how many scenarios it requires of a server, and those it requires of a client that do not
/// concern authorization.
struct Revision {
    name: &'static str,
    required: usize,
    client: &'static [&'static str],
}

const REVISIONS: &[Revision] = &[
    Revision {
        name: "2025-11-25",
        required: 30,
        client: &[
            "initialize",
            "tools_call",
            "elicitation-sep1034-client-defaults",
            "sse-retry",
        ],
    },
    Revision {
        name: "2026-07-28",
        required: 37,
        client: &[
            "tools_call",
            "request-metadata",
            "sep-2322-client-request-state",
            "http-standard-headers",
            "http-custom-headers",
            "http-invalid-tool-headers",
            "json-schema-ref-no-deref",
        ],
    },
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for revision in REVISIONS {
        let name = revision.name;
        cases.push(Case::new(format!("server, {name}"), move |stage| {
            let (_fixture, address) = stage.fixture("both")?;
            try_server(stage, revision, &address, None)
        }));
        for era in ["legacy", "modern"] {
            let title = format!("gateway to a {era} server, {name}");
            cases.push(Case::new(title, move |stage| {
                let (_fixture, address) = stage.fixture(era)?;
                let daemon = stage.daemon(&format!("url = {address:?}\nera = {era:?}\n"))?;
                try_server(stage, revision, &daemon.gateway, Some(&daemon.key))
            }));
        }
        for scenario in revision.client {
            let title = format!("client, {name}, {scenario}");
            let play = move |stage: &Stage| try_client(stage, revision, scenario);
            cases.push(Case::new(title, play));
        }
    }
    cases
}

/// Holds a server against everything that a revision requires.
fn try_server(
    stage: &Stage,
    revision: &Revision,
    address: &str,
    key: Option<&str>,
) -> Result<String> {
    let mut command = suite(stage, "server");
    command.args(["--url", address, "--requirements", revision.name]);
    if let Some(key) = key {
        command.env("ABP_KEY", key);
    }
    let (_, said) = stage.play(&mut command, "suite")?;
    let expected = fs::read_to_string(stage.pins.join("expected-failures.txt"))?;
    Report::read(&said).judge(revision.required, &listed(&expected))
}

fn try_client(stage: &Stage, revision: &Revision, scenario: &str) -> Result<String> {
    let program = stage.conformance.to_str().context("a path is no text")?;
    let mut command = suite(stage, "client");
    command.args(["--command", &format!("{program} client")]);
    command.args(["--scenario", scenario, "--spec-version", revision.name]);
    stage.succeed(&mut command, "suite")?;
    let said = stage.said("suite", "stderr")?;
    let passed = said.lines().find_map(|line| line.strip_prefix("Passed: "));
    let checks = passed.and_then(|line| line.split(',').next());
    Ok(format!("{} checks", checks.context("it reports nothing")?))
}

fn suite(stage: &Stage, mode: &str) -> Command {
    let mut command = Command::new(stage.node());
    command
        .arg("--import")
        .arg(stage.pins.join("prepare.mjs"))
        .arg(stage.program("conformance", "dist/index.js"))
        .arg(mode);
    command
}

/// The scenarios of a list with comments.
fn listed(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter_map(|line| line.split('#').next());
    let names = lines.map(str::trim).filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// What the suite says of scenarios.
#[derive(Debug, Default)]
struct Report {
    passed: BTreeSet<String>,
    failed: BTreeSet<String>,
    /// Those that the revision does not require.
    unscored: BTreeSet<String>,
}

impl Report {
    fn read(said: &str) -> Self {
        let mut report = Self::default();
        for line in said.lines() {
            let Some(rest) = line.trim_start().strip_prefix(['✓', '✗']) else {
                continue;
            };
            let name = rest.trim_start().split([':', ' ']).next();
            let set = match (line.starts_with(' '), line.starts_with('✓')) {
                (true, _) => &mut report.unscored,
                (false, true) => &mut report.passed,
                (false, false) => &mut report.failed,
            };
            set.extend(name.map(str::to_owned));
        }
        report
    }

    /// Everything required passes, nothing required is missing, and of the rest exactly that fails which
    /// is known to.
    fn judge(&self, required: usize, expected: &BTreeSet<String>) -> Result<String> {
        let failed: Vec<_> = self.failed.difference(&self.unscored).collect();
        ensure!(failed.is_empty(), "required and failed: {failed:?}");
        let passed = self.passed.difference(&self.unscored).count();
        ensure!(passed == required, "{passed} of {required} were tried");
        let surprising: Vec<_> = self.failed.difference(expected).collect();
        ensure!(
            surprising.is_empty(),
            "not required and failed: {surprising:?}"
        );
        let stale: Vec<_> = self.passed.intersection(expected).collect();
        ensure!(stale.is_empty(), "listed as failing, but passed: {stale:?}");
        let more = self.passed.intersection(&self.unscored).count();
        Ok(format!("{passed}/{required} required, {more} more"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "noise\n✓ ping: 2 passed, 0 failed\n✗ tasks: 1 passed, 8 failed\n\
        ✓ extra: 1 passed, 0 failed\nNot scored:\n  ✗ tasks (extension)\n  ✓ extra (pending)\n";

    #[test]
    fn only_what_is_known_to_fail_may() {
        let judge = |said: &str, required, expected| {
            let report = Report::read(said);
            report.judge(required, &listed(expected)).ok()
        };
        let good = Some("1/1 required, 1 more".to_owned());
        assert_eq!(judge(SAID, 1, "tasks # not there"), good);
        assert_eq!(judge(SAID, 2, "tasks"), None, "one was not tried");
        assert_eq!(judge(SAID, 1, ""), None, "a surprise");
        assert_eq!(judge(SAID, 1, "tasks\nping"), None, "a stale entry");
        let broken = SAID.replace("✓ ping", "✗ ping");
        assert_eq!(judge(&broken, 1, "tasks\nping"), None, "a required one");
        assert_eq!(judge("", 30, ""), None, "the suite did not run");
    }
}
