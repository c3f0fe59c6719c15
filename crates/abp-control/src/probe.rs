//! Evidence for manifests: every capability that a script can show is tried on the real backend.
//!
//! The backend works on a directory with a few known files, in front of a [`ScriptedModel`] that calls its tools
//! one after the other. A capability is shown by what is seen from outside: the verified changes of the stage, the
//! next request to the model, or the events of the run, never by what the backend says of itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use abp_agents::ScriptedModel;
use abp_backend_core::{AgentSession, SessionUse};
use abp_config::Config;
use abp_core::{
    AgentEventKind, Capability, CapabilityManifest, Outcome, PolicyProfile, Receipt, SupportLevel,
};
use abp_error::{AbpError, ErrorCode};
use abp_gateway::current_time;
use abp_runtime::StartedRun;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{ControlPlane, OrderDraft, PolicyChoice, Principal, Submission};

/// The longest a run of a probe may take.
const LONGEST: Duration = Duration::from_secs(120);
/// A session may be named after the minute it began in, and then not be found in the same one.
const NEXT_MINUTE: Duration = Duration::from_secs(61);

/// A backend's capabilities as they were seen, beside those that it claims.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeEvidence {
    /// The backend.
    pub backend: String,
    /// The version that it gives.
    pub version: Option<String>,
    /// The version of ABP that probed it.
    pub abp_version: String,
    /// The day of the probe, in UTC.
    pub date: String,
    /// The capabilities, sorted by name.
    pub capabilities: Vec<ProbedCapability>,
}

/// One capability of a backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbedCapability {
    /// Its wire name.
    pub capability: String,
    /// The level in the backend's manifest.
    pub claimed: SupportLevel,
    /// Whether it was seen; absent where nothing tries it.
    pub shown: Option<bool>,
    /// The observation, or the reason why there is none.
    pub how: String,
}

/// A task, and the place where its effect is looked for.
struct Probe {
    capability: Capability,
    task: &'static str,
    effect: Effect,
}

/// The effect that shows a capability.
enum Effect {
    /// The verified diff has this line.
    Diff(&'static str),
    /// A request to the model has this text, which the agent can only have from its tool.
    Request(&'static str),
}

/// Files of the directory that backends are probed in.
const FILES: [(&str, &str); 3] = [
    ("notes.txt", "marker-read-4711\n"),
    ("edited.txt", "marker-before-4711\n"),
    ("deep/haystack-4711.txt", "straw\nmarker-grep-4711\n"),
];
/// The task of the run whose session later runs go on with.
const WRITE: &str = "FILE=/workspace/made.txt CONTENT=marker-written-4711";
const WRITTEN: &str = "marker-written-4711";

fn probes() -> [Probe; 6] {
    let probe = |capability, task, effect| Probe {
        capability,
        task,
        effect,
    };
    [
        probe(
            Capability::ToolWrite,
            WRITE,
            Effect::Diff("+marker-written-4711"),
        ),
        probe(
            Capability::ToolRead,
            "READ=/workspace/notes.txt",
            Effect::Request("marker-read-4711"),
        ),
        probe(
            Capability::ToolEdit,
            // Some agents edit only what they have read.
            "READ=/workspace/edited.txt EDIT=/workspace/edited.txt OLD=marker-before-4711 NEW=marker-after-4711",
            Effect::Diff("+marker-after-4711"),
        ),
        probe(
            Capability::ToolBash,
            "FILE=/workspace/command.txt CONTENT=marker-command-4711 VIA=shell",
            Effect::Diff("+marker-command-4711"),
        ),
        probe(
            Capability::ToolGlob,
            "GLOB=**/haystack*",
            Effect::Request("haystack-4711.txt"),
        ),
        probe(
            Capability::ToolGrep,
            "GREP=marker-grep-4711",
            Effect::Request("haystack-4711.txt"),
        ),
    ]
}

/// Probes a backend of this configuration. Its runs are kept in `scratch`, and nothing is left outside of it.
///
/// # Errors
/// Fails where the backend is not there, or cannot be started.
pub async fn probe(
    config: &Config,
    backend: &str,
    scratch: &Path,
) -> Result<ProbeEvidence, AbpError> {
    let model =
        ScriptedModel::start().map_err(|error| failed("start the scripted model", &error))?;
    let lab = Lab::new(config, backend, scratch, model)?;
    let evidence = lab.probe().await;
    lab.plane.close().await;
    evidence
}

struct Lab {
    plane: ControlPlane,
    backend: String,
    workspace: PathBuf,
    model: ScriptedModel,
}

/// A run of a probe, and what the model was asked in it.
struct ProbeRun {
    receipt: Receipt,
    requests: Vec<String>,
}

impl Lab {
    fn new(
        config: &Config,
        backend: &str,
        scratch: &Path,
        model: ScriptedModel,
    ) -> Result<Self, AbpError> {
        let workspace = scratch.join("workspace");
        for (path, content) in FILES {
            let file = workspace.join(path);
            let made = file.parent().map_or(Ok(()), fs::create_dir_all);
            made.and_then(|()| fs::write(&file, content))
                .map_err(|error| failed("make a workspace", &error))?;
        }
        let upstream = json!({
            // Any name, so that agents ask for the models they know best.
            "dialect": "openai", "base_url": model.url(), "models": ["*"],
        });
        let upstream = serde_json::from_value(upstream)
            .map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))?;
        let config = Config {
            state_dir: scratch.join("state"),
            stages_dir: scratch.join("cache/stages/probe"),
            upstreams: [("scripted".to_owned(), upstream)].into(),
            default_policy: None,
            default_prices: None,
            ..config.clone()
        };
        Ok(Self {
            plane: ControlPlane::open(config, &[])?,
            backend: backend.to_owned(),
            workspace,
            model,
        })
    }

