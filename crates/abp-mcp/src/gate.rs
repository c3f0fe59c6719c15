//! The gate: what may be sent on a connection, and what of a peer's messages is answered.
//!
//! Both directions ask the same table ([`Method::need`]). Outwards the gate is strict about the payload
//! too; inwards it lets pass what the protocol tells a receiver to ignore.

use std::collections::BTreeSet;

use abp_json::{Kind, View};

use crate::capabilities::{
    CapabilityFlag, ClientCapabilities, ClientFlag, ServerCapabilities, ServerFlag, TASKS_EXTENSION,
};
use crate::meta::{self, LoggingLevel};
use crate::method::{Method, Need, Side};
use crate::refusal::{RpcRefusal, shorten};
use crate::subscription::SubscriptionFilter;
use crate::version::{Era, ProtocolVersion};

/// What two sides declared, in the version they speak.
#[derive(Clone, Debug)]
pub struct Gate {
    version: ProtocolVersion,
    server: BTreeSet<ServerFlag>,
    client: BTreeSet<ClientFlag>,
    server_extensions: BTreeSet<String>,
    client_extensions: BTreeSet<String>,
}

/// What a notification of a server is sent for. Up to 2025-11-25 it does not matter.
#[derive(Clone, Copy, Debug)]
pub enum Occasion<'a> {
    /// Nothing that the client asked for.
    Unasked,
    /// A request that is being served.
    During {
        /// The log messages its client wants.
        log_level: Option<LoggingLevel>,
    },
    /// A subscription.
    Subscription(&'a SubscriptionFilter),
}

/// Why a message is not let through.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Closed {
    /// The version has no such message from this side.
    #[error("no {sender} sends {method} in {version}")]
    NotInVersion {
        /// The message.
        method: Method,
        /// Who would send it.
        sender: Side,
        /// The version that is spoken.
        version: ProtocolVersion,
    },
    /// Its method needs what somebody did not declare.
    #[error("{method} needs {need}, which the {by} did not declare")]
    Undeclared {
        /// The message.
        method: Method,
        /// What it needs.
        need: Need,
        /// Who did not declare it.
        by: Side,
    },
    /// Its payload needs what somebody did not declare.
    #[error("this {method} needs {need}, which is not declared")]
    Payload {
        /// The message.
        method: Method,
        /// What it needs.
        need: Need,
    },
    /// Its payload says something that no version knows.
    #[error("{method}: {what}")]
    Unreadable {
        /// The message.
        method: Method,
        /// What it says.
        what: String,
    },
    /// The client did not ask to be told.
    #[error("nobody asked for {method}")]
    Unasked {
        /// The message.
        method: Method,
    },
    /// A result that asks for input answers a request that cannot give any.
    #[error("{method} may not be answered with a request for input")]
    NoInput {
        /// The request it answers.
        method: Method,
    },
    /// The connection is not open, or not any more.
    #[error("the connection is not open")]
    NotOpen,
    /// Nobody waits for the answer any more.
    #[error("nobody waits for the answer")]
    NobodyWaits,
    /// What is to be sent is no JSON object.
    #[error("what is to be sent is no JSON object")]
    NotAnObject,
}

impl Gate {
    /// The gate between two sides.
    #[must_use]
    pub fn new(
        version: ProtocolVersion,
        client: &ClientCapabilities,
        server: &ServerCapabilities,
    ) -> Self {
        Self {
            version,
            server: server.flags_in(version),
            client: client.flags_in(version),
            server_extensions: server.extensions().map(str::to_owned).collect(),
            client_extensions: client.extensions().map(str::to_owned).collect(),
        }
    }

    /// Whether both sides have an extension.
    #[must_use]
    pub fn has_extension(&self, id: &str) -> bool {
        self.server_extensions.contains(id) && self.client_extensions.contains(id)
    }

    /// Whether the server declared a flag that the version has.
    #[must_use]
    pub fn server_has(&self, flag: ServerFlag) -> bool {
        self.server.contains(&flag)
    }

    /// Says whether one side may send a request.
    ///
    /// # Errors
    /// Names what keeps it from being sent.
    pub fn request(
        &self,
        sender: Side,
        method: Method,
        params: Option<View<'_>>,
    ) -> Result<(), Closed> {
        self.inbound(sender, method, params)?;
        let mut needs = self.options(method, params).into_iter().flatten();
        match needs.find(|need| !self.is_met(*need)) {
            Some(need) => Err(Closed::Payload { method, need }),
            None => Ok(()),
        }
    }

