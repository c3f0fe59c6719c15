//! Refusing a message: the exact code, the words, the data and the HTTP status, in both eras.

use abp_json::Writer;

use crate::capabilities::ClientCapabilities;
use crate::method::{Method, Need};
use crate::state::StateFault;
use crate::version::{Era, ProtocolVersion};

/// How many characters of foreign text a message repeats.
const SHOWN: usize = 96;

/// Codes of JSON-RPC and of the protocol.
pub mod code {
    /// The text is not JSON.
    pub const PARSE_ERROR: i64 = -32700;
    /// The JSON is not a message, or not one that may come now.
    pub const INVALID_REQUEST: i64 = -32600;
    /// There is no such method, or nobody offers it.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters are not what the method takes.
    pub const INVALID_PARAMS: i64 = -32602;
    /// The receiver is broken.
    pub const INTERNAL_ERROR: i64 = -32603;
    /// There is no such resource; up to 2025-11-25.
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    /// The user has to go to an address first; in 2025-11-25 only.
    pub const URL_ELICITATION_REQUIRED: i64 = -32042;
    /// HTTP headers and body disagree; since 2026-07-28.
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The client did not declare what the request needs; since 2026-07-28.
    pub const MISSING_CLIENT_CAPABILITY: i64 = -32021;
    /// The version of the request is not spoken; since 2026-07-28.
    pub const UNSUPPORTED_VERSION: i64 = -32022;
}

/// Why a message is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RpcRefusal {
    /// It is not JSON.
    #[error("not JSON: {why}")]
    NotJson {
        /// Where and why.
        why: String,
    },
    /// It is larger, deeper or has more parts than is read.
    #[error("too much: {why}")]
    TooMuch {
        /// Which limit.
        why: String,
    },
    /// It is JSON, but no message.
    #[error("not a message: {what}")]
    NotAMessage {
        /// What is wrong.
        what: &'static str,
    },
    /// It is an array where a version has none.
    #[error("several messages at once are not read")]
    Batch,
    /// It came before `initialize`.
    #[error("{method} before initialize")]
    NotInitialized {
        /// Its method.
        method: String,
    },
    /// It is a second `initialize`.
    #[error("initialize came before")]
    AlreadyInitialized,
    /// Its id is that of a request that is not answered yet.
    #[error("the id is that of a request that is not answered yet")]
    IdInUse,
    /// No such method in this version, or not in this direction.
    #[error("there is no method {method:?}")]
    UnknownMethod {
        /// Its method.
        method: String,
    },
    /// The server does not offer what the method is for.
    #[error("{method} needs {need}")]
    NotAdvertised {
        /// The method.
        method: Method,
        /// What is not declared.
        need: Need,
    },
    /// The parameters are not what the method takes.
    #[error("invalid parameters: {what}")]
    InvalidParams {
        /// What is wrong with them.
        what: String,
    },
    /// A member that every request has since 2026-07-28 is missing or of the wrong kind.
    #[error("_meta has no {key}")]
    MissingMeta {
        /// The member.
        key: &'static str,
    },
    /// The state the client brings back is not one it was given for this.
    #[error("requestState {0}")]
    RequestState(#[from] StateFault),
    /// The version is not spoken.
    #[error("unsupported protocol version {requested:?}")]
    UnsupportedVersion {
        /// What was asked for.
        requested: String,
        /// What is spoken, newest first.
        supported: Vec<ProtocolVersion>,
    },
    /// The client did not declare what the request needs.
    #[error("missing required client capability")]
    MissingClientCapability {
        /// What it has to declare.
        required: ClientCapabilities,
    },
    /// HTTP headers do not say what the body says.
    #[error("header mismatch: {what}")]
    HeaderMismatch {
        /// Which, and how.
        what: String,
    },
    /// There is no such resource.
    #[error("there is no resource {uri:?}")]
    UnknownResource {
        /// Its address.
        uri: String,
    },
    /// The receiver could not do its part.
    #[error("{what}")]
    Internal {
        /// What went wrong, in words for the peer.
        what: String,
    },
}

impl RpcRefusal {
    pub(crate) fn unknown_method(method: &str) -> Self {
        Self::UnknownMethod {
            method: shorten(method),
        }
    }

    pub(crate) fn invalid_params(what: impl Into<String>) -> Self {
        Self::InvalidParams { what: what.into() }
    }

