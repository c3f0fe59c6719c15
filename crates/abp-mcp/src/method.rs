//! Every method of every version: who may send it, when, and what must be declared for it.
//!
//! The table is closed. The gate and the lifecycles ask it, in both directions; nothing else in the
//! crate decides what may be sent.

use std::fmt;

use crate::capabilities::{ClientFlag, ServerFlag, TASKS_EXTENSION};
use crate::version::{ProtocolVersion, VersionSpan};

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The end that offers tools, prompts and resources.
    Server,
    /// The end that uses them.
    Client,
}

/// What must be declared before a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing.
    Nothing,
    /// A flag of the server.
    Server(ServerFlag),
    /// A flag of the client.
    Client(ClientFlag),
    /// An extension, by both.
    Extension(&'static str),
}

/// One way in which a method may be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    sender: Side,
    span: VersionSpan,
    need: Need,
}

macro_rules! methods {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $ways:expr;)+) => {
        /// A method of the protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Method {
            $($(#[$doc])* $variant,)+
        }

        impl Method {
            /// Every method of every version.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            fn ways(self) -> &'static [Way] {
                match self { $(Self::$variant => const { &$ways },)+ }
            }
        }
    };
}

const fn client(span: VersionSpan, need: Need) -> Way {
    Way {
        sender: Side::Client,
        span,
        need,
    }
}

const fn server(span: VersionSpan, need: Need) -> Way {
    Way {
        sender: Side::Server,
        span,
        need,
    }
}

const SINCE_ELICITATION: VersionSpan = VersionSpan::legacy_since(ProtocolVersion::V2025_06_18);
const WITH_TASKS: VersionSpan = VersionSpan::only(ProtocolVersion::V2025_11_25);
const TASKS: Need = Need::Extension(TASKS_EXTENSION);

methods! {
    /// Opens a connection.
    Initialize = "initialize", [client(VersionSpan::LEGACY, Need::Nothing)];
    /// Asks for a sign of life.
    Ping = "ping", [client(VersionSpan::LEGACY, Need::Nothing), server(VersionSpan::LEGACY, Need::Nothing)];
    /// Asks what a server offers.
    Discover = "server/discover", [client(VersionSpan::MODERN, Need::Nothing)];
    /// Completes an argument.
    Complete = "completion/complete", [
        client(VersionSpan::only(ProtocolVersion::V2024_11_05), Need::Nothing),
        client(
            VersionSpan::since(ProtocolVersion::V2025_03_26),
            Need::Server(ServerFlag::Completions),
        ),
    ];
    /// Says which log messages are wanted.
    SetLevel = "logging/setLevel", [client(VersionSpan::LEGACY, Need::Server(ServerFlag::Logging))];
    /// Lists prompts.
    PromptsList = "prompts/list", [client(VersionSpan::ALL, Need::Server(ServerFlag::Prompts))];
    /// Asks for a prompt.
    PromptsGet = "prompts/get", [client(VersionSpan::ALL, Need::Server(ServerFlag::Prompts))];
    /// Lists resources.
    ResourcesList = "resources/list", [client(VersionSpan::ALL, Need::Server(ServerFlag::Resources))];
    /// Lists templates of resources.
    ResourceTemplatesList = "resources/templates/list", [
        client(VersionSpan::ALL, Need::Server(ServerFlag::Resources)),
    ];
    /// Reads a resource.
    ResourcesRead = "resources/read", [client(VersionSpan::ALL, Need::Server(ServerFlag::Resources))];
    /// Asks to be told about a resource.
    ResourcesSubscribe = "resources/subscribe", [
        client(VersionSpan::LEGACY, Need::Server(ServerFlag::ResourcesSubscribe)),
    ];
    /// Asks no longer to be told.
    ResourcesUnsubscribe = "resources/unsubscribe", [
        client(VersionSpan::LEGACY, Need::Server(ServerFlag::ResourcesSubscribe)),
    ];
    /// Lists tools.
    ToolsList = "tools/list", [client(VersionSpan::ALL, Need::Server(ServerFlag::Tools))];
    /// Calls a tool.
    ToolsCall = "tools/call", [client(VersionSpan::ALL, Need::Server(ServerFlag::Tools))];
    /// Asks to be told about changes.
    SubscriptionsListen = "subscriptions/listen", [client(VersionSpan::MODERN, Need::Nothing)];
    /// Asks how a task is.
    TasksGet = "tasks/get", [
        client(WITH_TASKS, Need::Server(ServerFlag::Tasks)),
        server(WITH_TASKS, Need::Client(ClientFlag::Tasks)),
        client(VersionSpan::MODERN, TASKS),
    ];
    /// Waits for the result of a task.
    TasksResult = "tasks/result", [
        client(WITH_TASKS, Need::Server(ServerFlag::Tasks)),
        server(WITH_TASKS, Need::Client(ClientFlag::Tasks)),
    ];
    /// Lists tasks.
    TasksList = "tasks/list", [
        client(WITH_TASKS, Need::Server(ServerFlag::TasksList)),
        server(WITH_TASKS, Need::Client(ClientFlag::TasksList)),
    ];
    /// Cancels a task.
    TasksCancel = "tasks/cancel", [
        client(WITH_TASKS, Need::Server(ServerFlag::TasksCancel)),
        server(WITH_TASKS, Need::Client(ClientFlag::TasksCancel)),
        client(VersionSpan::MODERN, TASKS),
    ];
    /// Gives a task the input it waits for.
    TasksUpdate = "tasks/update", [client(VersionSpan::MODERN, TASKS)];
    /// Samples from the client's model. Since 2026-07-28 only inside a result.
    CreateMessage = "sampling/createMessage", [
        server(VersionSpan::LEGACY, Need::Client(ClientFlag::Sampling)),
    ];
    /// Asks the client's user. Since 2026-07-28 only inside a result.
    Elicit = "elicitation/create", [
        server(SINCE_ELICITATION, Need::Client(ClientFlag::Elicitation)),
    ];
    /// Lists the client's roots. Since 2026-07-28 only inside a result.
    RootsList = "roots/list", [server(VersionSpan::LEGACY, Need::Client(ClientFlag::Roots))];
    /// Says that the client is ready.
    Initialized = "notifications/initialized", [client(VersionSpan::LEGACY, Need::Nothing)];
    /// Says that nobody waits for a request any more.
    Cancelled = "notifications/cancelled", [
        client(VersionSpan::ALL, Need::Nothing),
        server(VersionSpan::ALL, Need::Nothing),
    ];
    /// Says how far a request is.
    Progress = "notifications/progress", [
        client(VersionSpan::LEGACY, Need::Nothing),
        server(VersionSpan::ALL, Need::Nothing),
    ];
    /// A log message.
    Log = "notifications/message", [server(VersionSpan::ALL, Need::Server(ServerFlag::Logging))];
    /// The list of prompts changed.
    PromptsListChanged = "notifications/prompts/list_changed", [
        server(VersionSpan::ALL, Need::Server(ServerFlag::PromptsListChanged)),
    ];
    /// The list of resources changed.
    ResourcesListChanged = "notifications/resources/list_changed", [
        server(VersionSpan::ALL, Need::Server(ServerFlag::ResourcesListChanged)),
    ];
    /// A resource changed.
    ResourceUpdated = "notifications/resources/updated", [
        server(VersionSpan::ALL, Need::Server(ServerFlag::ResourcesSubscribe)),
    ];
    /// The list of tools changed.
    ToolsListChanged = "notifications/tools/list_changed", [
        server(VersionSpan::ALL, Need::Server(ServerFlag::ToolsListChanged)),
    ];
    /// The list of roots changed.
    RootsListChanged = "notifications/roots/list_changed", [
        client(VersionSpan::LEGACY, Need::Client(ClientFlag::RootsListChanged)),
    ];
    /// What a user was sent to an address for is done.
    ElicitationComplete = "notifications/elicitation/complete", [
        server(WITH_TASKS, Need::Client(ClientFlag::ElicitationUrl)),
    ];
    /// A task changed, in 2025-11-25.
    TaskStatus = "notifications/tasks/status", [
        client(WITH_TASKS, Need::Client(ClientFlag::Tasks)),
        server(WITH_TASKS, Need::Server(ServerFlag::Tasks)),
    ];
    /// A task changed, since 2026-07-28.
    TaskChanged = "notifications/tasks", [server(VersionSpan::MODERN, TASKS)];
    /// Says what a subscription will tell.
    SubscriptionsAcknowledged = "notifications/subscriptions/acknowledged", [
        server(VersionSpan::MODERN, Need::Nothing),
    ];
}

