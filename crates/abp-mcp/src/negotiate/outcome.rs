//! What came out of a negotiation for each flag.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Serialize, Serializer};

use crate::capabilities::{ClientFlag, ServerFlag};
use crate::version::ProtocolVersion;

/// A gap that this end can fill by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Emulation {
    /// Sampling by a model behind this end.
    Sampling,
    /// Roots that are configured, or the workspace of the run.
    Roots,
    /// Forms filled in with prepared answers, or declined.
    Elicitation,
    /// Changes of lists found by listing again.
    ListChanged,
    /// Changes of resources found by reading again.
    Subscribe,
}

/// A flag of either side, or an extension.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnyFlag {
    /// Of servers.
    Server(ServerFlag),
    /// Of clients.
    Client(ClientFlag),
    /// Of both.
    Extension(String),
}

/// How a flag can be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "level", rename_all = "snake_case")]
pub enum Standing {
    /// Both ends have it.
    Native,
    /// This end fills it in.
    Emulated {
        /// How.
        by: Emulation,
        /// Within which limits, in words.
        limits: String,
    },
    /// It cannot be had.
    Unsupported {
        /// Why.
        reason: Reason,
    },
}

/// Why a flag cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Nobody declared it.
    NobodyDeclares,
    /// The client's version does not have it.
    ClientVersion,
    /// No server's version has it.
    ServerVersions,
    /// This end cannot pass it on.
    NotRouted,
    /// Only the client declared the extension.
    NoServer,
    /// Only servers declared the extension.
    NotDeclaredByClient,
    /// Several servers have the extension, not all with the same settings.
    SettingsDiffer,
}

/// Where the standing of a flag comes from: each server is in one of three groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Provenance {
    /// The client's version.
    pub client_version: ProtocolVersion,
    /// Whether the client declared it, where clients do.
    pub by_client: Option<bool>,
    /// The servers that have it, or that are told of it, with their versions.
    pub native: BTreeMap<String, ProtocolVersion>,
    /// The servers for which this end fills it in.
    pub emulated: BTreeMap<String, ProtocolVersion>,
    /// The servers without it.
    pub without: BTreeMap<String, ProtocolVersion>,
}

/// The outcome for one flag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlagOutcome {
    /// The flag.
    pub flag: AnyFlag,
    /// How it can be had.
    #[serde(flatten)]
    pub standing: Standing,
    /// Where that comes from.
    pub provenance: Provenance,
}

impl FlagOutcome {
    /// Whether the flag can be had in one way or another.
    #[must_use]
    pub fn is_had(&self) -> bool {
        matches!(self.standing, Standing::Native | Standing::Emulated { .. })
    }

    pub(super) fn extension(&self) -> Option<&str> {
        match &self.flag {
            AnyFlag::Extension(id) => Some(id),
            AnyFlag::Server(_) | AnyFlag::Client(_) => None,
        }
    }
}

impl Emulation {
    pub(super) const fn of_server(flag: ServerFlag) -> Option<Self> {
        match flag {
            ServerFlag::PromptsListChanged
            | ServerFlag::ResourcesListChanged
            | ServerFlag::ToolsListChanged => Some(Self::ListChanged),
            ServerFlag::ResourcesSubscribe => Some(Self::Subscribe),
            _ => None,
        }
    }

    pub(super) const fn of_client(flag: ClientFlag) -> Option<Self> {
        match flag {
            ClientFlag::Sampling => Some(Self::Sampling),
            ClientFlag::Roots => Some(Self::Roots),
            ClientFlag::Elicitation | ClientFlag::ElicitationForm => Some(Self::Elicitation),
            _ => None,
        }
    }

    pub(crate) const ALL: [Self; 5] = [
        Self::Sampling,
        Self::Roots,
        Self::Elicitation,
        Self::ListChanged,
        Self::Subscribe,
    ];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sampling => "sampling",
            Self::Roots => "roots",
            Self::Elicitation => "elicitation",
            Self::ListChanged => "list_changed",
            Self::Subscribe => "subscribe",
        }
    }

    /// How it is done, in words.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Sampling => "sampled by a model of the backplane",
            Self::Roots => "configured directories or the run's workspace",
            Self::Elicitation => "prepared answers, or declined",
            Self::ListChanged => "found by listing again",
            Self::Subscribe => "found by reading again",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NobodyDeclares => "nobody declares it",
            Self::ClientVersion => "the client's version does not have it",
            Self::ServerVersions => "no server's version has it",
            Self::NotRouted => "it is not passed on",
            Self::NoServer => "only the client declares it",
            Self::NotDeclaredByClient => "only servers declare it",
            Self::SettingsDiffer => "servers have it with different settings",
        })
    }
}

impl fmt::Display for AnyFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(flag) => write!(f, "server.{flag}"),
            Self::Client(flag) => write!(f, "client.{flag}"),
            Self::Extension(id) => write!(f, "extensions.{id}"),
        }
    }
}

impl Serialize for Emulation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Serialize for AnyFlag {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
