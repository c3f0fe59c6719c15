//! Runs every agent of the table through `abp run`, over the Agent Client Protocol.
//!
//! Each is installed in its pinned version, sandboxed, in front of a scripted model behind the gateway, with a
//! home directory of nobody's. What is checked is in `tests/agents/README.md`.

#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value does not have is null"
)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use abp_agents::{AgentPreset, PermissionBehaviour, ScriptedModel, presets};
use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::output::say;

/// The longest a run may take; those here take a few seconds.
const LONGEST: Duration = Duration::from_secs(120);
/// The longest a cancelled run may take to end.
const CANCELLED_WITHIN: Duration = Duration::from_secs(2);

/// What a check found of one agent.
pub(super) struct Tally {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) skipped: usize,
}

/// A check of one agent.
type Check = fn(&Lab, &AgentPreset) -> Result<()>;

const CHECKS: [(&str, Check); 7] = [
    ("file task, diff, receipt, usage", Lab::file_task),
    ("session goes on", Lab::session),
    ("cancel", Lab::cancel),
    ("deny_write and deny_network", Lab::denied),
    ("approval", Lab::approval),
    ("shell denied", Lab::shell_denied),
    ("budget of two requests", Lab::budget),
];

/// Checks every agent, or those that are named.
pub(super) fn run(root: &Path, names: &[String]) -> Result<Tally> {
    let folder = root.join("target/agents/acp");
    let mut tally = Tally {
        passed: 0,
        failed: 0,
        skipped: 0,
    };
    let chosen = presets()
        .iter()
        .filter(|preset| names.is_empty() || names.iter().any(|name| name == preset.name));
    for preset in chosen {
        let lab = Lab::new(root, &folder, preset.name)?;
        if let Err(reason) = lab.install(preset) {
            abp_testkit::skip(preset.title, &format!("{reason:#}"));
            tally.skipped += CHECKS.len();
            continue;
        }
        for (what, check) in CHECKS {
            let started = Instant::now();
            drop(lab.model.take_requests());
            let verdict = match check(&lab, preset) {
                Ok(()) => {
                    tally.passed += 1;
                    format!("ok ({:.1} s)", started.elapsed().as_secs_f64())
                }
                Err(problem) => {
                    tally.failed += 1;
                    format!("FAILED: {problem:#}")
                }
            };
            say(format_args!(
                "agents: {} over ACP: {what}: {verdict}",
                preset.name
            ));
        }
    }
    Ok(tally)
}

/// The place of one agent's runs.
struct Lab {
    abp: PathBuf,
    folder: PathBuf,
    model: ScriptedModel,
}

/// A run that ended.
struct Ended {
    summary: Value,
    receipt: Value,
}

