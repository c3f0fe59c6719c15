//! The Model Context Protocol: a core without any I/O, serving clients, being a client, and a gateway
//! between many servers and one client.
//!
//! The protocol has two eras. Up to 2025-11-25 a connection begins with `initialize`, by which both
//! ends say once what they can do. Since 2026-07-28 every request says it again and nothing is
//! remembered. Everything here speaks both.
//!
//! - [`ServerLifecycle`] and [`ClientLifecycle`] are the two ends of a connection. They take what came
//!   and the time, and say what is to be done ([`Next`]). What is to be sent goes through them too.
//! - [`Gate`] decides what may be sent, by one table of [methods](Method) and what must be declared for
//!   each. What is not declared does not leave, in neither direction.
//! - [`RpcRefusal`] is the exact answer to what may not come.
//! - [`negotiate`] says flag by flag what a client gets from the servers behind this end.
//!
//! None of these does any I/O. On top of them:
//!
//! - A [`McpSession`] answers a client; [`serve_lines`] and [`McpHttp`] carry its messages.
//! - An [`McpUpstream`] is a connection with a server, over pipes or HTTP.
//! - A [`McpGateway`] shows many servers as one, and fills in what its [`Emulations`] allow.
//!
//! A transport reads bytes into a [`Message`] and hands it to a lifecycle:
//!
//! ```
//! use std::time::Duration;
//!
//! use abp_mcp::{
//!     Arrival, Implementation, MESSAGE_LIMITS, Next, Offer, Profile, ProtocolVersion,
//!     ServerLifecycle, StateKey, build_server_capabilities, message,
//! };
//!
//! let offer = Offer {
//!     versions: ProtocolVersion::ALL.to_vec(),
//!     capabilities: build_server_capabilities(),
//!     info: Implementation::new("example", "1.0.0"),
//!     instructions: None,
//!     profile: Profile::Strict,
//! };
//! let key = StateKey::new([7; 32]);
//! let mut server = ServerLifecycle::new(offer, key, Duration::from_secs(60));
//!
//! let line = br#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
//! let tape = message::parse(line, &MESSAGE_LIMITS).expect("this is JSON");
//! let incoming = message::read(&tape, server.batches()).expect("this is a message");
//! let message::Incoming::Single(first) = incoming else {
//!     panic!("this is one message");
//! };
//! let arrival = Arrival { principal: "", now: Duration::ZERO };
//! let Next::Refuse(refused) = server.on_message(&first, arrival) else {
//!     panic!("initialize comes first");
//! };
//! assert_eq!(
//!     refused.to_json(),
//!     r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"tools/list before initialize"}}"#
//! );
//! ```

mod capabilities;
mod digest;
mod gate;
mod gateway;
mod headers;
mod lifecycle;
pub mod message;
mod meta;
mod method;
mod negotiate;
mod param_headers;
mod refusal;
mod serve;
mod state;
mod subscription;
mod upstream;
mod version;

pub use capabilities::{
    Capabilities, CapabilityError, CapabilityFlag, ClientCapabilities, ClientFlag, Form,
    ServerCapabilities, ServerFlag, TASKS_EXTENSION, build_server_capabilities,
    build_server_capabilities_with, extract_client_capabilities, validate_capability,
    validate_feature,
};
pub use gate::{Closed, Gate, Occasion};
pub use gateway::{
    Emulations, GatewayServer, McpGateway, McpScope, PreparedAnswers, Sample, SampleMessage,
    SamplePart, SampleRequest, SampleRole, SampleStop, Sampler, SamplingRules, ServerTool,
    SubscribeRules, ToolQuestion, ToolRules, ToolTally,
};
pub use headers::{
    McpHeaders, check_headers, decode_header, encode_header, header_version, name_header,
};
pub use lifecycle::{
    Agreement, Arrival, Breach, Call, CallAnswer, ClientLifecycle, ClientOffer, ClientTimeouts,
    Next, NoResult, Offer, Profile, Recipient, Refused, ServerLifecycle, Settled,
};
pub use message::{MESSAGE_LIMITS, Message, RequestId};
pub use meta::{EMULATED, INPUT_KEY, Implementation, LoggingLevel};
pub use method::{Method, Need, Side};
pub use negotiate::{
    AnyFlag, Downstream, Drift, Emulation, FlagOutcome, Negotiation, Provenance, Reason,
    RoutedName, Routing, Standing, ToolChange, ToolPart, ToolPrints, UpstreamServer, negotiate,
    route_names,
};
pub use param_headers::{ParamFault, ParamHeaders, SaidParams};
pub use refusal::{RpcRefusal, code, code_in};
pub use serve::{
    Change, ClientHandle, ConnectionOptions, ForeignError, HttpOptions, LocalEndpoint, McpAnswer,
    McpBody, McpCaller, McpConnection, McpFuture, McpHttp, McpSession, NoAnswer, ServedCall, Watch,
    serve_lines,
};
pub use state::{Binding, StateFault, StateKey};
pub use subscription::SubscriptionFilter;
pub use upstream::{
    AnswerMark, HttpServer, McpUpstream, McpUpstreamError, Pending, ProgramServer, RunningPrograms,
    ServerAddress, UpstreamEvent,
};
pub use version::{
    Era, ProtocolVersion, UnsupportedVersion, VersionSpan, answer_initialize, choose, newest,
    validate_protocol_version,
};
