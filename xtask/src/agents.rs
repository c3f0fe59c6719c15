//! Runs the agents people use: over the Agent Client Protocol, and through the gateway, each in front of a
//! vendor that is not its own.
//!
//! What is run, and what it takes, is in `tests/agents/README.md`. What a machine cannot provide is
//! skipped with the reason. The last line is `N passed, N failed, N skipped`.

mod acp;
mod run;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use abp_testkit::{shared_dir, skip};
use anyhow::{Context, Result, ensure};

use crate::npm::NpmPackages;
use crate::output::say;
use crate::workspace::{cargo, root};
use acp::Tally;
use run::Stage;

/// An agent, and the vendor it ends up with.
struct Case {
    /// As `abp launch` calls it.
    agent: &'static str,
    /// The dialect in which the model is asked.
    dialect: &'static str,
    /// A part of the address of that dialect.
    address: &'static str,
    /// Lets it do what it is told without asking, and end; the task takes the place of `TASK`.
    args: &'static [&'static str],
}

const AGENTS: NpmPackages = NpmPackages {
    name: "agents",
    size: "2 GB",
    with_scripts: &["@anthropic-ai/claude-code", "opencode-ai"],
};

const CASES: &[Case] = &[
    Case {
        agent: "claude",
        dialect: "openai",
        address: "chat-completions",
        args: &["--dangerously-skip-permissions", "-p", "TASK"],
    },
    Case {
        agent: "codex",
        dialect: "claude",
        address: "messages",
        args: &[
            "exec",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
            "TASK",
        ],
    },
    Case {
        agent: "gemini",
        dialect: "openai",
        address: "chat-completions",
        args: &["--skip-trust", "--approval-mode", "yolo", "-p", "TASK"],
    },
    Case {
        agent: "copilot",
        dialect: "gemini",
        address: "streamGenerateContent",
        args: &["--allow-all-tools", "--allow-all-paths", "-p", "TASK"],
    },
    Case {
        agent: "kimi",
        dialect: "claude",
        address: "messages",
        args: &["-p", "TASK"],
    },
    Case {
        agent: "opencode",
        dialect: "codex",
        address: "responses",
        args: &["run", "TASK"],
    },
];

/// Runs the agents that are named, or all.
pub(crate) fn run(names: &[String]) -> Result<ExitCode> {
    let root = root()?;
    say("agents: building abp");
    let mut build = cargo();
    build.args(["build", "--quiet", "--package", "abp-cli"]);
    let built = build.current_dir(&root).status()?;
    ensure!(built.success(), "abp does not build");
    let mut tally = acp::run(&root, names)?;
    through_gateway(&root, names, &mut tally)?;
    let Tally {
        passed,
        failed,
        skipped,
    } = tally;
    say(format_args!(
        "{passed} passed, {failed} failed, {skipped} skipped"
    ));
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs agents through `abp launch`, each in front of a vendor that is not its own.
fn through_gateway(root: &Path, names: &[String], tally: &mut Tally) -> Result<()> {
    let chosen = CASES
        .iter()
        .filter(|case| names.is_empty() || names.iter().any(|name| name == case.agent));
    let chosen: Vec<&Case> = chosen.collect();
    let (model, packages) = match needs(root) {
        Ok(found) => found,
        Err(reason) => {
            skip("real agents through the gateway", &format!("{reason:#}"));
            tally.skipped += chosen.len();
            return Ok(());
        }
    };
    let folder = root.join("target/agents/run");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let stage = Stage::start(root, &folder, &model, &packages)?;
    for case in chosen {
        let verdict = match stage.play(case) {
            Ok(seconds) => {
                tally.passed += 1;
                format!("ok ({seconds:.1} s)")
            }
            Err(problem) => {
                tally.failed += 1;
                format!("FAILED: {problem:#}")
            }
        };
        say(format_args!(
            "agents: {} on {}: {verdict}",
            case.agent, case.dialect
        ));
    }
    Ok(())
}

/// The scripted model and the installed packages; an error says what is missing.
fn needs(root: &Path) -> Result<(PathBuf, PathBuf)> {
    let shared = shared_dir().context("there is no directory of optional test data")?;
    let model = shared.join("agents/fake/fake_model.py");
    ensure!(model.is_file(), "the scripted model is not there");
    let python = Command::new("python3").arg("--version").output();
    ensure!(
        python.is_ok_and(|python| python.status.success()),
        "python3 is not installed"
    );
    Ok((model, AGENTS.prepare(root)?.join(".bin")))
}
