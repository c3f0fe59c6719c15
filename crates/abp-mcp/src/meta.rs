//! What travels beside the payload since 2026-07-28: version, capabilities and names in `_meta`.

use std::borrow::Cow;

use abp_json::{Kind, View, Writer};

use crate::capabilities::ClientCapabilities;
use crate::message::RequestId;
use crate::method::Method;
use crate::refusal::RpcRefusal;
use crate::subscription::SubscriptionFilter;
use crate::version::ProtocolVersion;

/// The member of parameters and results that carries all this.
pub(crate) const META: &str = "_meta";
const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(crate) const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
pub(crate) const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// What a request for input is called, in a request of a server with a handshake. Whoever has to pass it
/// on inside a result calls it the same.
pub const INPUT_KEY: &str = "dev.abp/inputKey";
/// What of an answer or a result this end filled in by itself.
pub const EMULATED: &str = "dev.abp/emulated";
pub(crate) const RESULT_TYPE: &str = "resultType";
const COMPLETE: &str = "\"complete\"";

/// A program that speaks the protocol, by the name it gives itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Implementation {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// All it says of itself, as JSON.
    json: String,
}

/// How important a log message is, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LoggingLevel {
    /// For finding faults.
    Debug,
    /// For information.
    Info,
    /// Normal, but worth noticing.
    Notice,
    /// May become an error.
    Warning,
    /// Something failed.
    Error,
    /// A part failed.
    Critical,
    /// Somebody has to act at once.
    Alert,
    /// Nothing works.
    Emergency,
}

/// What a request says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestMeta {
    pub(crate) version: String,
    pub(crate) capabilities: ClientCapabilities,
    pub(crate) client: Option<Implementation>,
    pub(crate) log_level: Option<LoggingLevel>,
}

impl Implementation {
    /// A program with a name and a version.
    #[must_use]
    pub fn new(name: &str, version: &str) -> Self {
        let mut out = Writer::default();
        out.begin_object();
        out.key("name");
        out.string(name);
        out.key("version");
        out.string(version);
        out.end_object();
        Self {
            name: name.to_owned(),
            version: version.to_owned(),
            json: out.into_text(),
        }
    }

    /// Reads what a peer says of itself; `None` without a name or a version.
    #[must_use]
    pub fn read(view: View<'_>) -> Option<Self> {
        Some(Self {
            name: view.get("name")?.as_str()?.into_owned(),
            version: view.get("version")?.as_str()?.into_owned(),
            json: view.raw().to_owned(),
        })
    }

    /// All it says of itself, as JSON.
    #[must_use]
    pub fn to_json(&self) -> &str {
        &self.json
    }
}

impl LoggingLevel {
    /// Every level, least important first.
    pub const ALL: [Self; 8] = [
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Alert,
        Self::Emergency,
    ];

    /// The level as it is written in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }

    /// Reads a level from a part of a message.
    #[must_use]
    pub fn read(view: View<'_>) -> Option<Self> {
        let text = view.as_str()?;
        Self::ALL.into_iter().find(|one| one.as_str() == text)
    }
}

impl RequestMeta {
    /// Whether a request says anything that only modern requests say.
    pub(crate) fn is_in(params: Option<View<'_>>) -> bool {
        let meta = params.and_then(|params| params.get(META));
        meta.is_some_and(|meta| {
            let version = meta.get(PROTOCOL_VERSION);
            version.or(meta.get(CLIENT_CAPABILITIES)).is_some()
        })
    }

    /// Reads what a modern request must say.
    pub(crate) fn read(params: Option<View<'_>>) -> Result<Self, RpcRefusal> {
        let meta = params.and_then(|params| params.get(META));
        let meta = meta.filter(|meta| meta.kind() == Kind::Object);
        let member = |key| meta.and_then(|meta| meta.get(key));
        let missing = |key| RpcRefusal::MissingMeta { key };
        let log_level = member(LOG_LEVEL).map(|level| {
            LoggingLevel::read(level)
                .ok_or_else(|| RpcRefusal::invalid_params(format!("{LOG_LEVEL} is no log level")))
        });
        Ok(Self {
            version: protocol_version(params)
                .ok_or_else(|| missing(PROTOCOL_VERSION))?
                .into_owned(),
            capabilities: member(CLIENT_CAPABILITIES)
                .and_then(ClientCapabilities::read)
                .ok_or_else(|| missing(CLIENT_CAPABILITIES))?,
            client: member(CLIENT_INFO).and_then(Implementation::read),
            log_level: log_level.transpose()?,
        })
    }
}

