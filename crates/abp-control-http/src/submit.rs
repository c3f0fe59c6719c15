//! Submitting runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use abp_backend_core::SessionUse;
use abp_control::{OrderDraft, Submission};
use abp_core::{ExecutionLane, Receipt, WorkOrder, WorkspaceMode, WorkspaceSpec};
use abp_error::{AbpError, ErrorCode};
use abp_gateway::Refusal;
use abp_gateway_http::HttpReply;
use abp_runtime::{Approvals, Approver};
use abp_store::KeyScope;
use http::header::LOCATION;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::api::{
    SteerRequest, SubmitOptions, SubmitQuery, SubmitRequest, SubmittedRun, WorkspaceSource,
};
use crate::blobs::blocking;
use crate::call::{Call, header, json_reply, read_json};
use crate::manifest::hex;
use crate::query::NoQuery;
use crate::table::{RequestDoc, RouteRow, schema_of};

/// The longest a run over HTTP may take where nothing is said.
const MAX_DURATION: Duration = Duration::from_hours(24);
/// How long a question waits for its answer where nothing is configured.
const APPROVAL_TIMEOUT: Duration = Duration::from_secs(3_600);
/// The longest an idempotency key may be.
const MAX_KEY: usize = 255;

pub(crate) fn rows() -> Vec<RouteRow> {
    vec![
        RouteRow::raw(
            Method::POST,
            "/runs",
            KeyScope::RunsWrite,
            "submit_run",
            "Submits a run. The answer comes when the run is durable, not when it has ended.",
            submit,
        )
        .submits(),
        RouteRow::raw(
            Method::POST,
            "/runs/{run_id}/fork",
            KeyScope::RunsWrite,
            "fork_run",
            "Submits a run whose agent goes on with a copy of the session that it had in a run that has ended. \
             Refused where the backend cannot fork sessions.",
            fork,
        )
        .submits(),
        RouteRow::raw(
            Method::POST,
            "/runs/{run_id}/steer",
            KeyScope::RunsWrite,
            "steer_run",
            "Sends a message to the agent of a run that goes on. Refused where the backend takes none, which \
             is every backend now.",
            steer,
        )
        .takes(RequestDoc::Json(schema_of::<SteerRequest>))
        .answers_nothing(StatusCode::NO_CONTENT, "the agent has the message"),
    ]
}

impl RouteRow {
    /// The documents of a route that submits a run.
    fn submits(self) -> Self {
        self.takes_query::<SubmitQuery>()
            .takes_header(
                "Idempotency-Key",
                "names the request: sent again it is the same run, with another body it is refused",
            )
            .takes_header(
                "traceparent",
                "the place of the caller in a trace, which the run's own span is a part of",
            )
            .takes(RequestDoc::Json(schema_of::<SubmitRequest>))
            .answers_json::<SubmittedRun>(StatusCode::ACCEPTED, "the run is durable")
            .answers_json::<SubmittedRun>(StatusCode::OK, "the run has ended")
    }
}

async fn submit(call: Call) -> Result<HttpReply, Refusal> {
    let request = read_request(&call.body)?;
    let session = request
        .continue_from
        .map(|run_id| (run_id, SessionUse::Continue));
    accept(call, request, session).await
}

async fn fork(call: Call) -> Result<HttpReply, Refusal> {
    let run = call.face.run_of(&call.caller, call.run_id()?).await?;
    let request = read_request(&call.body)?;
    if request.continue_from.is_some() {
        let message = "a fork goes on with the run of its path";
        return Err(Refusal::new(ErrorCode::ValidationFailed, message).at("/continue_from"));
    }
    accept(call, request, Some((run.run_id, SessionUse::Fork))).await
}

/// No backend takes messages while it works, so every message is refused, and the reason names the backend.
async fn steer(call: Call) -> Result<HttpReply, Refusal> {
    let run = call.face.run_of(&call.caller, call.run_id()?).await?;
    call.query::<NoQuery>()?;
    call.body::<SteerRequest>()?;
    let (run_id, backend) = (run.run_id, run.backend);
    if run.state.is_final() {
        let message = format!("run {run_id} has ended; submit a run with `continue_from` instead");
        return Err(Refusal::new(ErrorCode::ValidationFailed, message).at("run_id"));
    }
    let message = format!(
        "the backend {backend} takes no messages while it works; cancel run {run_id}, and submit one with \
         `continue_from`"
    );
    Err(Refusal::new(ErrorCode::CapabilityUnsupported, message).at("run_id"))
}