    async fn probe(&self) -> Result<ProbeEvidence, AbpError> {
        let mut found = Vec::new();
        let mut first = None;
        for probe in probes() {
            let run = self.run(probe.task, None, PolicyProfile::default()).await?;
            found.push((probe.capability.clone(), probe.observe(&run)));
            first.get_or_insert(run);
        }
        let Some(first) = first else {
            return Err(AbpError::new(ErrorCode::Internal, "nothing was probed"));
        };
        found.push((Capability::Streaming, streaming(&first.receipt)));
        found.push((Capability::HooksPreToolUse, self.asks_first().await?));
        for (capability, usage) in [
            (Capability::SessionResume, SessionUse::Continue),
            (Capability::SessionFork, SessionUse::Fork),
        ] {
            let claimed = first.receipt.capabilities.contains_key(&capability);
            if claimed {
                let observed = self.session(&first.receipt, usage).await?;
                found.push((capability, observed));
            }
        }
        Ok(ProbeEvidence {
            backend: self.backend.clone(),
            version: first.receipt.backend.backend_version.clone(),
            abp_version: env!("CARGO_PKG_VERSION").to_owned(),
            date: current_time().to_string().chars().take(10).collect(),
            capabilities: rows(&first.receipt.capabilities, &found),
        })
    }

    async fn run(
        &self,
        task: &str,
        session: Option<AgentSession>,
        policy: PolicyProfile,
    ) -> Result<ProbeRun, AbpError> {
        drop(self.model.take_requests());
        let root = self.workspace.to_string_lossy().into_owned();
        let order = OrderDraft::new(&format!("ABP-TASK {task}"))
            .policy(PolicyChoice::Also(policy))
            .with(|order| order.workspace.root = root)
            .build(&self.plane)?;
        let submission = Submission {
            backend: Some(self.backend.clone()),
            timeout: Some(LONGEST),
            session,
            ..Submission::new(order)
        };
        let principal = Principal::local("probe");
        let started = self.plane.run_here(&principal, submission).await?;
        let StartedRun::Started(handle) = started else {
            return Err(AbpError::new(ErrorCode::Internal, "the run is not new"));
        };
        let receipt = handle.receipt.await?;
        Ok(ProbeRun {
            receipt,
            requests: self.model.take_requests(),
        })
    }

    /// Whether a denied tool was asked about, and not used.
    async fn asks_first(&self) -> Result<(bool, String), AbpError> {
        let policy = PolicyProfile {
            disallowed_tools: vec!["Bash".to_owned()],
            ..PolicyProfile::default()
        };
        let task = "FILE=/workspace/denied.txt CONTENT=marker-denied-4711 VIA=shell";
        let run = self.run(task, None, policy).await?;
        let rules = run.receipt.enforcement.rules.iter();
        let mut asked = rules.filter(|rule| rule.by == "permission request" && rule.denied > 0);
        let is_asked = asked.next().is_some();
        let is_unchanged = !run.changes().contains("marker-denied-4711");
        Ok(match (is_asked, is_unchanged) {
            (true, true) => (true, "it asked, was denied, and ran nothing".to_owned()),
            (true, false) => (false, "it was denied and ran the command".to_owned()),
            (false, _) => (false, "it ran a command without asking".to_owned()),
        })
    }