/// The version a modern request says it is in.
pub(crate) fn protocol_version<'t>(params: Option<View<'t>>) -> Option<Cow<'t, str>> {
    params?.get(META)?.get(PROTOCOL_VERSION)?.as_str()
}

/// The parameters of a modern request of ours: what is given, with what every request says.
pub(crate) fn stamp_params(
    params: Option<View<'_>>,
    version: ProtocolVersion,
    capabilities: &ClientCapabilities,
    client: &Implementation,
) -> String {
    let version = format!("\"{version}\"");
    let stamps = [
        (PROTOCOL_VERSION, version.as_str()),
        (CLIENT_CAPABILITIES, &capabilities.to_json()),
        (CLIENT_INFO, client.to_json()),
    ];
    stamped(params, &[], &stamps)
}

/// A modern result: what is given, with its type, who gives it, and the subscription it ends.
pub(crate) fn stamp_result(
    answered: Method,
    result: View<'_>,
    server: &Implementation,
    subscription: Option<&RequestId>,
) -> String {
    // What is kept how long is said for everything that may be kept; here, not at all.
    let mut members = vec![(RESULT_TYPE, COMPLETE)];
    let is_complete = result_type(result).as_deref() == Some("complete");
    if answered.may_be_kept() && is_complete {
        members.extend([("ttlMs", "0"), ("cacheScope", "\"private\"")]);
    }
    members.retain(|(key, _)| result.get(key).is_none());
    let id = subscription.map(RequestId::to_json);
    let mut stamps = vec![(SERVER_INFO, server.to_json())];
    stamps.extend(id.as_deref().map(|id| (SUBSCRIPTION_ID, id)));
    stamped(Some(result), &members, &stamps)
}

/// The stamps of a modern result of our own, as its last members.
pub(crate) fn write_result_stamps(out: &mut Writer, server: &Implementation) {
    out.key(RESULT_TYPE);
    out.raw(COMPLETE);
    out.key(META);
    out.begin_object();
    out.key(SERVER_INFO);
    out.raw(server.to_json());
    out.end_object();
}

/// The parameters of a notification, with the subscription it is told on.
pub(crate) fn tag_subscription(params: Option<View<'_>>, id: &RequestId) -> String {
    stamped(params, &[], &[(SUBSCRIPTION_ID, &id.to_json())])
}

/// The parameters that say what a subscription tells.
pub(crate) fn acknowledgement(filter: &SubscriptionFilter, id: &RequestId) -> String {
    let notifications = filter.to_json();
    let members = [("notifications", notifications.as_str())];
    stamped(None, &members, &[(SUBSCRIPTION_ID, &id.to_json())])
}

/// Who a modern result says it comes from.
pub(crate) fn server_info(result: View<'_>) -> Option<Implementation> {
    Implementation::read(result.get(META)?.get(SERVER_INFO)?)
}

/// The type of a modern result; `None` if it is not a string.
pub(crate) fn result_type(result: View<'_>) -> Option<String> {
    match result.get(RESULT_TYPE) {
        Some(result_type) => Some(result_type.as_str()?.into_owned()),
        None => Some("complete".to_owned()),
    }
}

fn stamped(object: Option<View<'_>>, members: &[(&str, &str)], stamps: &[(&str, &str)]) -> String {
    let mut out = Writer::default();
    out.begin_object();
    for (key, json) in members {
        out.key(key);
        out.raw(json);
    }
    copy(&mut out, object, &[META]);
    out.key(META);
    out.begin_object();
    let meta = object.and_then(|object| object.get(META));
    let replaced: Vec<_> = stamps.iter().map(|(key, _)| *key).collect();
    copy(&mut out, meta, &replaced);
    for (key, json) in stamps {
        out.key(key);
        out.raw(json);
    }
    out.end_object();
    out.end_object();
    out.into_text()
}

/// Copies the members of an object but some, byte for byte.
pub(crate) fn copy(out: &mut Writer, object: Option<View<'_>>, but: &[&str]) {
    for (key, value) in object.into_iter().flat_map(View::entries) {
        let is_left_out = key.as_str().is_some_and(|key| but.contains(&&*key));
        if !is_left_out {
            out.raw(&format!("{}:{}", key.raw(), value.raw()));
        }
    }
}
