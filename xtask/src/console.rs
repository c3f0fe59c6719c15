//! The console in a real browser, against a real server with real runs.
//!
//! The harness is in `tests/console`. This installs Debian's Chromium where there is none, gets the pinned
//! packages, builds the program and starts the harness. What a machine cannot provide is skipped with the
//! reason. The last line is `N passed, N failed, N skipped`.

use std::path::Path;
use std::process::{Command, ExitCode};

use abp_testkit::skip;
use anyhow::{Context, Result, bail, ensure};

use crate::npm::NpmPackages;
use crate::output::say;
use crate::workspace::{cargo, root};

const PACKAGES: NpmPackages = NpmPackages {
    name: "console",
    size: "50 MB",
    with_scripts: &[],
};

/// Names of the browser, in the order they are tried.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// What the harness does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConsoleTask {
    /// Tests; with a directory, also takes the pictures of the documents.
    Test { images: Option<std::path::PathBuf> },
    /// Measures.
    Bench,
}

pub(crate) fn run(task: &ConsoleTask) -> Result<ExitCode> {
    let root = root()?;
    let prepared = browser().and_then(|browser| Ok((browser, PACKAGES.prepare(&root)?)));
    let (browser, modules) = match prepared {
        Ok(prepared) => prepared,
        Err(reason) => {
            skip("the console in a browser", &format!("{reason:#}"));
            say("0 passed, 0 failed, 1 skipped");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let abp = build_abp(&root, task)?;
    let mut harness = Command::new("node");
    harness
        .arg(root.join("tests/console/harness.mjs"))
        .arg("--abp")
        .arg(abp)
        .arg("--node-modules")
        .arg(modules)
        .args(["--chromium", &browser]);
    match task {
        ConsoleTask::Test { images: None } => {}
        ConsoleTask::Test {
            images: Some(directory),
        } => drop(harness.arg("--images").arg(directory)),
        ConsoleTask::Bench => drop(harness.arg("--bench")),
    }
    let status = harness.current_dir(&root).status();
    let status = status.context("node cannot be started")?;
    Ok(match status.success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The path of a browser, which is installed where there is none and Debian's packages are within reach.
fn browser() -> Result<String> {
    if let Some(found) = find_browser() {
        return Ok(found);
    }
    say("console: installing chromium");
    let mut install = Command::new("apt-get");
    install.args(["install", "--yes", "--no-install-recommends", "chromium"]);
    let installed = install.output().context("apt-get cannot be started")?;
    match find_browser() {
        Some(found) => Ok(found),
        None => bail!(
            "no chromium, and apt-get could not install it ({})",
            installed.status
        ),
    }
}

fn find_browser() -> Option<String> {
    let path = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&path)
        .flat_map(|directory| BROWSERS.iter().map(move |name| directory.join(name)));
    let found = files.find(|file| file.is_file())?;
    found.to_str().map(str::to_owned)
}

fn build_abp(root: &Path, task: &ConsoleTask) -> Result<std::path::PathBuf> {
    say("console: building abp");
    let mut build = cargo();
    build.args(["build", "--quiet", "--package", "abp-cli"]);
    let profile = match task {
        ConsoleTask::Test { .. } => "debug",
        ConsoleTask::Bench => {
            build.arg("--release");
            "release"
        }
    };
    let built = build.current_dir(root).status()?;
    ensure!(built.success(), "abp does not build");
    Ok(root.join("target").join(profile).join("abp"))
}