    /// Whether a later run tells the model of the earlier one.
    async fn session(
        &self,
        earlier: &Receipt,
        usage: SessionUse,
    ) -> Result<(bool, String), AbpError> {
        let session_id = earlier.trace.iter().find_map(|event| match &event.kind {
            AgentEventKind::SessionStarted { session_id } => Some(session_id.clone()),
            _ => None,
        });
        let Some(session_id) = session_id else {
            return Ok((false, "it told no session".to_owned()));
        };
        let session = AgentSession {
            run_id: earlier.meta.run_id,
            session_id,
            usage,
        };
        let mut reason = String::new();
        for pause in [Duration::ZERO, NEXT_MINUTE] {
            tokio::time::sleep(pause).await;
            let policy = PolicyProfile::default();
            let run = self.run("READ=/workspace/notes.txt", Some(session.clone()), policy);
            let run = run.await?;
            if run.was_asked(WRITTEN) {
                let how = "a later run told the model of the earlier task".to_owned();
                return Ok((true, how));
            }
            reason = run.problem();
        }
        let how = format!("a later run did not tell the model of the earlier task{reason}");
        Ok((false, how))
    }
}

impl ProbeRun {
    fn changes(&self) -> &str {
        let diff = self.receipt.verification.git_diff.as_deref();
        diff.unwrap_or_default()
    }

    fn was_asked(&self, text: &str) -> bool {
        self.requests.iter().any(|request| request.contains(text))
    }

    /// The tools of the run, by the names that the agent has for them.
    fn tools(&self) -> Vec<&str> {
        let events = self.receipt.trace.iter();
        let tools = events.filter_map(|event| match &event.kind {
            AgentEventKind::ToolCall { tool_name, .. } => Some(tool_name.as_str()),
            _ => None,
        });
        tools.collect()
    }

    fn problem(&self) -> String {
        match &self.receipt.error {
            Some(error) if self.receipt.outcome != Outcome::Complete => {
                format!(" ({})", error.message)
            }
            _ => String::new(),
        }
    }
}

impl Probe {
    fn observe(&self, run: &ProbeRun) -> (bool, String) {
        let (is_there, effect) = match self.effect {
            Effect::Diff(line) => (
                run.changes().lines().any(|found| found == line),
                "the verified diff has it",
            ),
            // The task itself names neither.
            Effect::Request(text) => (run.was_asked(text), "the model was told the result"),
        };
        let tools = run.tools();
        let by_command = self.capability != Capability::ToolBash && tools.contains(&"Bash");
        if is_there && by_command {
            let how = "only by a command: it declares no tool for it that the script knows";
            return (false, how.to_owned());
        }
        match (is_there, tools.as_slice()) {
            (true, []) => (true, effect.to_owned()),
            (true, tools) => (true, format!("{}: {effect}", tools.join(", "))),
            (false, []) => (
                false,
                format!("it declares no tool that the script knows{}", run.problem()),
            ),
            (false, tools) => (
                false,
                format!("{} had no effect{}", tools.join(", "), run.problem()),
            ),
        }
    }
}

fn streaming(receipt: &Receipt) -> (bool, String) {
    let is_piece = |kind: &AgentEventKind| matches!(kind, AgentEventKind::AssistantDelta { .. });
    let pieces = receipt.trace.iter();
    let pieces = pieces.filter(|event| is_piece(&event.kind)).count();
    let how = format!("an answer of three pieces came in {pieces}");
    (pieces > 1, how)
}

/// The rows of the evidence: every capability that is claimed, and those that were shown besides.
fn rows(
    manifest: &CapabilityManifest,
    found: &[(Capability, (bool, String))],
) -> Vec<ProbedCapability> {
    let mut rows: Vec<ProbedCapability> = Vec::new();
    for (capability, claimed) in manifest {
        let seen = found.iter().find(|(other, _)| other == capability);
        let (shown, how) = match seen {
            Some((_, (shown, how))) => (Some(*shown), how.clone()),
            None => (None, "no script tries it".to_owned()),
        };
        rows.push(ProbedCapability {
            capability: capability.as_str().to_owned(),
            claimed: claimed.clone(),
            shown,
            how,
        });
    }
    let unclaimed = found
        .iter()
        .filter(|(capability, (shown, _))| *shown && !manifest.contains_key(capability));
    rows.extend(unclaimed.map(|(capability, (_, how))| ProbedCapability {
        capability: capability.as_str().to_owned(),
        claimed: SupportLevel::Unsupported,
        shown: Some(true),
        how: how.clone(),
    }));
    rows.sort_by(|left, right| left.capability.cmp(&right.capability));
    rows
}

fn failed(what: &str, error: &std::io::Error) -> AbpError {
    AbpError::new(ErrorCode::Internal, format!("cannot {what}: {error}"))
}