/// Submits a run, with the agent's session of an earlier one where that is asked for.
async fn accept(
    call: Call,
    request: SubmitRequest,
    session: Option<(Uuid, SessionUse)>,
) -> Result<HttpReply, Refusal> {
    let query: SubmitQuery = call.query()?;
    let key = idempotency_key(&call.headers)?;
    check_rights(&call, &request.order)?;
    let workspace = workspace(&call, &request, key.as_deref()).await?;
    let order = OrderDraft::of(request.order)
        .with(|order| order.workspace = workspace)
        .build(call.face.plane())?;
    let submission = Submission {
        backend: request.backend,
        timeout: Some(timeout(&request.options)?),
        approvals: approvals(&call, &request.options)?,
        idempotency_key: key,
        notify: webhooks(&call, &request.options)?,
        trace: call.trace(),
        ..Submission::new(order)
    };
    let plane = call.face.plane();
    let submission = match session {
        None => submission,
        Some((run_id, usage)) => {
            let principal = call.caller.principal();
            let continued = plane.with_session(principal, submission, run_id, usage);
            continued.await?.0
        }
    };
    let submitted = plane.submit(call.caller.principal(), submission).await?;
    let run_id = submitted.run_id;
    let receipt = match query.wait.filter(|wait| *wait > 0) {
        None => None,
        Some(wait) => wait_for_receipt(&call, run_id, Duration::from_secs(wait)).await?,
    };
    let run = call.face.run_of(&call.caller, run_id).await?;
    let answer = SubmittedRun {
        run_id,
        state: run.state.into(),
        is_replay: !submitted.is_new,
        receipt: receipt.map(Box::new),
    };
    let status = match answer.receipt {
        Some(_) => StatusCode::OK,
        None => StatusCode::ACCEPTED,
    };
    let reply = json_reply(status, &answer)?;
    let location = HeaderValue::try_from(format!("/v1/runs/{run_id}"))
        .map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))?;
    Ok(reply.with_header(LOCATION, location))
}

/// Reads a submission; a work order alone is one, too.
fn read_request(body: &[u8]) -> Result<SubmitRequest, Refusal> {
    let document: Value = read_json(body)?;
    if document.get("order").is_some() {
        return read_json(body);
    }
    let order: WorkOrder = read_json(body)?;
    Ok(SubmitRequest {
        order,
        backend: None,
        workspace: None,
        continue_from: None,
        options: SubmitOptions::default(),
    })
}

/// The key that names a request, where it has one.
///
/// # Errors
/// Refuses one that is empty, too long or not plain text.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let wrong = |problem: &str| {
        let message = format!("the Idempotency-Key {problem}");
        Refusal::new(ErrorCode::ValidationFailed, message).at("Idempotency-Key")
    };
    let Some(key) = header(headers, "idempotency-key")? else {
        return Ok(None);
    };
    if key.is_empty() || key.len() > MAX_KEY {
        return Err(wrong("has 1 to 255 characters"));
    }
    Ok(Some(key.to_owned()))
}

fn timeout(options: &SubmitOptions) -> Result<Duration, Refusal> {
    match options.timeout_secs {
        None => Ok(MAX_DURATION),
        Some(seconds @ 1..=86_400) => Ok(Duration::from_secs(seconds)),
        Some(_) => {
            let message = "timeout_secs is a number from 1 to 86400";
            Err(Refusal::new(ErrorCode::ValidationFailed, message).at("/options/timeout_secs"))
        }
    }
}

/// What the caller approves in advance, which needs the right to answer; the rest is asked.
fn approvals(call: &Call, options: &SubmitOptions) -> Result<Approvals, Refusal> {
    let configured = call.face.config().approval_timeout_secs;
    let timeout = configured.map_or(APPROVAL_TIMEOUT, |secs| Duration::from_secs(secs.into()));
    let approvals = match options.approve.is_empty() {
        true => Approvals::default(),
        false => {
            call.caller.require(KeyScope::Approve)?;
            let principal = call.caller.principal();
            let approver = Approver {
                name: principal.name().to_owned(),
                via: principal.way().to_owned(),
            };
            Approvals::for_tools(&options.approve, approver).map_err(|error| {
                let refusal = Refusal::new(ErrorCode::ValidationFailed, error.to_string());
                refusal.at("/options/approve")
            })?
        }
    };
    Ok(approvals.or_ask(timeout))
}

/// The configured webhooks that are told of the run.
fn webhooks(call: &Call, options: &SubmitOptions) -> Result<Vec<String>, Refusal> {
    for (index, name) in options.notify.iter().enumerate() {
        if !call.face.config().webhooks.contains_key(name) {
            let message = format!("no webhook is named {name:?}");
            let refusal = Refusal::new(ErrorCode::ValidationFailed, message);
            return Err(refusal.at(format!("/options/notify/{index}")));
        }
    }
    Ok(options.notify.clone())
}

