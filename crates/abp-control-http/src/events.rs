//! The events of a run: pages, and server-sent events that replay and then follow.

use std::time::Duration;

use abp_control::EventStream;
use abp_core::AgentEvent;
use abp_error::ErrorCode;
use abp_gateway::Refusal;
use abp_gateway_http::HttpReply;
use abp_runtime::Audience;
use abp_store::{EventRecord, KeyScope};
use abp_stream::{AgUi, Conversation};
use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::api::{ClientView, EventItem, EventPage, EventsQuery, RunStateView};
use crate::call::{Call, json_reply, media};
use crate::face::Closing;
use crate::table::{RouteRow, text_schema};

/// How many events a page has where nothing is said.
const PAGE: u32 = 1_000;
/// How many messages may wait for a slow reader. The follower then stops reading the store; the run goes on.
const WAITING: usize = 16;
/// Messages of less than this many bytes are joined into one write while there are more at once.
const JOINED: usize = 16 << 10;

pub(crate) fn rows() -> Vec<RouteRow> {
    vec![
        RouteRow::raw(
            Method::GET,
            "/runs/{run_id}/events",
            KeyScope::RunsRead,
            "list_run_events",
            "Returns the events of a run: a page of JSON, or, where text/event-stream is accepted, all that \
             there are and then those that come, until the run has ended.",
            answer,
        )
        .takes_query::<EventsQuery>()
        .takes_header("Last-Event-ID", "the number of the last event that was seen")
        .answers_json::<EventPage>(StatusCode::OK, "the events")
        .answers(
            StatusCode::OK,
            "the events",
            "text/event-stream",
            text_schema,
        ),
    ]
}

async fn answer(call: Call) -> Result<HttpReply, Refusal> {
    let query: EventsQuery = call.query()?;
    let run = call.face.run_of(&call.caller, call.run_id()?).await?;
    let after = match call.header("last-event-id")? {
        Some(text) => Some(last_event_id(text)?),
        None => query.after_seq,
    };
    let after = bounded(after);
    if call.accept().contains("text/event-stream") {
        return stream(&call, run.run_id, after, query.client).await;
    }
    if query.client.is_some() {
        let message = "adapted events come as a stream; accept text/event-stream";
        return Err(Refusal::new(ErrorCode::ValidationFailed, message).at("as"));
    }
    page(&call, run.run_id, after, query.limit.unwrap_or(PAGE)).await
}

/// A forged number is no danger: it names a place in the run, which the caller may read all of.
fn last_event_id(text: &str) -> Result<u64, Refusal> {
    let seq = text.trim().parse();
    seq.map_err(|_| {
        let message = "Last-Event-ID is the number of an event";
        Refusal::new(ErrorCode::ValidationFailed, message).at("Last-Event-ID")
    })
}

/// A number that stores can hold; no run has as many events.
pub(crate) fn bounded(after: Option<u64>) -> Option<u64> {
    after.map(|after| after.min(u64::from(u32::MAX) << 16))
}

async fn page(
    call: &Call,
    run_id: Uuid,
    after: Option<u64>,
    limit: u32,
) -> Result<HttpReply, Refusal> {
    let store = call.face.store().await?;
    // Asked before the events are read: what is not there then can only come of a run that goes on.
    let run = call.face.run_of(&call.caller, run_id).await?;
    let from = after.map_or(0, |after| after.saturating_add(1));
    if run.state.is_final() {
        call.face.plane().require_events(run_id).await?;
    }
    let records = store.events(run_id, from, limit).await?;
    let is_short = records.len() < limit as usize;
    let next = records.last().map(|record| record.seq).or(after);
    let is_last = match is_short && run.state.is_final() {
        false => false,
        // A page may be short because its events are long.
        true => {
            let from = next.map_or(0, |next| next.saturating_add(1));
            store.events(run_id, from, 1).await?.is_empty()
        }
    };
    let events = records.iter().map(item).collect::<Result<_, _>>()?;
    let page = EventPage {
        events,
        next_after_seq: next,
        is_end: is_last,
    };
    json_reply(StatusCode::OK, &page)
}

fn item(record: &EventRecord) -> Result<EventItem, Refusal> {
    let event: Value = serde_json::from_str(&record.json).map_err(|error| {
        let message = format!("event {}: {error}", record.seq);
        Refusal::new(ErrorCode::ReceiptChainBroken, message)
    })?;
    Ok(EventItem {
        seq: record.seq,
        event,
    })
}

async fn stream(
    call: &Call,
    run_id: Uuid,
    after: Option<u64>,
    client: Option<ClientView>,
) -> Result<HttpReply, Refusal> {
    // A presenter holds text back until it is complete, so an adapted stream is presented from the first
    // event on, and what the client has seen is left out.
    let from = match client {
        Some(_) => None,
        None => after,
    };
    let plane = call.face.plane();
    let events = plane.follow(call.caller.principal(), run_id, from).await?;
    let (parts, received) = mpsc::channel(WAITING);
    let follower = SseFollower {
        call_plane: plane.clone(),
        principal: call.caller.principal().clone(),
        run_id,
        events,
        after,
        audience: client.map(|client| Audience::new(Some(client.capabilities()))),
        agui: (client == Some(ClientView::AgUi)).then(|| Box::new(agui(run_id))),
        parts,
        keep_alive: Duration::from_secs(call.face.config().server.keepalive_secs.max(1).into()),
        closing: call.face.closing(),
        text: String::new(),
    };
    tokio::spawn(follower.follow());
    Ok(HttpReply::live(media("text/event-stream"), received))
}

