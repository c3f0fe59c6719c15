//! Starting runs for MCP clients, and telling them how far each is.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use abp_core::{Receipt, WorkOrder};
use abp_error::{AbpError, ErrorCode};
use abp_mcp::{Change, ClientHandle, Method};
use abp_runtime::StartedRun;
use abp_store::RunState;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use uuid::Uuid;

use super::server::{AbpServer, RunStart, ToolResult};
use super::tools::{invalid, optional_text, text};
use crate::{OrderDraft, PolicyChoice, Submission};

/// How long a run may be given, in seconds.
const TIMEOUTS: RangeInclusive<u64> = 1..=86_400;

/// How far a run is: how many events there were, and what came of it at the end.
#[derive(Clone, Default)]
struct Progress {
    events: u64,
    end: Option<Result<Box<Receipt>, String>>,
}

impl AbpServer {
    pub(super) async fn start_run(
        &self,
        arguments: &Map<String, Value>,
        progress: Option<&Value>,
        client: &ClientHandle,
    ) -> ToolResult {
        let backend = optional_text(arguments, "backend")?;
        let backend = self.plane.backend(backend)?;
        let submission = Submission {
            backend: Some(backend.clone()),
            timeout: timeout(arguments)?,
            ..Submission::new(self.order(arguments)?)
        };
        let wait = match arguments.get("wait") {
            None => false,
            Some(wait) => wait
                .as_bool()
                .ok_or_else(|| invalid("wait is no boolean"))?,
        };
        let run_id = self.start(submission).await?;
        let mut going = self.follow(run_id).await?;
        if !wait {
            let status = match self.start {
                RunStart::Here => RunState::Running,
                RunStart::Queue => RunState::Queued,
            };
            return Ok(json!({ "run_id": run_id, "status": status.as_str(), "backend": backend }));
        }
        let receipt = wait_for_end(&mut going, progress, client).await?;
        Ok(json!({
            "run_id": run_id,
            "status": "ended",
            "outcome": receipt.outcome,
            "error": receipt.error,
            "receipt_sha256": receipt.receipt_sha256,
        }))
    }

    /// Starts a run, or queues it where that is how the server's runs are carried out.
    async fn start(&self, submission: Submission) -> Result<Uuid, AbpError> {
        if self.start == RunStart::Queue {
            let submitted = self.plane.submit(&self.principal, submission).await?;
            return Ok(submitted.run_id);
        }
        match self.plane.run_here(&self.principal, submission).await? {
            StartedRun::Started(handle) => {
                handle.receipt.detach();
                Ok(handle.run_id)
            }
            StartedRun::Existing(run_id) => Ok(run_id),
        }
    }

    /// An order of what a client may say: a task, a model, names of a policy and of MCP servers, and a
    /// directory below those of the server. Everything else is the operator's.
    fn order(&self, arguments: &Map<String, Value>) -> Result<WorkOrder, AbpError> {
        let root = self.root_of(arguments)?;
        let model = optional_text(arguments, "model")?.map(str::to_owned);
        let servers = arguments.get("mcp").cloned();
        let policy = match optional_text(arguments, "policy")? {
            Some(name) => PolicyChoice::Named(name.to_owned()),
            None => PolicyChoice::Default,
        };
        OrderDraft::new(text(arguments, "task")?)
            .policy(policy)
            .with(|order| {
                order.workspace.root = root;
                order.config.model = model;
                if let Some(servers) = servers {
                    let settings = json!({ "mcp": servers });
                    order.config.vendor.insert("abp".to_owned(), settings);
                }
            })
            .build(&self.plane)
    }

    /// The directory of a run. Whoever calls tools may not reach beyond those of the server.
    fn root_of(&self, arguments: &Map<String, Value>) -> Result<String, AbpError> {
        let first = self.roots.first().ok_or_else(|| {
            invalid("there is no directory to work on; name some in `roots` under [mcp]")
        })?;
        let asked = match optional_text(arguments, "root")? {
            Some(root) => first.join(root),
            None => first.clone(),
        };
        let found = std::fs::canonicalize(&asked).ok();
        let is_below = |found: &PathBuf| self.roots.iter().any(|root| found.starts_with(root));
        let below = found.filter(|found| found.is_dir() && is_below(found));
        let shown = below.as_ref().and_then(|root| root.to_str());
        let shown = shown.ok_or_else(|| invalid("root is no directory below the server's own"))?;
        Ok(shown.to_owned())
    }

    /// Follows a run to its end, and tells of its changes.
    async fn follow(&self, run_id: Uuid) -> Result<watch::Receiver<Progress>, AbpError> {
        let (sender, receiver) = watch::channel(Progress::default());
        let mut events = self.plane.follow(&self.principal, run_id, None).await?;
        let plane = self.plane.clone();
        let changes = self.changes.clone();
        // Nobody may listen; then there is nobody to tell.
        drop(changes.send(Change::Resources));
        tokio::spawn(async move {
            let changed = |what: &str| {
                let uri = format!("abp://runs/{run_id}/{what}");
                drop(changes.send(Change::Resource { uri }));
            };
            while let Ok(Some(_)) = events.next().await {
                sender.send_modify(|progress| progress.events += 1);
                changed("events");
            }
            let end = plane.receipt(run_id).await;
            let end = end.map(Box::new).map_err(|error| error.to_string());
            sender.send_modify(|progress| progress.end = Some(end));
            for what in ["events", "diff", "receipt"] {
                changed(what);
            }
            drop(changes.send(Change::Resources));
        });
        Ok(receiver)
    }
}

/// How long a run may take, where something is said.
fn timeout(arguments: &Map<String, Value>) -> Result<Option<Duration>, AbpError> {
    let Some(asked) = arguments.get("timeout_secs") else {
        return Ok(None);
    };
    let seconds = asked.as_u64().filter(|seconds| TIMEOUTS.contains(seconds));
    let seconds = seconds.ok_or_else(|| invalid("timeout_secs is no number from 1 to 86400"))?;
    Ok(Some(Duration::from_secs(seconds)))
}

async fn wait_for_end(
    going: &mut watch::Receiver<Progress>,
    token: Option<&Value>,
    client: &ClientHandle,
) -> Result<Box<Receipt>, AbpError> {
    loop {
        let Progress { events, end } = going.borrow_and_update().clone();
        if let Some(end) = end {
            return end.map_err(|error| AbpError::new(ErrorCode::Internal, error));
        }
        if let Some(token) = token.filter(|_| events > 0) {
            let params = json!({
                "progressToken": token,
                "progress": events,
                "message": format!("{events} events"),
            });
            // A client that may not be told is still answered.
            drop(client.tell(Method::Progress, &params.to_string()));
        }
        if going.changed().await.is_err() {
            let message = "the run was lost";
            return Err(AbpError::new(ErrorCode::Internal, message));
        }
    }
}
