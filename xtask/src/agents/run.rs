//! The scripted model, the gateway in front of it, and an agent in front of that.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Case;
use crate::running::{Running, listening};

/// The longest an agent may take; those here take a few seconds.
const LONGEST: Duration = Duration::from_secs(120);

/// Keeps agents from what they do besides: updates, telemetry and doubts about running as root.
const QUIET: [(&str, &str); 11] = [
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("COPILOT_AUTO_UPDATE", "false"),
    ("DISABLE_AUTOUPDATER", "1"),
    ("DISABLE_TELEMETRY", "1"),
    ("GEMINI_TELEMETRY_ENABLED", "false"),
    ("IS_SANDBOX", "1"),
    ("KIMI_CODE_NO_AUTO_UPDATE", "1"),
    ("KIMI_DISABLE_TELEMETRY", "1"),
    ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
    ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
    ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
];

/// Everything that an agent needs.
pub(super) struct Stage {
    folder: PathBuf,
    abp: PathBuf,
    /// The search path, with the agents first.
    path: String,
    gateway: String,
    /// End with the stage.
    _running: [Running; 2],
}

impl Stage {
    pub(super) fn start(root: &Path, folder: &Path, model: &Path, programs: &Path) -> Result<Self> {
        let recorded = folder.join("model");
        fs::create_dir_all(&recorded)?;
        let mut command = Command::new("python3");
        command
            .arg("-B")
            .arg(model)
            .args(["--port", "0", "--record"]);
        let model = Running::start(command.arg(&recorded), folder, "model")?;
        let address =
            model.tells(|said| Some(said.lines().next()?.split_once("listening on ")?.1))?;
        fs::write(folder.join("gateway.toml"), config(folder, &address))?;

        let abp = root.join("target/debug/abp");
        let mut command = Command::new(&abp);
        command.args(["serve", "--json", "--listen", "127.0.0.1:0", "--config"]);
        command.arg(folder.join("gateway.toml"));
        let gateway = Running::start(&mut command, folder, "gateway")?;
        let base = gateway.tells(listening)?;
        let inherited = std::env::var("PATH").unwrap_or_default();
        Ok(Self {
            folder: folder.to_owned(),
            abp,
            path: format!("{}:{inherited}", programs.display()),
            gateway: base,
            _running: [model, gateway],
        })
    }

    /// Has an agent write a file; returns how many seconds that took.
    pub(super) fn play(&self, case: &Case) -> Result<f64> {
        let Case { agent, dialect, .. } = case;
        let place = self.folder.join(agent);
        let (home, work) = (place.join("home"), place.join("work"));
        for directory in [&home, &work] {
            fs::create_dir_all(directory)?;
        }
        let git = Command::new("git")
            .args(["init", "--quiet"])
            .arg(&work)
            .status()?;
        ensure!(git.success(), "git cannot make a repository");
        let (file, content) = (work.join("made.txt"), format!("made-by-{agent}"));
        let task = format!("Create a file. FILE={} CONTENT={content}", file.display());
        let before = self.asked(case)?;

        let mut command = Command::new(&self.abp);
        command.args(["launch", agent, "--base-url", &self.gateway]);
        command.args(["--model", &model(dialect), "--config"]);
        command.arg(self.folder.join("gateway.toml")).arg("--");
        let words = case.args.iter();
        command.args(words.map(|word| if *word == "TASK" { &task } else { *word }));
        command
            .current_dir(&work)
            .env("HOME", &home)
            .env("PATH", &self.path)
            .envs(QUIET)
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_DATA_HOME")
            .env_remove("XDG_CACHE_HOME");
        let start = Instant::now();
        let status = Running::start(&mut command, &place, agent)?.ended(LONGEST)?;
        let seconds = start.elapsed().as_secs_f64();

        ensure!(status.success(), "it ended with {status}");
        let made = fs::read_to_string(&file).context("there is no file")?;
        ensure!(made.trim_end() == content, "the file holds {made:?}");
        let asked = self.asked(case)?.saturating_sub(before);
        ensure!(
            asked >= 2,
            "the model was asked {asked} times in its dialect"
        );
        Ok(seconds)
    }

    /// How often the model was asked in a dialect so far.
    fn asked(&self, case: &Case) -> Result<usize> {
        let mut count = 0;
        for entry in fs::read_dir(self.folder.join("model"))? {
            let name = entry?.file_name();
            count += usize::from(name.to_string_lossy().contains(case.address));
        }
        Ok(count)
    }
}

/// The name under which callers reach the upstream of a dialect.
fn model(dialect: &str) -> String {
    format!("via-{dialect}")
}

/// An upstream for every dialect, all of them the scripted model.
fn config(folder: &Path, address: &str) -> String {
    let mut config = format!("state_dir = {:?}\n", folder.join("state"));
    let dialects = [
        ("openai", "/v1"),
        ("codex", "/v1"),
        ("claude", ""),
        ("gemini", ""),
    ];
    for (dialect, version) in dialects {
        config += &format!(
            "[upstreams.{dialect}]\ndialect = \"{dialect}\"\nbase_url = \"http://{address}{version}\"\n\
             models = [\"{}\"]\n",
            model(dialect)
        );
    }
    config
}