    /// Says whether one side may send a notification.
    ///
    /// # Errors
    /// Names what keeps it from being sent.
    pub fn notification(
        &self,
        sender: Side,
        method: Method,
        params: Option<View<'_>>,
        occasion: Occasion<'_>,
    ) -> Result<(), Closed> {
        self.inbound(sender, method, params)?;
        let is_asked = match (self.version.era(), sender, occasion) {
            (Era::Legacy, ..) | (Era::Modern, Side::Client, _) => true,
            (Era::Modern, Side::Server, Occasion::Unasked) => false,
            (Era::Modern, Side::Server, Occasion::During { log_level }) => {
                is_asked_for_during(method, params, log_level)
            }
            (Era::Modern, Side::Server, Occasion::Subscription(filter)) => {
                filter.tells(method, params)
            }
        };
        if is_asked {
            return Ok(());
        }
        Err(Closed::Unasked { method })
    }

    /// Says whether a message of a peer is one it may send.
    ///
    /// # Errors
    /// Names what it lacks; [`Closed::refusal`] is the answer.
    pub fn inbound(
        &self,
        sender: Side,
        method: Method,
        params: Option<View<'_>>,
    ) -> Result<(), Closed> {
        let version = self.version;
        let need = method.need(sender, version).ok_or(Closed::NotInVersion {
            method,
            sender,
            version,
        })?;
        if let Some(by) = self.lacking(need) {
            return Err(Closed::Undeclared { method, need, by });
        }
        self.payload(method, params)
    }

    /// Says whether a server may answer a request with a result.
    ///
    /// # Errors
    /// Names what keeps it from being sent.
    pub fn result(&self, answered: Method, result: View<'_>) -> Result<(), Closed> {
        let unreadable = |what: String| {
            let method = answered;
            Err(Closed::Unreadable { method, what })
        };
        let result_type = meta::result_type(result);
        match (self.version.era(), result_type.as_deref()) {
            (_, Some("complete")) => Ok(()),
            (Era::Modern, Some("input_required")) if answered.may_require_input() => {
                self.input_required(answered, result)
            }
            (_, Some("input_required")) => Err(Closed::NoInput { method: answered }),
            (Era::Modern, Some("task")) if answered == Method::ToolsCall => {
                let need = Need::Extension(TASKS_EXTENSION);
                let method = answered;
                let lacking = self.lacking(need);
                lacking.map_or(Ok(()), |by| Err(Closed::Undeclared { method, need, by }))
            }
            // Up to 2025-11-25 the member means nothing; only what it means since is not let through.
            (Era::Legacy, other) if other != Some("task") => Ok(()),
            (_, Some(other)) => unreadable(format!("resultType {:?} is not known", shorten(other))),
            (_, None) => unreadable("resultType is not a string".to_owned()),
        }
    }

    fn input_required(&self, answered: Method, result: View<'_>) -> Result<(), Closed> {
        let unreadable = |what: &str| Closed::Unreadable {
            method: answered,
            what: what.to_owned(),
        };
        let Some(requests) = result.get("inputRequests") else {
            return match result.get("requestState") {
                Some(_) => Ok(()),
                None => Err(unreadable("neither inputRequests nor requestState")),
            };
        };
        if requests.kind() != Kind::Object {
            return Err(unreadable("inputRequests is not an object"));
        }
        for (_, request) in requests.entries() {
            let method = request.get("method").and_then(View::as_str);
            let method = method.and_then(|method| Method::parse(&method));
            let (method, flag) = match method {
                Some(method @ Method::CreateMessage) => (method, ClientFlag::Sampling),
                Some(method @ Method::Elicit) => (method, ClientFlag::Elicitation),
                Some(method @ Method::RootsList) => (method, ClientFlag::Roots),
                _ => return Err(unreadable("inputRequests has what is no request for input")),
            };
            let need = Need::Client(flag);
            if let Some(by) = self.lacking(need) {
                return Err(Closed::Undeclared { method, need, by });
            }
            self.payload(method, request.get("params"))?;
        }
        Ok(())
    }

