//! Tests with others' own SDKs: of what ABP translates, of the gateway, and of what runs say.
//!
//! The harnesses are in `tests/sdk` and `tests/gateway`. This gets the pinned packages, builds the
//! program, and starts a harness. What a machine cannot provide is skipped with the reason. The last
//! line is `N passed, N failed, N skipped`.

mod packages;

use std::path::Path;
use std::process::{Command, ExitCode};

use abp_testkit::skip;
use anyhow::{Context, Result, ensure};

use crate::output::say;
use crate::workspace::{cargo, root};
use packages::{ACP, AG_UI, CONTROL, CONTROL_TS, NODE, PYTHON, Packages, interpreter};

/// A program that has the SDKs do something, and judges it.
pub(crate) struct Harness {
    /// What is tested.
    what: &'static str,
    /// The program, in Python.
    program: &'static str,
    /// What it is told besides what every harness is told.
    arguments: &'static [&'static str],
}

/// Answers that were translated, read by the SDKs.
pub(crate) const TRANSLATION: Harness = Harness {
    what: "translations, read by the vendors'",
    program: "tests/sdk/python/harness.py",
    arguments: &["--fixtures", "fixtures"],
};

/// The SDKs, talking through the gateway.
pub(crate) const GATEWAY: Harness = Harness {
    what: "the gateway, used by the vendors'",
    program: "tests/gateway/python/harness.py",
    arguments: &[],
};

impl Harness {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let root = root()?;
        let python = match PYTHON.prepare(&root) {
            Ok(folder) => interpreter(&folder),
            Err(reason) => {
                skip(&format!("{} SDKs", self.what), &format!("{reason:#}"));
                say("0 passed, 0 failed, 1 skipped");
                return Ok(ExitCode::SUCCESS);
            }
        };
        let node = NODE.prepare(&root);
        build_abp(&root)?;
        let mut harness = Command::new(python);
        harness
            // Compiled modules would end up beside the sources.
            .arg("-B")
            .arg(root.join(self.program))
            .arg("--abp")
            .arg(root.join("target/debug/abp"))
            .args(self.arguments);
        match node {
            Ok(folder) => harness
                .arg("--node-modules")
                .arg(folder.join("node_modules")),
            Err(reason) => {
                skip(&format!("{} Node SDKs", self.what), &format!("{reason:#}"));
                harness.args(["--skipped", "1"])
            }
        };
        judged(harness.current_dir(&root))
    }
}

/// Lets AG-UI's own client follow runs.
pub(crate) fn ag_ui() -> Result<ExitCode> {
    node_client("runs, followed by AG-UI's client", &AG_UI, "ag-ui")
}

/// Lets the official client of the Agent Client Protocol drive `abp acp`.
pub(crate) fn acp() -> Result<ExitCode> {
    node_client("`abp acp`, driven by the official client", &ACP, "acp")
}

/// Runs the harness of somebody's client in JavaScript, in its folder below `tests/sdk`.
fn node_client(what: &str, packages: &Packages, name: &str) -> Result<ExitCode> {
    let root = root()?;
    let folder = match packages.prepare(&root) {
        Ok(folder) => folder,
        Err(reason) => {
            skip(what, &format!("{reason:#}"));
            say("0 passed, 0 failed, 1 skipped");
            return Ok(ExitCode::SUCCESS);
        }
    };
    build_abp(&root)?;
    let mut harness = Command::new("node");
    harness
        .arg(root.join("tests/sdk").join(name).join("harness.mjs"))
        .arg("--abp")
        .arg(root.join("target/debug/abp"))
        .arg("--node-modules")
        .arg(folder.join("node_modules"));
    judged(harness.current_dir(&root))
}

/// Lets programs that know nothing but the OpenAPI document use the control plane.
pub(crate) fn control() -> Result<ExitCode> {
    let root = root()?;
    let python = match CONTROL.prepare(&root) {
        Ok(folder) => interpreter(&folder),
        Err(reason) => {
            skip(
                "the control plane, by its OpenAPI document",
                &format!("{reason:#}"),
            );
            say("0 passed, 0 failed, 1 skipped");
            return Ok(ExitCode::SUCCESS);
        }
    };
    build_abp(&root)?;
    let mut harness = Command::new(python);
    harness
        .arg("-B")
        .arg(root.join("tests/sdk/control/harness.py"))
        .arg("--abp")
        .arg(root.join("target/debug/abp"));
    match CONTROL_TS.prepare(&root) {
        Ok(folder) => {
            let modules = folder.join("node_modules");
            harness.arg("--node-modules").arg(modules);
        }
        Err(reason) => skip("the control plane, by TypeScript", &format!("{reason:#}")),
    }
    judged(harness.current_dir(&root))
}

fn build_abp(root: &Path) -> Result<()> {
    say("sdk: building abp");
    let mut build = cargo();
    build.args(["build", "--quiet", "--package", "abp-cli"]);
    let built = build.current_dir(root).status()?;
    ensure!(built.success(), "abp does not build");
    Ok(())
}

/// Runs a harness, which judges itself.
fn judged(harness: &mut Command) -> Result<ExitCode> {
    let status = harness.status().context("cannot start the harness")?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
