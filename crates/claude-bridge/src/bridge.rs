//! Driving the host.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use abp_core::{BackendIdentity, CapabilityManifest, Outcome, WorkOrder};
use abp_error::{AbpError, ErrorCode};
use abp_host::{
    Confinement, Launcher, PermissionResponse, RunItem, SidecarClient, SidecarRun, SidecarSpec,
};
use uuid::Uuid;

use crate::message::{ClaudeMessage, ToolPermission};
use crate::writer::MessageWriter;

/// The script of the host, below the directory of hosts.
const SCRIPT: &str = "claude/host.js";

/// The host to start, and where.
#[derive(Debug, Clone)]
pub struct BridgeSettings {
    /// The directory of hosts; `npm ci --ignore-scripts` was run in its `claude`.
    pub hosts_dir: PathBuf,
    /// The directory that Claude Code works in.
    pub workspace: PathBuf,
    /// The program that runs the host.
    pub node: String,
    /// Variables for the host, such as `ANTHROPIC_BASE_URL`.
    pub env: BTreeMap<String, String>,
    /// The isolation of the host's processes.
    pub confinement: Confinement,
    /// The program that starts the host and ends it: by default this one, whose `main` begins with
    /// [`abp_host::run_if_launcher`].
    pub launcher: Launcher,
}

impl BridgeSettings {
    /// A host that works in `workspace`, without a sandbox.
    pub fn new(hosts_dir: impl Into<PathBuf>, workspace: impl Into<PathBuf>) -> Self {
        Self {
            hosts_dir: hosts_dir.into(),
            workspace: workspace.into(),
            node: "node".to_owned(),
            env: BTreeMap::new(),
            confinement: Confinement::Hidden(Vec::new()),
            launcher: Launcher::this_program(),
        }
    }
}

/// Claude's host, ready for one run. Dropping it ends the host.
#[derive(Debug)]
pub struct ClaudeBridge {
    client: SidecarClient,
}

/// A run of Claude Code. Dropping it ends the host.
#[derive(Debug)]
pub struct BridgeRun {
    run: SidecarRun,
    writer: MessageWriter,
    /// Messages that were not taken yet.
    waiting: VecDeque<ClaudeMessage>,
}

impl ClaudeBridge {
    /// Starts the host and waits for its hello.
    ///
    /// # Errors
    /// Says why there is no host that could be given work.
    pub async fn open(settings: BridgeSettings) -> Result<Self, AbpError> {
        let script = settings.hosts_dir.join(SCRIPT);
        if !script.is_file() {
            let message = format!("there is no host of Claude Code at {}", script.display());
            return Err(AbpError::new(ErrorCode::BackendUnavailable, message));
        }
        let spec = SidecarSpec {
            args: vec![script.to_string_lossy().into_owned()],
            env: settings.env,
            confinement: settings.confinement,
            launcher: settings.launcher,
            ..SidecarSpec::new(settings.node, settings.workspace)
        };
        let client = SidecarClient::spawn(spec).await?;
        Ok(Self { client })
    }

    /// The host's name and versions.
    #[must_use]
    pub fn identity(&self) -> &BackendIdentity {
        self.client.identity()
    }

    /// The capabilities that the host declares.
    #[must_use]
    pub fn manifest(&self) -> &CapabilityManifest {
        self.client.manifest()
    }

    /// Gives the host its one run.
    ///
    /// # Errors
    /// Fails where the order cannot be serialised.
    pub fn run(self, order: &WorkOrder) -> Result<BridgeRun, AbpError> {
        let run = self.client.run(Uuid::new_v4(), order);
        let run = run.map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))?;
        Ok(BridgeRun {
            run,
            writer: MessageWriter::default(),
            waiting: VecDeque::new(),
        })
    }
}

impl BridgeRun {
    /// The next message; `None` after the last one before the result. Every [`ClaudeMessage::ControlRequest`] has to
    /// be answered with [`Self::answer`].
    pub async fn next(&mut self) -> Option<ClaudeMessage> {
        loop {
            if let Some(message) = self.waiting.pop_front() {
                return Some(message);
            }
            for item in self.run.next_items().await? {
                self.take(item);
            }
        }
    }

    /// Answers a question.
    pub fn answer(&self, request_id: impl Into<String>, permission: ToolPermission) {
        let (approved, reason) = match permission {
            ToolPermission::Allow => (true, None),
            ToolPermission::Deny { message } => (false, Some(message)),
        };
        self.run.answer(PermissionResponse {
            id: request_id.into(),
            approved,
            reason,
        });
    }

    /// Asks Claude Code to end early.
    pub fn cancel(&self, reason: impl Into<String>) {
        self.run.cancel_token().cancel(reason);
    }

    /// Waits for the end and returns the result as Claude Code says it. Nothing of the host is left then.
    pub async fn finish(self) -> ClaudeMessage {
        let ended = self.run.finish().await;
        let end = match ended.result {
            Ok(claim) => match (claim.outcome, claim.error) {
                (_, Some(error)) => Err(AbpError::from(error)),
                (Some(Outcome::Complete), None) => Ok(()),
                (_, None) => Err(incomplete()),
            },
            Err(failure) => Err(failure.into()),
        };
        self.writer.finish(end.as_ref().map(|&()| ()))
    }

    fn take(&mut self, item: RunItem) {
        let message = match item {
            RunItem::Event(event) => self.writer.write(&event.kind),
            RunItem::Question(asked) => {
                let id = asked.tool_use_id.as_deref();
                let question = self
                    .writer
                    .question(&asked.id, &asked.tool_name, id, &asked.input);
                Some(question)
            }
        };
        self.waiting.extend(message);
    }
}

fn incomplete() -> AbpError {
    let message = "Claude Code was stopped before its work was done";
    AbpError::new(ErrorCode::RunIncomplete, message)
}
