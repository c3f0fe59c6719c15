//! Runs that this server started.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use abp_core::{CancelReason, Receipt};
use abp_error::AbpError;
use abp_mcp::{Change, ClientHandle, Method};
use abp_runtime::{CancelHandle, RunHandle, RunOptions};
use clap::Parser as _;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use uuid::Uuid;

use super::server::{AbpServer, ToolResult};
use super::tools::{invalid, text};
use crate::args::{Cli, Command, RunArgs};
use crate::order;
use crate::output::Output;

/// How long runs may take to end when the server does.
const GRACE: Duration = Duration::from_secs(10);
const GRACE_STEP: Duration = Duration::from_millis(20);

/// The runs of this process that have not ended.
#[derive(Default)]
pub(super) struct Runs {
    under_way: Arc<Mutex<BTreeMap<Uuid, CancelHandle>>>,
}

/// How far a run is: how many events there were, and what came of it at the end.
#[derive(Clone, Default)]
struct Progress {
    events: u64,
    end: Option<Result<Box<Receipt>, String>>,
}

impl Runs {
    fn list(&self) -> MutexGuard<'_, BTreeMap<Uuid, CancelHandle>> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels a run; whether it was one of these.
    pub(super) fn cancel(&self, run_id: Uuid) -> bool {
        let runs = self.list();
        let run = runs.get(&run_id);
        run.inspect(|run| run.cancel(CancelReason::User)).is_some()
    }

    /// Cancels what is still going on and waits for it to end.
    pub(super) async fn finish(&self) {
        for run in self.list().values() {
            run.cancel(CancelReason::Disconnect);
        }
        let mut waited = Duration::ZERO;
        while !self.list().is_empty() && waited < GRACE {
            tokio::time::sleep(GRACE_STEP).await;
            waited += GRACE_STEP;
        }
    }
}

impl AbpServer {
    pub(super) async fn start_run(
        &self,
        arguments: &Map<String, Value>,
        progress: Option<&Value>,
        client: &ClientHandle,
    ) -> ToolResult {
        let args = self.run_args(arguments)?;
        let wait = match arguments.get("wait") {
            None => false,
            Some(wait) => wait
                .as_bool()
                .ok_or_else(|| invalid("wait is no boolean"))?,
        };
        // Warnings go to standard error; standard output belongs to the protocol.
        let mut output = Output::new(false);
        let order = order::build(&args, &self.session, &mut output)?;
        let backend = self.session.runs.backend(args.backend.as_deref())?;
        let options = RunOptions {
            timeout: args.limits.timeout,
            ..RunOptions::default()
        };
        let runs = &self.session.runs;
        let handle = runs.start(Some(&backend), order, options).await?;
        let run_id = handle.run_id;
        let mut going = self.follow(handle);
        if !wait {
            return Ok(json!({ "run_id": run_id, "status": "running", "backend": backend }));
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

    /// The same as on the command line, so that both mean the same.
    fn run_args(&self, arguments: &Map<String, Value>) -> Result<RunArgs, AbpError> {
        let mut line = vec![
            "abp".to_owned(),
            "run".to_owned(),
            format!("--task={}", text(arguments, "task")?),
        ];
        for (key, flag) in [
            ("backend", "backend"),
            ("model", "model"),
            ("policy", "policy"),
        ] {
            if arguments.contains_key(key) {
                line.push(format!("--{flag}={}", text(arguments, key)?));
            }
        }
        if let Some(name) = arguments.get("policy").and_then(Value::as_str)
            && !self.session.config().policies.contains_key(name)
        {
            return Err(invalid(&format!("no policy {name:?} is configured")));
        }
        if let Some(timeout) = arguments.get("timeout_secs") {
            line.push(format!("--timeout={timeout}"));
        }
        line.push(format!("--root={}", self.root_of(arguments)?));
        match Cli::try_parse_from(line) {
            Ok(Cli {
                command: Command::Run(args),
                ..
            }) => Ok(*args),
            Ok(_) => Err(invalid("the arguments are not those of a run")),
            Err(error) => Err(invalid(&error.to_string())),
        }
    }

    /// The directory of a run. Whoever calls tools may not reach beyond the server's own.
    fn root_of(&self, arguments: &Map<String, Value>) -> Result<String, AbpError> {
        let asked = match arguments.contains_key("root") {
            true => self.root.join(text(arguments, "root")?),
            false => self.root.clone(),
        };
        let found = std::fs::canonicalize(&asked).ok();
        let below = found.filter(|found| found.starts_with(&self.root));
        let shown = below.as_ref().and_then(|root| root.to_str());
        let shown = shown.ok_or_else(|| invalid("root is no directory below the server's own"))?;
        Ok(shown.to_owned())
    }

    /// Keeps a run going, and tells of its changes.
    fn follow(&self, handle: RunHandle) -> watch::Receiver<Progress> {
        let (sender, receiver) = watch::channel(Progress::default());
        let run_id = handle.run_id;
        self.runs.list().insert(run_id, handle.cancel_handle());
        let runs = Arc::clone(&self.runs.under_way);
        let changes = self.changes.clone();
        // Nobody may listen; then there is nobody to tell.
        drop(changes.send(Change::Resources));
        tokio::spawn(async move {
            let mut events = handle.events;
            let changed = |what: &str| {
                let uri = format!("abp://runs/{run_id}/{what}");
                drop(changes.send(Change::Resource { uri }));
            };
            while events.next().await.is_some() {
                sender.send_modify(|progress| progress.events += 1);
                changed("events");
            }
            let end = handle.receipt.await;
            let end = end.map(Box::new).map_err(|error| error.to_string());
            runs.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(&run_id);
            sender.send_modify(|progress| progress.end = Some(end));
            for what in ["events", "diff", "receipt"] {
                changed(what);
            }
            drop(changes.send(Change::Resources));
        });
        receiver
    }
}

async fn wait_for_end(
    going: &mut watch::Receiver<Progress>,
    token: Option<&Value>,
    client: &ClientHandle,
) -> Result<Box<Receipt>, AbpError> {
    loop {
        let Progress { events, end } = going.borrow_and_update().clone();
        if let Some(end) = end {
            return end.map_err(|error| AbpError::new(abp_error::ErrorCode::Internal, error));
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
            return Err(AbpError::new(abp_error::ErrorCode::Internal, message));
        }
    }
}