/// Refuses what an order may say only where the caller is trusted with it.
fn check_rights(call: &Call, order: &WorkOrder) -> Result<(), Refusal> {
    let caller = &call.caller;
    let denied = |place: &str, message: &str| {
        Err(Refusal::new(ErrorCode::PolicyDenied, message).at(place.to_owned()))
    };
    if !order.config.env.is_empty() && !caller.is_admin() {
        let message = "environment variables of agents are set by the operator";
        return denied("/order/config/env", message);
    }
    let writes = order.lane == ExecutionLane::WorkspaceFirst
        || order.workspace.mode == WorkspaceMode::PassThrough;
    if writes && !caller.principal().may(KeyScope::Apply) {
        let message = "an order that changes its source needs the scope `apply`";
        return denied("/order/lane", message);
    }
    Ok(())
}

/// The directory that the run works on: uploaded, below a configured root, or empty.
async fn workspace(
    call: &Call,
    request: &SubmitRequest,
    key: Option<&str>,
) -> Result<WorkspaceSpec, Refusal> {
    let spec = request.order.workspace.clone();
    let is_default = matches!(spec.root.as_str(), "" | ".");
    match &request.workspace {
        Some(_) if !is_default => {
            let message = "an order with an uploaded workspace has no root of its own";
            Err(Refusal::new(ErrorCode::ValidationFailed, message).at("/order/workspace/root"))
        }
        Some(WorkspaceSource::Uploaded(id)) => uploaded(call, id, spec, key).await,
        None if is_default => Ok(call.face.plane().empty_workspace(spec).await?),
        None => {
            let root = below_roots(&call.face.config().server.roots, &spec.root)?;
            Ok(WorkspaceSpec { root, ..spec })
        }
    }
}

async fn uploaded(
    call: &Call,
    id: &str,
    spec: WorkspaceSpec,
    key: Option<&str>,
) -> Result<WorkspaceSpec, Refusal> {
    call.caller.require(KeyScope::Upload)?;
    if spec.mode == WorkspaceMode::PassThrough {
        let message = "an uploaded workspace is worked on as a copy";
        let refusal = Refusal::new(ErrorCode::ValidationFailed, message);
        return Err(refusal.at("/order/workspace/mode"));
    }
    // The same request has the same directory, or it would not be the same request.
    let name = match key {
        Some(key) => hex(&Sha256::digest(format!("{id}/{key}").as_bytes())),
        None => Uuid::new_v4().simple().to_string(),
    };
    let (face, id) = (Arc::clone(&call.face), id.to_owned());
    let principal = call.caller.id().to_owned();
    let tree = blocking(move || {
        let uploads = face.uploads().of(&principal);
        let Some(manifest) = uploads.workspace(&id)? else {
            let message = "no workspace of this id was uploaded";
            let error = AbpError::new(ErrorCode::NotFound, message);
            return Err(error.with_place("/workspace/uploaded"));
        };
        let missing = uploads.missing(&manifest)?;
        if !missing.is_empty() {
            let message = format!("{} files of the workspace are missing", missing.len());
            let shown: Vec<_> = missing.into_iter().take(1_000).collect();
            let error = AbpError::new(ErrorCode::BlobsMissing, message);
            return Err(error.with_context("missing", shown));
        }
        uploads.make_tree(&manifest, &name)
    });
    let root = path_text(&tree.await?)?;
    Ok(WorkspaceSpec { root, ..spec })
}

/// The canonical form of a directory below one of the roots. What lies elsewhere is as unknown as nothing.
fn below_roots(roots: &[PathBuf], asked: &str) -> Result<String, Refusal> {
    let refused = || {
        let message = "the root is no directory below the server's `roots`";
        Refusal::new(ErrorCode::ValidationFailed, message).at("/order/workspace/root")
    };
    let found = std::fs::canonicalize(asked).map_err(|_| refused())?;
    let is_below = roots.iter().any(|root| {
        let root = std::fs::canonicalize(root);
        root.is_ok_and(|root| found.starts_with(root))
    });
    match is_below && found.is_dir() {
        true => path_text(&found),
        false => Err(refused()),
    }
}

fn path_text(path: &Path) -> Result<String, Refusal> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| {
        let message = "the path of the workspace is not valid text";
        Refusal::new(ErrorCode::WorkspaceInitFailed, message)
    })
}

/// The receipt of a run, where it ends in time.
async fn wait_for_receipt(
    call: &Call,
    run_id: Uuid,
    time: Duration,
) -> Result<Option<Receipt>, Refusal> {
    let waited = call.face.plane().wait(call.caller.principal(), run_id);
    let mut closing = call.face.closing();
    tokio::select! {
        receipt = waited => Ok(Some(receipt?)),
        () = tokio::time::sleep(time) => Ok(None),
        () = closing.wait() => Ok(None),
    }
}