impl Lab {
    fn new(root: &Path, folder: &Path, name: &str) -> Result<Self> {
        let own = folder.join(name);
        if own.exists() {
            fs::remove_dir_all(&own)?;
        }
        let mut private = fs::DirBuilder::new();
        private.recursive(true).mode(0o700);
        for directory in ["state", "home", "work"] {
            private.create(own.join(directory))?;
        }
        for file in [".claude.json", ".gitconfig"] {
            fs::write(own.join("home").join(file), "{}\n")?;
        }
        fs::write(own.join("work/README.md"), "# demo\n")?;
        let model = ScriptedModel::start()?;
        let config = format!(
            "state_dir = {:?}\nstages_dir = {:?}\nagents_dir = {:?}\n\n[upstreams.scripted]\n\
             dialect = \"openai\"\nbase_url = \"{}\"\nmodels = [\"scripted\", \"*\"]\n\
             prices = \"test\"\n\n[prices.test.\"*\"]\ninput_usd_per_mtok = 1.0\noutput_usd_per_mtok = 1.0\n",
            own.join("state"),
            own.join("cache/stages"),
            root.join("target/agents/installed"),
            model.url(),
        );
        fs::write(own.join("backplane.toml"), config)?;
        Ok(Self {
            abp: root.join("target/debug/abp"),
            folder: own,
            model,
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.abp);
        command
            .current_dir(self.folder.join("work"))
            .env("HOME", self.folder.join("home"))
            .env("ABP_CONFIG", self.folder.join("backplane.toml"))
            .stdin(Stdio::null());
        for variable in [
            "XDG_CONFIG_HOME",
            "XDG_DATA_HOME",
            "XDG_STATE_HOME",
            "XDG_CACHE_HOME",
        ] {
            command.env_remove(variable);
        }
        command
    }

    fn install(&self, preset: &AgentPreset) -> Result<()> {
        // Installing needs the user's own settings of npm; only runs get a home directory of nobody's.
        let mut command = Command::new(&self.abp);
        command
            .args(["agents", "install", preset.name])
            .env("ABP_CONFIG", self.folder.join("backplane.toml"));
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{}", said.trim());
        Ok(())
    }

    fn start(&self, preset: &AgentPreset, task: &str, more: &[&str]) -> Result<Child> {
        let mut command = self.command();
        command.args(["run", "--json", "--task", task]);
        if !more.contains(&"--continue") {
            command.args(["--backend", preset.name]);
        }
        command
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(command.spawn()?)
    }

    fn finish(&self, child: Child) -> Result<Ended> {
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        let summary: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("no summary; it said {}", said.trim()))?;
        let path = summary["receipt"].as_str().unwrap_or_default();
        ensure!(!path.is_empty(), "no receipt: {summary}");
        let receipt = serde_json::from_slice(&fs::read(path)?)?;
        Ok(Ended { summary, receipt })
    }

    fn run(&self, preset: &AgentPreset, task: &str, more: &[&str]) -> Result<Ended> {
        let timeout = format!("{}s", LONGEST.as_secs());
        let limited = [more, &["--timeout", &timeout]].concat();
        self.finish(self.start(preset, task, &limited)?)
    }

    fn policy(&self, name: &str, policy: &Value) -> Result<String> {
        let path = self.folder.join(format!("{name}.json"));
        fs::write(&path, policy.to_string())?;
        Ok(path.to_string_lossy().into_owned())
    }

    /// A file is written in the stage, and what the receipt says of it is true.
    fn file_task(&self, preset: &AgentPreset) -> Result<()> {
        let before = tree(&self.folder.join("home"))?;
        let ended = self.run(preset, &task("first.txt", "marker-one"), &[])?;
        ended.is("complete")?;
        let status = ended.receipt["verification"]["git_status"].as_str();
        ensure!(status == Some("?? first.txt\n"), "it changed {status:?}");
        let diff = ended.receipt["verification"]["git_diff"].as_str();
        ensure!(
            diff.is_some_and(|diff| diff.contains("+marker-one")),
            "the diff is {diff:?}"
        );
        ensure!(
            !self.folder.join("work/first.txt").exists(),
            "the source was changed"
        );
        ensure!(
            ended.receipt["usage_source"] == "measured",
            "nobody measured the usage"
        );
        let requests = ended.receipt["usage"]["request_units"]
            .as_u64()
            .unwrap_or_default();
        ensure!(requests >= 2, "{requests} requests");
        let listed = ended.receipt["exchanges"].as_array().map_or(0, Vec::len);
        ensure!(
            listed as u64 >= requests,
            "{listed} exchanges for {requests} requests"
        );
        ensure!(
            ended.receipt["enforcement"]["sandbox"]["network"] == "proxied",
            "it was not sandboxed"
        );
        ended.only_reached_models()?;
        let receipt = ended.summary["receipt"].as_str().unwrap_or_default();
        let verified = self
            .command()
            .args(["receipt", "verify", receipt])
            .output()?;
        ensure!(verified.status.success(), "the receipt does not verify");
        ensure!(
            tree(&self.folder.join("home"))? == before,
            "the user's own files changed"
        );
        self.nothing_left()
    }

