//! The vendors' packages: installed under `target/sdk`, once per change of the pins.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::output::say;

/// The packages of one language.
pub(super) struct Packages {
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

pub(super) const PYTHON: Packages = Packages {
    language: "Python",
    // The harnesses read TOML, which takes Python 3.11.
    tools: &[&[
        "python3",
        "-c",
        "import ensurepip, sys, tomllib; print(sys.version)",
    ]],
    folder: "python",
    pins: &["requirements.txt"],
    install: install_python,
};

pub(super) const CONTROL: Packages = Packages {
    language: "OpenAPI",
    tools: &[&["python3", "-c", "import ensurepip, sys; print(sys.version)"]],
    folder: "control",
    pins: &["requirements.txt"],
    install: install_python,
};

pub(super) const CONTROL_TS: Packages = Packages {
    language: "OpenAPI TypeScript",
    tools: NODE_TOOLS,
    folder: "control-ts",
    pins: NODE_PINS,
    install: install_node,
};

pub(super) const NODE: Packages = Packages {
    language: "Node",
    tools: NODE_TOOLS,
    folder: "node",
    pins: NODE_PINS,
    install: install_node,
};

pub(super) const AG_UI: Packages = Packages {
    language: "AG-UI",
    tools: NODE_TOOLS,
    folder: "ag-ui",
    pins: NODE_PINS,
    install: install_node,
};

pub(super) const ACP: Packages = Packages {
    language: "ACP",
    tools: NODE_TOOLS,
    folder: "acp",
    pins: NODE_PINS,
    install: install_node,
};

const NODE_TOOLS: &[&[&str]] = &[
    // Some of the SDKs are modules of the newer kind only.
    &[
        "node",
        "-e",
        "if (!process.features.require_module) throw new Error('no Node 20.19 or 22.12'); \
         console.log(process.version)",
    ],
    &["npm", "--version"],
];
const NODE_PINS: &[&str] = &["package.json", "package-lock.json"];

/// Written last: the tools and pins for which a folder is complete.
const READY: &str = "ready";

impl Packages {
    /// Returns the folder with the installed packages; an error says why there is none.
    pub(super) fn prepare(&self, root: &Path) -> Result<PathBuf> {
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

/// The Python that has the packages of a folder.
pub(super) fn interpreter(folder: &Path) -> PathBuf {
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
