//! `POST /v1/assist`: one run, for whoever listens.
//!
//! A request says what is to be done and, in its body or its headers, what its sender can render.
//! From it comes a work order that names nothing of this machine: no path, no command, no address. The
//! agent works in an empty directory, under the operator's policy. The order is submitted as any other: it
//! is durable, belongs to the key, waits its turn, and is carried out by whichever process claims it. Its
//! events go out in the form that was asked for, adapted to the sender, who may leave and come back.

mod accept;
mod follow;
mod order;
mod request;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use abp_control::{ControlPlane, KeyScope, Principal, Submission};
use abp_control_http::idempotency_key;
use abp_core::{CapabilitySource, ClientProfile, PartialCapabilities};
use abp_error::ErrorCode;
use abp_gateway::Refusal;
use abp_gateway_http::{HttpReply, json_answer};
use abp_runtime::Audience;
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use uuid::Uuid;

use self::accept::{Accepted, Framing, Profile};
use self::follow::{Attachments, Follower};
use self::request::AssistRequest;
use self::writer::Writer;

/// The longest a run may take.
const MAX_DURATION: Duration = Duration::from_hours(1);
/// The number of pieces that may wait for a slow reader. The follower then stops reading the store; the run goes on.
const QUEUE: usize = 64;
/// The most that is collected of an answer that is wanted in one piece.
const MAX_COLLECTED: usize = 32 << 20;

/// Submits runs and lets their senders follow them.
#[derive(Debug)]
pub(crate) struct Assist {
    plane: ControlPlane,
    attachments: Arc<Attachments>,
    /// Turns true when streams have to end.
    closing: watch::Sender<bool>,
}

impl Assist {
    pub(crate) fn new(plane: ControlPlane) -> Self {
        Self {
            plane,
            attachments: Arc::default(),
            closing: watch::Sender::new(false),
        }
    }

    /// Ends the streams of runs that go on elsewhere or later.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Submits the run that is asked for, and answers with what it says. A request that is sent again with
    /// its idempotency key gets the answer of its run from the start.
    pub(crate) async fn answer(
        &self,
        caller: &abp_gateway::Principal,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<HttpReply, Refusal> {
        let principal = Principal::of_caller(caller).via("assist");
        check_rights(caller, &principal)?;
        let key = idempotency_key(headers)?;
        let request = AssistRequest::read(body, key.as_deref())?;
        let accepted = Accepted::of(&all(headers, ACCEPT.as_str()));
        let client = client(headers, &request)?;
        let order = order::build(&request, client.capabilities.clone(), &self.plane).await?;
        let submission = Submission {
            backend: request.backend.clone(),
            timeout: Some(MAX_DURATION),
            client_origins: client.origins,
            idempotency_key: key,
            scope: KeyScope::Assist,
            discards_changes: true,
            ..Submission::new(order)
        };
        let submitted = self.plane.submit(&principal, submission).await?;
        let run_id = submitted.run_id;
        let profile = accepted.profile.unwrap_or(request.profile);
        let writer = Writer::new(profile, accepted.framing, run_id, request.conversation);
        let events = self.plane.follow(&principal, run_id, None).await?;
        let (parts, received) = mpsc::channel(QUEUE);
        let follower = Follower {
            run_id,
            events,
            audience: Audience::new(client.capabilities.clone()),
            writer,
            parts,
            notes: request.left_out,
            keep_alive: Duration::from_secs(self.plane.config().server.keepalive_secs.into()),
            last_sign: Instant::now(),
            plane: self.plane.clone(),
            principal,
            attachments: Arc::clone(&self.attachments),
            closing: self.closing.subscribe(),
        };
        tokio::spawn(follower.follow());
        let headers = response_headers(run_id, &accepted);
        match accepted.framing {
            Framing::Events | Framing::Text(_) => Ok(HttpReply::live(headers, received)),
            Framing::Collected => collect(received, run_id, &client, profile, headers).await,
        }
    }
}

/// Refuses a key that may not, and one with a budget: runs are not counted against it, so they take the
/// scope that says so.
fn check_rights(caller: &abp_gateway::Principal, principal: &Principal) -> Result<(), Refusal> {
    principal.require(KeyScope::Assist)?;
    if caller.has_budget() && !principal.may(KeyScope::RunsWrite) {
        let message = "runs are not counted against the budget of this key; \
                       give it the scope `runs:write` if it may start them all the same";
        return Err(Refusal::new(ErrorCode::PolicyDenied, message));
    }
    Ok(())
}

/// What the sender can render: what it says itself, then what its headers say.
fn client(headers: &HeaderMap, request: &AssistRequest) -> Result<ClientProfile, Refusal> {
    let mut sources = Vec::new();
    if let Some(said) = &request.capabilities {
        sources.push((CapabilitySource::Body, said.clone()));
    }
    if let Some(value) = headers.get(PartialCapabilities::HEADER) {
        let said = PartialCapabilities::from_json(value.as_bytes()).map_err(|error| {
            let header = PartialCapabilities::HEADER;
            Refusal::new(error.code(), format!("{header}: {error}"))
        })?;
        sources.push((CapabilitySource::Header, said));
    }
    if let Some(said) = PartialCapabilities::from_accept(&all(headers, ACCEPT.as_str())) {
        sources.push((CapabilitySource::Accept, said));
    }
    Ok(ClientProfile::merge(&sources))
}

/// The values of a header that may be given several times.
fn all(headers: &HeaderMap, name: &str) -> String {
    let values = headers.get_all(name).iter();
    let values: Vec<_> = values.filter_map(|value| value.to_str().ok()).collect();
    values.join(",")
}

fn response_headers(run_id: Uuid, accepted: &Accepted) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let kind = HeaderValue::from_static(accepted.framing.media_type());
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(run_id) = HeaderValue::try_from(run_id.to_string()) {
        headers.insert("x-abp-run-id", run_id);
    }
    headers
}

/// The whole answer in one object.
async fn collect(
    mut parts: mpsc::Receiver<Bytes>,
    run_id: Uuid,
    client: &ClientProfile,
    profile: Profile,
    headers: HeaderMap,
) -> Result<HttpReply, Refusal> {
    let mut collected = Vec::new();
    let mut size = 0;
    while let Some(part) = parts.recv().await {
        size += part.len();
        if size > MAX_COLLECTED {
            let message = "the answer is too long for one piece; ask for text/event-stream";
            return Err(Refusal::new(ErrorCode::RequestTooLarge, message));
        }
        let value: serde_json::Value = serde_json::from_slice(&part)
            .map_err(|error| Refusal::new(ErrorCode::Internal, error.to_string()))?;
        collected.push(value);
    }
    let name = match profile {
        Profile::Packets => "packets",
        Profile::AgUi => "events",
    };
    let answer = json!({ "run_id": run_id, "client": client, name: collected });
    let mut answer = json_answer(StatusCode::OK, &answer);
    answer.headers = headers;
    Ok(answer.into())
}
