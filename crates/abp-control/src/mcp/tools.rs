//! The tools, each for what it does.

use abp_dialect::{Dialect, Exchange};
use abp_error::{AbpError, ErrorCode};
use abp_mcp::ClientHandle;
use abp_receipt::ReceiptVerdict;
use abp_store::{KeyScope, ReceiptJudge, RunRecord};
use abp_translate::{Options, translate_error, translate_request, translate_response};
use serde_json::{Map, Value, json};

use super::server::{AbpServer, ToolResult};
use crate::{CancelOutcome, CancelRequest, store_location};

/// What clients are told of the tools.
const TOOLS: &str = include_str!("tools.json");

pub(super) fn all() -> Value {
    serde_json::from_str(TOOLS).unwrap_or_default()
}

impl AbpServer {
    /// Calls a tool; `None` where there is none of this name.
    pub(super) async fn tool(
        &self,
        name: &str,
        arguments: &Map<String, Value>,
        progress: Option<&Value>,
        client: &ClientHandle,
    ) -> Option<ToolResult> {
        let allowed = self.principal.require(KeyScope::RunsRead);
        if let Err(error) = allowed.and_then(|()| check_names(name, arguments)) {
            return Some(Err(error));
        }
        Some(match name {
            "abp_run" => self.start_run(arguments, progress, client).await,
            "abp_status" => self.status(arguments).await,
            "abp_cancel" => self.cancel(arguments).await,
            "abp_receipt" => self.receipt(arguments).await,
            "abp_verify" => self.verify(arguments).await,
            "abp_backends" => self.backends(),
            "abp_translate" => translate(arguments),
            _ => return None,
        })
    }

    /// A run of the client's principal.
    async fn find(&self, run: &str) -> Result<RunRecord, AbpError> {
        self.plane.find_run(&self.principal, run).await
    }

    async fn status(&self, arguments: &Map<String, Value>) -> ToolResult {
        let run = self.find(text(arguments, "run_id")?).await?;
        let status = match run.state.is_final() {
            true => "ended",
            false => run.state.as_str(),
        };
        Ok(json!({
            "run_id": run.run_id,
            "status": status,
            "outcome": run.outcome,
            "backend": run.backend,
            "accepted_at": run.accepted_at,
            "ended_at": run.ended_at,
        }))
    }

    async fn cancel(&self, arguments: &Map<String, Value>) -> ToolResult {
        let run = self.find(text(arguments, "run_id")?).await?;
        let (caller, request) = (&self.principal, CancelRequest::default());
        let cancelled = self.plane.cancel(caller, run.run_id, request).await?;
        let is_ending = !matches!(cancelled, CancelOutcome::AlreadyEnded(_));
        Ok(json!({ "run_id": run.run_id, "cancelled": is_ending }))
    }

    async fn receipt(&self, arguments: &Map<String, Value>) -> ToolResult {
        let document = self.document(text(arguments, "run_id")?).await?;
        serde_json::from_slice(&document).map_err(|error| {
            AbpError::new(ErrorCode::ReceiptChainBroken, "the receipt is no JSON")
                .with_source(error)
        })
    }

    /// The receipt of a run, as it is kept.
    async fn document(&self, run: &str) -> Result<Vec<u8>, AbpError> {
        let run = self.find(run).await?;
        let store = self.plane.store().await?;
        let record = store.receipt(run.run_id).await?;
        let record = record.ok_or_else(|| {
            let message = format!("run {} has not ended", run.run_id);
            AbpError::new(ErrorCode::ValidationFailed, message)
        })?;
        Ok(record.document)
    }

    async fn verify(&self, arguments: &Map<String, Value>) -> ToolResult {
        let document = match (arguments.get("run_id"), arguments.get("receipt")) {
            (Some(_), None) => self.document(text(arguments, "run_id")?).await?,
            (None, Some(_)) => text(arguments, "receipt")?.as_bytes().to_vec(),
            _ => return Err(invalid("give either run_id or receipt")),
        };
        let location = store_location(self.plane.config())?;
        let judge = ReceiptJudge::open_at(Some(&location), None).await;
        let verdict = judge.judge(&document).await;
        judge.close().await;
        let (because, problems) = match &verdict {
            ReceiptVerdict::Proven { .. } => (None, Vec::new()),
            ReceiptVerdict::SelfConsistent { because, .. } => {
                (Some(because.to_string()), Vec::new())
            }
            ReceiptVerdict::Wrong { problems, .. } => (None, problems.clone()),
        };
        Ok(json!({
            "verdict": verdict.name(),
            "run_id": verdict.run_id(),
            "unproven_because": because,
            "problems": problems,
        }))
    }

    fn backends(&self) -> ToolResult {
        let registry = self.plane.registry();
        let rows = registry.backends().map(|backend| {
            let descriptor = backend.descriptor();
            json!({
                "name": descriptor.name,
                "capabilities": descriptor.manifest,
                "policy_enforced_by": descriptor.holders,
            })
        });
        Ok(json!({ "backends": rows.collect::<Vec<_>>() }))
    }
}

fn translate(arguments: &Map<String, Value>) -> ToolResult {
    let dialect = |key| -> Result<Dialect, AbpError> {
        let name = text(arguments, key)?;
        name.parse()
            .map_err(|_| invalid(&format!("there is no dialect {name:?}")))
    };
    let (from, to) = (dialect("from")?, dialect("to")?);
    let document = text(arguments, "document")?.as_bytes();
    let options = Options::default();
    let translation = match arguments.get("kind").map_or(Some("request"), Value::as_str) {
        Some("request") => translate_request(document, from, to, &options)?,
        Some("response") => translate_response(document, from, to, &Exchange::default(), &options)?,
        Some("error") => translate_error(document, from, to, None, &options)?,
        _ => return Err(invalid("kind is one of request, response, error")),
    };
    Ok(json!({
        "output": translation.output,
        "fidelity": translation.ledger.fidelity(),
        "ledger": translation.ledger.entries(),
    }))
}

/// A misspelled argument would silently change what is done.
fn check_names(tool: &str, arguments: &Map<String, Value>) -> Result<(), AbpError> {
    let tools = all();
    let mut tools = tools.as_array().into_iter().flatten();
    let known = tools.find(|one| one["name"] == tool);
    let Some(known) = known.and_then(|tool| tool.pointer("/inputSchema/properties")?.as_object())
    else {
        return Ok(());
    };
    match arguments.keys().find(|key| !known.contains_key(*key)) {
        Some(unknown) => Err(invalid(&format!("{tool} takes no {unknown:?}"))),
        None => Ok(()),
    }
}

/// A text among the arguments.
pub(super) fn text<'a>(arguments: &'a Map<String, Value>, key: &str) -> Result<&'a str, AbpError> {
    let value = arguments.get(key).and_then(Value::as_str);
    value
        .filter(|text| !text.is_empty())
        .ok_or_else(|| invalid(&format!("{key} is missing or no text")))
}

/// A text among the arguments, where there is one.
pub(super) fn optional_text<'a>(
    arguments: &'a Map<String, Value>,
    key: &str,
) -> Result<Option<&'a str>, AbpError> {
    match arguments.contains_key(key) {
        true => text(arguments, key).map(Some),
        false => Ok(None),
    }
}

pub(super) fn invalid(message: &str) -> AbpError {
    AbpError::new(ErrorCode::ValidationFailed, message)
}