/// Writes the events of a run for one reader.
struct SseFollower {
    call_plane: abp_control::ControlPlane,
    principal: abp_control::Principal,
    run_id: Uuid,
    events: EventStream,
    after: Option<u64>,
    audience: Option<Audience>,
    /// Writes the events of AG-UI instead, where these are asked for.
    agui: Option<Box<AgUi>>,
    parts: mpsc::Sender<Bytes>,
    keep_alive: Duration,
    closing: Closing,
    /// What is written and not sent yet.
    text: String,
}

/// The reader is gone.
struct ReaderGone;

impl SseFollower {
    async fn follow(mut self) {
        // A reader that leaves ends its stream, never the run.
        drop(self.write_all().await);
    }

    async fn write_all(&mut self) -> Result<(), ReaderGone> {
        loop {
            let next = tokio::select! {
                biased;
                () = self.parts.closed() => return Err(ReaderGone),
                () = self.closing.wait() => return self.send().await,
                next = self.events.next() => next,
                () = std::future::ready(()), if !self.text.is_empty() => {
                    // Nothing more is there at once.
                    self.send().await?;
                    continue;
                }
                () = tokio::time::sleep(self.keep_alive) => {
                    self.text.push_str(": keep-alive\n\n");
                    self.send().await?;
                    continue;
                }
            };
            match next {
                Ok(Some(followed)) => {
                    self.write(followed.seq, &followed.event, &followed.json)
                        .await;
                    if self.text.len() >= JOINED {
                        self.send().await?;
                    }
                }
                Ok(None) => return self.end().await,
                Err(error) => {
                    let message = error.to_string();
                    tracing::warn!(target: "abp.http", run_id = %self.run_id, message, "a follower stopped");
                    // Without an end event the client knows to come back with the last number it has.
                    return self.send().await;
                }
            }
        }
    }

    async fn write(&mut self, seq: u64, event: &AgentEvent, json: &str) {
        let is_new = self.after.is_none_or(|after| seq > after);
        match &mut self.audience {
            None if is_new => sse_event(&mut self.text, seq, json),
            None => {}
            Some(audience) => {
                for shown in audience.present(event).await.events() {
                    if let Some(agui) = &mut self.agui {
                        sse_data(&mut self.text, &agui.event(&shown));
                    } else if is_new && let Ok(json) = serde_json::to_string(&*shown) {
                        sse_event(&mut self.text, seq, &json);
                    }
                }
            }
        }
    }

    async fn end(&mut self) -> Result<(), ReaderGone> {
        let held = self.audience.as_mut().map(Audience::finish);
        for shown in held.unwrap_or_default() {
            if let Some(agui) = &mut self.agui {
                sse_data(&mut self.text, &agui.event(&shown));
            } else if let Ok(json) = serde_json::to_string(&shown) {
                self.text
                    .push_str(&format!("event: agent_event\ndata: {json}\n\n"));
            }
        }
        if let Some(agui) = &mut self.agui {
            let receipt = self.call_plane.receipt(self.run_id).await;
            sse_data(&mut self.text, &agui.end(&receipt));
            return self.send().await;
        }
        if let Ok(run) = Box::pin(self.call_plane.run(&self.principal, self.run_id)).await {
            let state = RunStateView::from(run.state);
            let end = serde_json::json!({ "run_id": self.run_id, "state": state });
            self.text.push_str(&format!("event: end\ndata: {end}\n\n"));
        }
        self.send().await
    }

    async fn send(&mut self) -> Result<(), ReaderGone> {
        if self.text.is_empty() {
            return Ok(());
        }
        let text = Bytes::from(std::mem::take(&mut self.text));
        self.parts.send(text).await.map_err(|_| ReaderGone)
    }
}

/// One event in the form of server-sent events. Events are one line of JSON.
fn sse_event(text: &mut String, seq: u64, json: &str) {
    text.push_str("id: ");
    text.push_str(&seq.to_string());
    text.push_str("\nevent: agent_event\ndata: ");
    text.push_str(json);
    text.push_str("\n\n");
}

/// The names that a run has for a client of AG-UI that did not start it.
fn agui(run_id: Uuid) -> AgUi {
    let name = run_id.to_string();
    let conversation = Conversation {
        thread_id: name.clone(),
        run_id: name,
    };
    AgUi::new(run_id, conversation)
}

/// Events of AG-UI in the form of server-sent events.
fn sse_data(text: &mut String, events: &[Value]) {
    for event in events {
        text.push_str("data: ");
        text.push_str(&event.to_string());
        text.push_str("\n\n");
    }
}
