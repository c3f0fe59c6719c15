//! Runs the agents people use through the gateway, each in front of a vendor that is not its own.
//!
//! What is run, and what it takes, is in `tests/agents/README.md`. What a machine cannot provide is
//! skipped with the reason. The last line is `N passed, N failed, N skipped`.

mod run;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use abp_testkit::{shared_dir, skip};
use anyhow::{Context, Result, ensure};

use crate::npm::NpmPackages;
use crate::output::say;
use crate::workspace::{cargo, root};
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

pub(crate) fn run() -> Result<ExitCode> {
    let root = root()?;
    let (model, packages) = match needs(&root) {
        Ok(found) => found,
        Err(reason) => {
            skip("real agents through the gateway", &format!("{reason:#}"));
            say("0 passed, 0 failed, 1 skipped");
            return Ok(ExitCode::SUCCESS);
        }
    };
    say("agents: building abp");
    let mut build = cargo();
    build.args(["build", "--quiet", "--package", "abp-cli"]);
    let built = build.current_dir(&root).status()?;
    ensure!(built.success(), "abp does not build");
    let folder = root.join("target/agents/run");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let stage = Stage::start(&root, &folder, &model, &packages)?;
    let mut failed = 0;
    for case in CASES {
        let verdict = match stage.play(case) {
            Ok(seconds) => format!("ok ({seconds:.1} s)"),
            Err(problem) => {
                failed += 1;
                format!("FAILED: {problem:#}")
            }
        };
        say(format_args!(
            "agents: {} on {}: {verdict}",
            case.agent, case.dialect
        ));
    }
    let passed = CASES.len() - failed;
    say(format_args!("{passed} passed, {failed} failed, 0 skipped"));
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
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