    /// A later run remembers an earlier one.
    fn session(&self, preset: &AgentPreset) -> Result<()> {
        let first = self.run(preset, &task("a.txt", "marker-remembered"), &[])?;
        first.is("complete")?;
        drop(self.model.take_requests());
        if preset.name == "gemini" {
            // Gemini CLI 0.61 does not find a session that began in the same minute as the one it starts with.
            std::thread::sleep(Duration::from_secs(61));
        }
        let id = first.summary["run_id"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let second = self.run(preset, &task("b.txt", "marker-two"), &["--continue", &id])?;
        second.is("complete")?;
        let asked = self.model.take_requests();
        let remembers = asked
            .iter()
            .any(|request| request.contains("marker-remembered"));
        ensure!(remembers, "the model was not told of the earlier task");
        let status = second.receipt["verification"]["git_status"].as_str();
        ensure!(status == Some("?? b.txt\n"), "it changed {status:?}");
        Ok(())
    }

    /// A run that is interrupted ends soon, with everything that belongs to it.
    fn cancel(&self, preset: &AgentPreset) -> Result<()> {
        let child = self.start(preset, "ABP-TASK WAIT", &[])?;
        let started = Instant::now();
        while self.model.count() == 0 {
            ensure!(started.elapsed() < LONGEST, "the model was never asked");
            std::thread::sleep(Duration::from_millis(20));
        }
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let id = id.context("it has no id")?;
        let cancelled = Instant::now();
        kill_process(id, Signal::INT)?;
        let ended = self.finish(child)?;
        let took = cancelled.elapsed();
        ended.is("cancelled")?;
        ensure!(took < CANCELLED_WITHIN, "it took {took:.1?} to end");
        self.nothing_left()
    }

    /// A file that may not be written never reaches the source, and no host is reached.
    fn denied(&self, preset: &AgentPreset) -> Result<()> {
        let policy = json!({ "deny_write": ["denied.txt"], "deny_network": ["*"] });
        let policy = self.policy("denied", &policy)?;
        let more = ["--policy", policy.as_str(), "--lane", "workspace-first"];
        let ended = self.run(preset, &task("denied.txt", "marker-denied"), &more)?;
        ensure!(
            !self.folder.join("work/denied.txt").exists(),
            "the file reached the source"
        );
        ended.only_reached_models()?;
        let rules = ended.receipt["enforcement"]["rules"].as_array();
        let rules = rules.context("the receipt names no rules")?;
        let find = |list: &str, pattern: &str| {
            let mut rules = rules.iter();
            rules.find(|rule| rule["list"] == list && rule["pattern"] == pattern)
        };
        let write = find("deny_write", "denied.txt").context("no deny_write")?;
        ensure!(
            write["denied"].as_u64().unwrap_or_default() > 0,
            "nothing was denied: {write}"
        );
        ensure!(
            ["host", "kernel"]
                .iter()
                .any(|level| write["enforced_by"] == *level),
            "held by nobody: {write}"
        );
        let network = find("deny_network", "*").context("no deny_network")?;
        ensure!(
            network["enforced_by"] == "kernel",
            "not held by the kernel: {network}"
        );
        say(format_args!(
            "agents: {}: deny_write held by {}, outcome {}",
            preset.name, write["by"], ended.summary["outcome"]
        ));
        Ok(())
    }

    /// A tool that needs an approval is used with one and not without; only of agents that ask.
    fn approval(&self, preset: &AgentPreset) -> Result<()> {
        if preset.permissions == PermissionBehaviour::NeverAsks {
            return Ok(());
        }
        let policy = json!({ "require_approval_for": ["Write", "Edit", "Bash"] });
        let policy = self.policy("approval", &policy)?;
        let unapproved = self.run(
            preset,
            &task("c.txt", "marker-three"),
            &["--policy", &policy],
        )?;
        ensure!(unapproved.changed() == "", "written without an approval");
        let more = [
            "--policy",
            &policy,
            "--approve",
            "Write",
            "--approve",
            "Edit",
        ];
        let approved = self.run(preset, &task("c.txt", "marker-three"), &more)?;
        approved.is("complete")?;
        ensure!(
            approved.changed() == "?? c.txt\n",
            "it changed {:?}",
            approved.changed()
        );
        Ok(())
    }

    /// A command that is not allowed does not run; only of agents that ask.
    fn shell_denied(&self, preset: &AgentPreset) -> Result<()> {
        if preset.permissions == PermissionBehaviour::NeverAsks {
            return Ok(());
        }
        let policy = self.policy("shell", &json!({ "disallowed_tools": ["Bash"] }))?;
        let task = format!("{} VIA=shell", task("d.txt", "marker-four"));
        let ended = self.run(preset, &task, &["--policy", &policy])?;
        ensure!(
            ended.changed() == "",
            "the command ran: {:?}",
            ended.changed()
        );
        let rules = ended.receipt["enforcement"]["rules"].as_array();
        let rule = rules
            .into_iter()
            .flatten()
            .find(|rule| rule["pattern"] == "Bash");
        let rule = rule.context("the receipt does not name the rule")?;
        ensure!(rule["denied"] == 1, "it was not asked about once: {rule}");
        ensure!(
            rule["by"] == "permission request",
            "held by something else: {rule}"
        );
        Ok(())
    }

    /// A budget that two requests fit in stops the run before the third, whatever the agent says.
    fn budget(&self, preset: &AgentPreset) -> Result<()> {
        // Three steps and a last answer: four requests, and more where the agent asks for a title.
        let task = "ABP-TASK READ=/workspace/README.md FILE=/workspace/e.txt CONTENT=marker-five \
                    GREP=demo";
        let free = self.run(preset, task, &[])?;
        let cost = free.receipt["usage"]["estimated_cost_usd"].as_f64();
        let requests = free.receipt["usage"]["request_units"].as_u64();
        let (cost, requests) = cost.zip(requests).context("nothing was measured")?;
        ensure!(requests >= 3, "without a budget it asked {requests} times");
        let budget = format!("{:.6}", cost / requests as f64 * 2.5);
        drop(self.model.take_requests());
        let ended = self.run(preset, task, &["--max-budget-usd", &budget])?;
        ended.is("partial")?;
        let code = &ended.summary["error"]["code"];
        ensure!(code == "BUDGET_EXCEEDED", "it ended with {code}");
        let asked = self.model.count();
        ensure!(asked <= 2, "the model was asked {asked} times");
        self.nothing_left()
    }

    /// No process has a file of this place open as its program or works in it.
    fn nothing_left(&self) -> Result<()> {
        let stages = self.folder.join("cache");
        let mark = stages.to_string_lossy().into_owned();
        for entry in fs::read_dir("/proc")?.flatten() {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let told = [environment, command].concat();
            if String::from_utf8_lossy(&told).contains(&mark) {
                bail!("{} is left", entry.path().display());
            }
        }
        Ok(())
    }
}

impl Ended {
    fn is(&self, outcome: &str) -> Result<()> {
        let (found, error) = (&self.summary["outcome"], &self.summary["error"]);
        ensure!(found == outcome, "it ended {found}: {error}");
        Ok(())
    }

    fn changed(&self) -> &str {
        let status = &self.receipt["verification"]["git_status"];
        status.as_str().unwrap_or("unknown")
    }

    /// Every connection that was allowed went to the gateway.
    fn only_reached_models(&self) -> Result<()> {
        let events = self.receipt["trace"].as_array();
        for event in events.into_iter().flatten() {
            if event["type"] == "network_connection" && event["allowed"] == true {
                let rule = event["rule"].as_str().unwrap_or_default();
                ensure!(rule.contains("models"), "it reached {event}");
            }
        }
        Ok(())
    }
}

fn task(file: &str, content: &str) -> String {
    format!("ABP-TASK: create a file. FILE=/workspace/{file} CONTENT={content}")
}

/// The files below a directory.
fn tree(directory: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                directories.push(entry.path());
            }
            found.insert(entry.path());
        }
    }
    Ok(found)
}
