//! The envelope a client asks in.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::ClientCapabilities;
use crate::Timestamp;

/// A request, with its place among the requests it belongs to.
///
/// A request that names neither root nor parent is the root of what follows; one that names a
/// parent must name the root as well. A value read from JSON keeps these rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RequestFields")]
pub struct AgentRequest {
    /// This request; made up when omitted.
    pub request_id: Uuid,
    /// The session it belongs to.
    pub session_id: Uuid,
    /// The request that everything began with.
    pub root_request_id: Uuid,
    /// The request that caused this one.
    pub parent_request_id: Option<Uuid>,
    /// When it was made; `null` where the client does not say.
    pub timestamp: Option<Timestamp>,
    /// What is asked.
    pub payload: Map<String, Value>,
    /// What the client can render; `null` is a standard client, which takes everything.
    pub capabilities: Option<ClientCapabilities>,
    /// Whatever else the client attached.
    pub metadata: Map<String, Value>,
}

impl AgentRequest {
    /// A request that is the root of what follows.
    #[must_use]
    pub fn new(request_id: Uuid, session_id: Uuid, payload: Map<String, Value>) -> Self {
        Self {
            request_id,
            session_id,
            root_request_id: request_id,
            parent_request_id: None,
            timestamp: None,
            payload,
            capabilities: None,
            metadata: Map::new(),
        }
    }
}

/// The place of a request among the requests it belongs to, and what the client attached to it.
///
/// A work order that a request became keeps it, and so does the receipt: the runs of one session, or
/// of one chain of requests, can be found again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequestLineage {
    /// The request that the order was made from.
    pub request_id: Uuid,
    /// The session it belongs to.
    pub session_id: Uuid,
    /// The request that everything began with.
    pub root_request_id: Uuid,
    /// The request that caused this one.
    #[serde(default)]
    pub parent_request_id: Option<Uuid>,
    /// When the client made it, by the client's clock.
    #[serde(default)]
    pub timestamp: Option<Timestamp>,
    /// Whatever else the client attached.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
}

impl From<&AgentRequest> for RequestLineage {
    fn from(request: &AgentRequest) -> Self {
        Self {
            request_id: request.request_id,
            session_id: request.session_id,
            root_request_id: request.root_request_id,
            parent_request_id: request.parent_request_id,
            timestamp: request.timestamp,
            metadata: request.metadata.clone(),
        }
    }
}

/// A request as it is on the wire, before its ids are checked against each other.
#[derive(Deserialize)]
struct RequestFields {
    #[serde(default = "Uuid::new_v4")]
    request_id: Uuid,
    session_id: Uuid,
    #[serde(default)]
    root_request_id: Option<Uuid>,
    #[serde(default)]
    parent_request_id: Option<Uuid>,
    #[serde(default)]
    timestamp: Option<Timestamp>,
    payload: Map<String, Value>,
    #[serde(default)]
    capabilities: Option<ClientCapabilities>,
    #[serde(default)]
    metadata: Map<String, Value>,
}

impl TryFrom<RequestFields> for AgentRequest {
    type Error = &'static str;

    fn try_from(fields: RequestFields) -> Result<Self, Self::Error> {
        let root_request_id = match (fields.root_request_id, fields.parent_request_id) {
            (Some(root), _) => root,
            (None, None) => fields.request_id,
            (None, Some(_)) => return Err("parent_request_id needs a root_request_id"),
        };
        Ok(Self {
            request_id: fields.request_id,
            session_id: fields.session_id,
            root_request_id,
            parent_request_id: fields.parent_request_id,
            timestamp: fields.timestamp,
            payload: fields.payload,
            capabilities: fields.capabilities,
            metadata: fields.metadata,
        })
    }
}
