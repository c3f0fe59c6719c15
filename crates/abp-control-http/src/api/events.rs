//! Events: pages, streams and WebSockets.

use abp_core::{ClientCapabilities, PresentationType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::{ApprovalView, RunStateView};

/// Which events to read.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventsQuery {
    /// Only events after this sequence number. `Last-Event-ID` says the same and wins.
    #[serde(default)]
    pub after_seq: Option<u64>,
    /// How many events a page has; ignored for streams.
    #[serde(default)]
    #[schemars(range(min = 1, max = 10_000))]
    pub limit: Option<u32>,
    /// Adapts the events to a kind of client.
    #[serde(default, rename = "as")]
    pub client: Option<ClientView>,
}

/// A kind of client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientView {
    /// A web page: everything.
    Web,
    /// A terminal: no citations or carousels, small images.
    Cli,
    /// A voice: plain sentences only.
    Voice,
    /// A client of AG-UI: everything, as the events of that protocol, without numbers. A stream begins with
    /// the first event whatever was seen before.
    #[serde(rename = "ag-ui")]
    AgUi,
}

impl ClientView {
    /// What such a client can take.
    #[must_use]
    pub fn capabilities(self) -> ClientCapabilities {
        use PresentationType::{CitationBlock, MediaCarousel, ProgressIndicator};
        let (events, prefers_markdown, resolution) = match self {
            Self::Web | Self::AgUi => (
                vec![CitationBlock, MediaCarousel, ProgressIndicator],
                true,
                Some("high"),
            ),
            Self::Cli => (vec![ProgressIndicator], true, Some("low")),
            Self::Voice => (Vec::new(), false, None),
        };
        ClientCapabilities {
            supported_events: events.iter().map(ToString::to_string).collect(),
            prefers_markdown,
            image_resolution: resolution.map(str::to_owned),
        }
    }
}

/// A page of events.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct EventPage {
    /// The events, in order.
    pub events: Vec<EventItem>,
    /// The sequence number to ask for next (`after_seq`); absent where the page is empty and nothing was
    /// asked for before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_after_seq: Option<u64>,
    /// Whether the run has ended and these are its last events.
    pub is_end: bool,
}

/// An event with its number.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct EventItem {
    /// Its number in the run, from 0.
    pub seq: u64,
    /// The event, as `/schemas/agent_event` describes it.
    pub event: Value,
}

/// A message of a client over a WebSocket.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum SocketCommand {
    /// Follow a run from after a sequence number. On `/runs/{run_id}/ws` the run is that of the path.
    Follow {
        /// The run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run_id: Option<Uuid>,
        /// Only events after this number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after_seq: Option<u64>,
    },
    /// Cancel a run.
    Cancel {
        /// The run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run_id: Option<Uuid>,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Answer an approval.
    Answer {
        /// The approval.
        approval_id: Uuid,
        /// Whether it is allowed.
        approve: bool,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// A message of the server over a WebSocket.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SocketMessage {
    /// An event of a run.
    Event {
        /// The run.
        run_id: Uuid,
        /// The number of the event.
        seq: u64,
        /// The event.
        event: Value,
    },
    /// A run has ended; nothing of it follows.
    End {
        /// The run.
        run_id: Uuid,
        /// Its final state.
        state: RunStateView,
    },
    /// A command was carried out.
    Done {
        /// The command: `follow`, `cancel` or `answer`.
        command: String,
        /// The approval with its answer, where one was answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approval: Option<Box<ApprovalView>>,
    },
    /// A message was not understood, or a command was refused.
    Error {
        /// The error, as HTTP answers have it.
        error: abp_error::ErrorDetail,
    },
}
