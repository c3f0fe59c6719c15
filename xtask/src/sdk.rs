//! Lets the vendors' own SDKs read what ABP translates.
//!
//! The harness is in `tests/sdk`. This installs the pinned packages under `target/sdk`, once per
//! change of the pins, builds the program, and starts the harness. What a machine cannot provide
//! is skipped with the reason. The last line is `N passed, N failed, N skipped`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use abp_testkit::skip;
use anyhow::{Context, Result, bail, ensure};

use crate::output::say;
use crate::workspace::{cargo, root};

/// The packages of one language.
struct Packages {
    language: &'static str,
    /// Commands that print a version where the tools are present.
    tools: &'static [&'static [&'static str]],
    /// The folder below `tests/sdk`, and below `target/sdk`.
    folder: &'static str,
    /// The files that pin the versions.
    pins: &'static [&'static str],
    /// Returns the commands that install into a folder with the pins.
    install: fn(&Path) -> Vec<Command>,
}

const PYTHON: Packages = Packages {
    language: "Python",
    // The harness reads TOML, which takes Python 3.11.
    tools: &[&[
        "python3",
        "-c",
        "import ensurepip, sys, tomllib; print(sys.version)",
    ]],
    folder: "python",
    pins: &["requirements.txt"],
    install: install_python,
};

const NODE: Packages = Packages {
    language: "Node",
    tools: &[&["node", "--version"], &["npm", "--version"]],
    folder: "node",
    pins: &["package.json", "package-lock.json"],
    install: install_node,
};

/// Written last: the tools and pins for which a folder is complete.
const READY: &str = "ready";

pub(crate) fn run() -> Result<ExitCode> {
    let root = root()?;
    let python = match PYTHON.prepare(&root) {
        Ok(folder) => interpreter(&folder),
        Err(reason) => {
            skip("reading with the vendors' SDKs", &format!("{reason:#}"));
            say("0 passed, 0 failed, 1 skipped");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let node = NODE.prepare(&root);
    say("sdk: building abp");
    let mut build = cargo();
    build.args(["build", "--quiet", "--package", "abp-cli"]);
    let built = build.current_dir(&root).status()?;
    ensure!(built.success(), "abp does not build");

    let mut harness = Command::new(python);
    harness
        // Compiled modules would end up beside the sources.
        .arg("-B")
        .arg(root.join("tests/sdk/python/harness.py"))
        .arg("--abp")
        .arg(root.join("target/debug/abp"))
        .arg("--fixtures")
        .arg(root.join("fixtures"));
    match node {
        Ok(folder) => harness
            .arg("--node-modules")
            .arg(folder.join("node_modules")),
        Err(reason) => {
            skip(
                "reading with the vendors' Node SDKs",
                &format!("{reason:#}"),
            );
            harness.args(["--skipped", "1"])
        }
    };
    let status = harness.status().context("cannot start the harness")?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl Packages {
    /// Returns the folder with the installed packages; an error says why there is none.
    fn prepare(&self, root: &Path) -> Result<PathBuf> {
        let language = self.language;
        let pinned = root.join("tests/sdk").join(self.folder);
        let folder = root.join("target/sdk").join(self.folder);
        let wanted = self.wanted(&pinned)?;
        if fs::read_to_string(folder.join(READY)).is_ok_and(|ready| ready == wanted) {
            say(format_args!("sdk: the {language} packages are in place"));
            return Ok(folder);
        }
        say(format_args!("sdk: installing the {language} packages"));
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        for pin in self.pins {
            fs::copy(pinned.join(pin), folder.join(pin))?;
        }
        for mut step in (self.install)(&folder) {
            output_of(step.current_dir(&folder)).with_context(|| {
                format!("no {language} packages (is a package registry within reach?)")
            })?;
        }
        fs::write(folder.join(READY), wanted)?;
        Ok(folder)
    }

    /// Returns what [`READY`] has to hold: a change of any of it makes the packages stale.
    fn wanted(&self, pinned: &Path) -> Result<String> {
        let mut wanted = String::new();
        for tool in self.tools {
            let [program, arguments @ ..] = tool else {
                bail!("a tool without a name");
            };
            let version = output_of(Command::new(program).args(arguments))
                .with_context(|| format!("no {program} that can be used"))?;
            wanted.push_str(&version);
        }
        for pin in self.pins {
            wanted.push_str(&fs::read_to_string(pinned.join(pin))?);
        }
        Ok(wanted)
    }
}

fn install_python(folder: &Path) -> Vec<Command> {
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "venv"]);
    let mut pip = Command::new(interpreter(folder));
    pip.args(["-m", "pip", "install", "--quiet"]);
    pip.args(["--requirement", "requirements.txt"]);
    vec![venv, pip]
}

fn install_node(_: &Path) -> Vec<Command> {
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
    npm.arg("--loglevel=error");
    vec![npm]
}

fn interpreter(folder: &Path) -> PathBuf {
    folder.join("venv/bin/python")
}

/// Runs a command for its output. The error is what it complained of first: what follows is advice
/// and stack traces.
fn output_of(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let is_complaint = |line: &&str| line.to_lowercase().contains("error");
    match said.lines().find(is_complaint) {
        Some(complaint) => bail!("{}", complaint.trim()),
        None => bail!("it ended with {}", output.status),
    }
}
