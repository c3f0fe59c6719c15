//! MCP as others see it: the official conformance suite against the server, the client and the gateway,
//! the Inspector, and a server with everything behind the gateway.
//!
//! What is run, and what it takes, is in `tests/mcp/README.md`. What a machine cannot provide is skipped
//! with the reason. The last line is `N passed, N failed, N skipped`.

mod conformance;
mod inspector;
mod stage;

use std::fs;
use std::process::{Command, ExitCode};

use abp_testkit::skip;
use anyhow::{Result, ensure};

use crate::npm::NpmPackages;
use crate::output::say;
use crate::workspace::{cargo, root};
use stage::Stage;

const PACKAGES: NpmPackages = NpmPackages {
    name: "mcp",
    size: "340 MB",
    with_scripts: &[],
};

/// One thing that is tried: what it is called, and what came of it.
struct Case {
    name: String,
    play: Box<Play>,
}

/// Says what it found, or what is wrong.
type Play = dyn Fn(&Stage) -> Result<String>;

impl Case {
    fn new(name: impl Into<String>, play: impl Fn(&Stage) -> Result<String> + 'static) -> Self {
        Self {
            name: name.into(),
            play: Box::new(play),
        }
    }
}

pub(crate) fn run() -> Result<ExitCode> {
    let root = root()?;
    let modules = match PACKAGES.prepare(&root) {
        Ok(modules) => modules,
        Err(reason) => {
            skip("MCP's conformance suite", &format!("{reason:#}"));
            say("0 passed, 0 failed, 1 skipped");
            return Ok(ExitCode::SUCCESS);
        }
    };
    say("mcp: building abp and what the suite talks to");
    for arguments in [
        ["--package", "abp-cli", "--bin", "abp"],
        ["--package", "abp-mcp", "--example", "conformance"],
    ] {
        let mut build = cargo();
        build.args(["build", "--quiet"]).args(arguments);
        let built = build.current_dir(&root).status()?;
        ensure!(built.success(), "it does not build");
    }
    let folder = root.join("target/mcp/run");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let stage = Stage::new(&root, folder, modules);
    if let Err(reason) = check_node(&stage) {
        skip("MCP's conformance suite", &format!("{reason:#}"));
        say("0 passed, 0 failed, 1 skipped");
        return Ok(ExitCode::SUCCESS);
    }
    let cases: Vec<Case> = conformance::cases()
        .into_iter()
        .chain(inspector::cases())
        .collect();
    let mut failed = 0;
    for case in &cases {
        let verdict = match (case.play)(&stage) {
            Ok(what) => format!("ok ({what})"),
            Err(problem) => {
                failed += 1;
                format!("FAILED: {problem:#}")
            }
        };
        say(format_args!("mcp: {}: {verdict}", case.name));
    }
    let passed = cases.len() - failed;
    say(format_args!("{passed} passed, {failed} failed, 0 skipped"));
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The suite needs a Node that is newer than what many machines have.
fn check_node(stage: &Stage) -> Result<()> {
    let newer = "process.exit(process.versions.node.split('.')[0] >= 22 ? 0 : 1)";
    let checked = Command::new(stage.node()).args(["-e", newer]).status();
    ensure!(
        checked.is_ok_and(|status| status.success()),
        "Node 22 is not installed, and there is none for this machine among the packages"
    );
    Ok(())
}
