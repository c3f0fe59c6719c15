//! The events of a remote run, across broken connections.

use std::collections::VecDeque;
use std::time::Duration;

use abp_control_http::api::EventPage;
use abp_core::AgentEvent;
use abp_error::{AbpError, ErrorCode};
use bytes::Bytes;
use http::header::{ACCEPT, HeaderName, HeaderValue};
use http::{HeaderMap, Method};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use uuid::Uuid;

use crate::Remote;

/// How often a stream that breaks off is taken up again without anything new having come.
const MAX_RETRIES: u32 = 8;
/// The longest that the next try is waited for.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// The longest event that is read.
const MAX_EVENT: usize = 64 << 20;

/// The events of a run, in order and without a gap, until the run has ended.
#[derive(Debug)]
pub struct RemoteEvents {
    remote: Remote,
    run_id: Uuid,
    after: Option<u64>,
    body: Option<Incoming>,
    buffer: Vec<u8>,
    ready: VecDeque<SseItem>,
    retries: u32,
    /// Whether it ends with what is stored now, instead of following the run.
    only_stored: bool,
}

#[derive(Debug, PartialEq)]
enum SseItem {
    Event { seq: u64, json: String },
    End,
}

impl Remote {
    /// Follows a run from after an event, or from its first one.
    #[must_use]
    pub fn follow(&self, run_id: Uuid, after: Option<u64>) -> RemoteEvents {
        RemoteEvents {
            remote: self.clone(),
            run_id,
            after,
            body: None,
            buffer: Vec::new(),
            ready: VecDeque::new(),
            retries: 0,
            only_stored: false,
        }
    }

    /// The events of a run that are stored now, after an event or from the first one.
    #[must_use]
    pub fn stored_events(&self, run_id: Uuid, after: Option<u64>) -> RemoteEvents {
        RemoteEvents {
            only_stored: true,
            ..self.follow(run_id, after)
        }
    }
}

impl RemoteEvents {
    /// The next event with its number; `None` once the run has ended.
    ///
    /// # Errors
    /// Fails where the server refuses, or cannot be reached for too long.
    pub async fn next(&mut self) -> Result<Option<(u64, AgentEvent)>, AbpError> {
        loop {
            match self.ready.pop_front() {
                Some(SseItem::End) => return Ok(None),
                Some(SseItem::Event { seq, .. })
                    if self.after.is_some_and(|after| seq <= after) => {}
                Some(SseItem::Event { seq, json }) => {
                    self.after = Some(seq);
                    self.retries = 0;
                    let event = serde_json::from_str(&json).map_err(|error| {
                        let message = format!("event {seq} of the server cannot be read: {error}");
                        AbpError::new(ErrorCode::BackendUnavailable, message)
                    })?;
                    return Ok(Some((seq, event)));
                }
                None => {
                    if let Err(error) = self.read().await {
                        self.wait_or_fail(error).await?;
                    }
                }
            }
        }
    }

    /// Reads more of the stream, which is opened where it is not.
    async fn read(&mut self) -> Result<(), AbpError> {
        if self.only_stored {
            return self.read_page().await;
        }
        let body = match &mut self.body {
            Some(body) => body,
            None => {
                self.buffer.clear();
                let opened = self.open().await?;
                self.body.insert(opened)
            }
        };
        let broken = |problem: String| AbpError::new(ErrorCode::StreamClosed, problem);
        let frame = match body.frame().await {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                self.body = None;
                return Err(broken(format!("the stream broke off: {error}")));
            }
            None => {
                self.body = None;
                return Err(broken("the stream ended before the run did".to_owned()));
            }
        };
        if let Ok(data) = frame.into_data() {
            self.buffer.extend_from_slice(&data);
            take_items(&mut self.buffer, &mut self.ready);
            if self.buffer.len() > MAX_EVENT {
                return Err(broken("an event of the stream is too long".to_owned()));
            }
        }
        Ok(())
    }

    /// Reads a page of stored events; an empty one is the end.
    async fn read_page(&mut self) -> Result<(), AbpError> {
        let after = self.after.map(|after| format!("?after_seq={after}"));
        let path = format!("/runs/{}/events{}", self.run_id, after.unwrap_or_default());
        let page: EventPage = self.remote.get(&path).await?;
        match page.events.is_empty() {
            true => self.ready.push_back(SseItem::End),
            false => self
                .ready
                .extend(page.events.into_iter().map(|item| SseItem::Event {
                    seq: item.seq,
                    json: item.event.to_string(),
                })),
        }
        Ok(())
    }

    async fn open(&self) -> Result<Incoming, AbpError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(after) = self.after {
            let name = HeaderName::from_static("last-event-id");
            headers.insert(name, HeaderValue::from(after));
        }
        let path = format!("/runs/{}/events", self.run_id);
        let answer = self.remote.send(Method::GET, &path, headers, Bytes::new());
        Ok(answer.await?.into_body())
    }

    /// Waits before the next try; what the server refuses is not tried again.
    async fn wait_or_fail(&mut self, error: AbpError) -> Result<(), AbpError> {
        let may_pass = matches!(
            error.code(),
            ErrorCode::BackendUnavailable | ErrorCode::StreamClosed | ErrorCode::Overloaded
        );
        if !may_pass || self.retries >= MAX_RETRIES {
            return Err(error);
        }
        let wait = Duration::from_millis(100) * 2_u32.pow(self.retries);
        self.retries += 1;
        tokio::time::sleep(wait.min(MAX_WAIT)).await;
        Ok(())
    }
}

/// Takes every whole event off the front of a buffer. The server ends lines with a line feed.
fn take_items(buffer: &mut Vec<u8>, ready: &mut VecDeque<SseItem>) {
    let mut start = 0;
    while let Some(rest) = buffer.get(start..) {
        let Some(end) = rest.windows(2).position(|two| two == b"\n\n") else {
            break;
        };
        let block = rest.get(..end).unwrap_or_default();
        ready.extend(item(&String::from_utf8_lossy(block)));
        start += end + 2;
    }
    buffer.drain(..start);
}

fn item(block: &str) -> Option<SseItem> {
    let field = |name: &str| {
        let mut lines = block.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    };
    match field("event")? {
        "end" => Some(SseItem::End),
        "agent_event" => Some(SseItem::Event {
            seq: field("id")?.parse().ok()?,
            json: field("data")?.to_owned(),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_however_the_stream_is_cut() {
        let stream = ": keep-alive\n\nid: 0\nevent: agent_event\ndata: {\"a\":\"\u{e4}\"}\n\n\
                      id: 1\nevent: agent_event\ndata: {}\n\nevent: end\ndata: {}\n\n";
        let expected = [
            SseItem::Event {
                seq: 0,
                json: "{\"a\":\"\u{e4}\"}".to_owned(),
            },
            SseItem::Event {
                seq: 1,
                json: "{}".to_owned(),
            },
            SseItem::End,
        ];
        for size in 1..stream.len() {
            let (mut buffer, mut ready) = (Vec::new(), VecDeque::new());
            for piece in stream.as_bytes().chunks(size) {
                buffer.extend_from_slice(piece);
                take_items(&mut buffer, &mut ready);
            }
            assert_eq!(ready, expected, "pieces of {size}");
            assert!(buffer.is_empty());
        }
    }
}