impl Method {
    /// The method with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|method| method.as_str() == name)
    }

    /// Whether it is a notification: nobody answers it.
    #[must_use]
    pub fn is_notification(self) -> bool {
        self.as_str().starts_with("notifications/")
    }

    /// What must be declared for one side to send it in a version; `None` where it may not at all.
    #[must_use]
    pub fn need(self, sender: Side, version: ProtocolVersion) -> Option<Need> {
        let mut ways = self.ways().iter();
        let way = ways.find(|way| way.sender == sender && way.span.contains(version))?;
        Some(way.need)
    }

    /// Whether only versions without a handshake have it.
    #[must_use]
    pub fn is_modern_only(self) -> bool {
        let mut ways = self.ways().iter();
        ways.all(|way| way.span == VersionSpan::MODERN)
    }

    /// Whether its result may ask for input, since 2026-07-28.
    #[must_use]
    pub const fn may_require_input(self) -> bool {
        matches!(
            self,
            Self::ToolsCall | Self::PromptsGet | Self::ResourcesRead
        )
    }

    /// Whether clients may keep its result for a while, since 2026-07-28.
    #[must_use]
    pub const fn may_be_kept(self) -> bool {
        self.listed_member().is_some() || matches!(self, Self::ResourcesRead)
    }

    /// The member of an empty result, for the methods that list something a server may lack.
    #[must_use]
    pub const fn listed_member(self) -> Option<&'static str> {
        match self {
            Self::PromptsList => Some("prompts"),
            Self::ResourcesList => Some("resources"),
            Self::ResourceTemplatesList => Some("resourceTemplates"),
            Self::ToolsList => Some("tools"),
            _ => None,
        }
    }
}

impl Side {
    /// The other end.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Server => Self::Client,
            Self::Client => Self::Server,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "server",
            Self::Client => "client",
        })
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Server(flag) => write!(f, "the server's {flag}"),
            Self::Client(flag) => write!(f, "the client's {flag}"),
            Self::Extension(id) => write!(f, "the extension {id}"),
        }
    }
}