    /// What the payload of a request cannot do without.
    fn payload(&self, method: Method, params: Option<View<'_>>) -> Result<(), Closed> {
        let flag = match method {
            Method::Elicit => match member(params, "mode").map(View::as_str) {
                None => ClientFlag::ElicitationForm,
                Some(Some(mode)) if mode == "form" => ClientFlag::ElicitationForm,
                Some(Some(mode)) if mode == "url" => ClientFlag::ElicitationUrl,
                Some(_) => {
                    let what = "mode is neither form nor url".to_owned();
                    return Err(Closed::Unreadable { method, what });
                }
            },
            Method::CreateMessage
                if member(params, "tools")
                    .or(member(params, "toolChoice"))
                    .is_some() =>
            {
                ClientFlag::SamplingTools
            }
            _ => return Ok(()),
        };
        let need = Need::Client(flag);
        if self.is_met(need) {
            return Ok(());
        }
        Err(Closed::Payload { method, need })
    }

    /// What of the payload a receiver would ignore if it is not declared.
    fn options(&self, method: Method, params: Option<View<'_>>) -> [Option<Need>; 2] {
        let task = match method {
            Method::ToolsCall => Some(Need::Server(ServerFlag::TasksToolsCall)),
            Method::CreateMessage => Some(Need::Client(ClientFlag::TasksSampling)),
            Method::Elicit => Some(Need::Client(ClientFlag::TasksElicitation)),
            _ => None,
        };
        let context = ClientFlag::SamplingContext;
        let includes = member(params, "includeContext").and_then(View::as_str);
        let includes = includes.is_some_and(|includes| includes != "none");
        let has_flag = context.span().contains(self.version);
        [
            task.filter(|_| member(params, "task").is_some()),
            (method == Method::CreateMessage && includes && has_flag)
                .then_some(Need::Client(context)),
        ]
    }

    fn is_met(&self, need: Need) -> bool {
        self.lacking(need).is_none()
    }

    /// Who did not declare something.
    fn lacking(&self, need: Need) -> Option<Side> {
        match need {
            Need::Nothing => None,
            Need::Server(flag) => (!self.server.contains(&flag)).then_some(Side::Server),
            Need::Client(flag) => (!self.client.contains(&flag)).then_some(Side::Client),
            Need::Extension(id) if !self.server_extensions.contains(id) => Some(Side::Server),
            Need::Extension(id) => (!self.client_extensions.contains(id)).then_some(Side::Client),
        }
    }
}

impl Closed {
    /// How a message of a peer is refused that is not let through.
    #[must_use]
    pub fn refusal(&self, sender: Side) -> RpcRefusal {
        match self {
            Self::Undeclared {
                method,
                need,
                by: Side::Server,
            } => RpcRefusal::NotAdvertised {
                method: *method,
                need: *need,
            },
            // A server that asks a client for what the client never declared.
            Self::Undeclared {
                method,
                by: Side::Client,
                ..
            } if sender == Side::Server => RpcRefusal::unknown_method(method.as_str()),
            Self::Undeclared {
                need,
                by: Side::Client,
                ..
            } => RpcRefusal::MissingClientCapability {
                required: required(*need),
            },
            // A request of a client that cannot be served without asking the client.
            Self::Payload {
                need: need @ Need::Client(_),
                ..
            } if sender == Side::Client => RpcRefusal::MissingClientCapability {
                required: required(*need),
            },
            Self::NotInVersion { method, .. } => RpcRefusal::unknown_method(method.as_str()),
            Self::Payload { .. } | Self::Unreadable { .. } => {
                RpcRefusal::invalid_params(self.to_string())
            }
            Self::Unasked { .. }
            | Self::NoInput { .. }
            | Self::NotOpen
            | Self::NobodyWaits
            | Self::NotAnObject => RpcRefusal::Internal {
                what: self.to_string(),
            },
        }
    }
}

/// What a client has to declare for a need to be met.
fn required(need: Need) -> ClientCapabilities {
    match need {
        Need::Client(flag) => ClientCapabilities::of([flag]),
        Need::Extension(id) => {
            ClientCapabilities::none().with_extension(id, &ServerCapabilities::none())
        }
        Need::Nothing | Need::Server(_) => ClientCapabilities::none(),
    }
}

fn is_asked_for_during(
    method: Method,
    params: Option<View<'_>>,
    log_level: Option<LoggingLevel>,
) -> bool {
    match method {
        Method::Log => {
            let level = member(params, "level").and_then(LoggingLevel::read);
            level >= log_level && log_level.is_some()
        }
        _ => method == Method::Progress,
    }
}

/// A member that is there and not `null`.
fn member<'t>(params: Option<View<'t>>, key: &str) -> Option<View<'t>> {
    params?.get(key).filter(|member| !member.is_null())
}