    /// The code of the error.
    #[must_use]
    pub const fn code(&self, era: Era) -> i64 {
        match self {
            Self::NotJson { .. } => code::PARSE_ERROR,
            Self::TooMuch { .. }
            | Self::NotAMessage { .. }
            | Self::Batch
            | Self::NotInitialized { .. }
            | Self::AlreadyInitialized
            | Self::IdInUse => code::INVALID_REQUEST,
            Self::UnknownMethod { .. } | Self::NotAdvertised { .. } => code::METHOD_NOT_FOUND,
            Self::InvalidParams { .. } | Self::MissingMeta { .. } | Self::RequestState(_) => {
                code::INVALID_PARAMS
            }
            Self::UnsupportedVersion { .. } => match era {
                Era::Legacy => code::INVALID_PARAMS,
                Era::Modern => code::UNSUPPORTED_VERSION,
            },
            Self::HeaderMismatch { .. } => code::HEADER_MISMATCH,
            Self::Internal { .. } => code::INTERNAL_ERROR,
            Self::MissingClientCapability { .. } => match era {
                Era::Legacy => code::METHOD_NOT_FOUND,
                Era::Modern => code::MISSING_CLIENT_CAPABILITY,
            },
            Self::UnknownResource { .. } => match era {
                Era::Legacy => code::RESOURCE_NOT_FOUND,
                Era::Modern => code::INVALID_PARAMS,
            },
        }
    }

    /// The status of an HTTP response that carries the error.
    #[must_use]
    pub const fn http_status(&self, era: Era) -> u16 {
        match self {
            Self::TooMuch { .. } => 413,
            Self::NotJson { .. }
            | Self::NotAMessage { .. }
            | Self::Batch
            | Self::NotInitialized { .. }
            | Self::AlreadyInitialized
            | Self::MissingMeta { .. }
            | Self::UnsupportedVersion { .. }
            | Self::HeaderMismatch { .. } => 400,
            Self::UnknownMethod { .. } | Self::NotAdvertised { .. } => match era {
                Era::Legacy => 200,
                Era::Modern => 404,
            },
            Self::MissingClientCapability { .. } => match era {
                Era::Legacy => 200,
                Era::Modern => 400,
            },
            Self::IdInUse
            | Self::InvalidParams { .. }
            | Self::RequestState(_)
            | Self::UnknownResource { .. }
            | Self::Internal { .. } => 200,
        }
    }

    /// The data of the error as JSON, where it has any.
    #[must_use]
    pub fn data(&self) -> Option<String> {
        let mut out = Writer::default();
        out.begin_object();
        match self {
            Self::UnsupportedVersion {
                requested,
                supported,
            } => {
                out.key("supported");
                out.begin_array();
                for version in supported {
                    out.string(version.as_str());
                }
                out.end_array();
                out.key("requested");
                out.string(requested);
            }
            Self::MissingClientCapability { required } => {
                out.key("requiredCapabilities");
                out.raw(&required.to_json());
            }
            Self::UnknownResource { uri } => {
                out.key("uri");
                out.string(uri);
            }
            _ => return None,
        }
        out.end_object();
        Some(out.into_text())
    }
}

/// The code by which an error of somebody else is told in a version.
///
/// A version without a code has another with the nearest meaning; codes that the protocol reserves
/// and does not define are never sent.
#[must_use]
pub const fn code_in(version: ProtocolVersion, code: i64) -> i64 {
    match (version.era(), code) {
        (Era::Modern, code::RESOURCE_NOT_FOUND) | (Era::Legacy, code::UNSUPPORTED_VERSION) => {
            code::INVALID_PARAMS
        }
        (Era::Legacy, code::MISSING_CLIENT_CAPABILITY) => code::METHOD_NOT_FOUND,
        (Era::Legacy, code::HEADER_MISMATCH) => code::INVALID_REQUEST,
        (Era::Legacy, code::URL_ELICITATION_REQUIRED) => match version {
            ProtocolVersion::V2025_11_25 => code,
            _ => code::INTERNAL_ERROR,
        },
        (
            Era::Modern,
            code::UNSUPPORTED_VERSION | code::MISSING_CLIENT_CAPABILITY | code::HEADER_MISMATCH,
        ) => code,
        (Era::Modern, -32099..=-32020) => code::INTERNAL_ERROR,
        (Era::Legacy | Era::Modern, _) => code,
    }
}

/// The status of an HTTP response that carries an error of somebody else.
pub(crate) const fn foreign_status(era: Era, code: i64) -> u16 {
    match (era, code) {
        (Era::Modern, code::MISSING_CLIENT_CAPABILITY) => 400,
        (Era::Legacy | Era::Modern, _) => 200,
    }
}

/// Cuts foreign text to a length that fits a message.
pub(crate) fn shorten(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}
