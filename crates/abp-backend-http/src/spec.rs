//! What an upstream is made from.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use abp_dialect::Dialect;
use http::{HeaderName, HeaderValue};
use secrecy::SecretString;

use crate::{KeyCommand, ProxyAddress, UpstreamAuth};

/// A vendor's API as the operator configured it.
#[derive(Clone)]
pub struct HttpUpstreamSpec {
    /// The name it is configured under.
    pub name: String,
    /// The dialects it speaks, the best first.
    pub dialects: Vec<Dialect>,
    /// Its address, as the vendor's own client takes it: with `/v1` for OpenAI, Codex and Kimi,
    /// without a version for Claude and Gemini.
    pub base_url: String,
    /// The credential, where it needs one.
    pub key: Option<SecretString>,
    /// The program that prints the credential, instead of `key`.
    pub key_command: Option<KeyCommand>,
    /// The way in which the credential is used.
    pub auth: UpstreamAuth,
    /// Headers that go along with every request, over whatever a caller sent under these names.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Parameters that every address gets, escaped, without `?`.
    pub query: Option<String>,
    /// The proxy that it is reached through.
    pub proxy: Option<ProxyAddress>,
    /// The version of its wire (`anthropic-version`) for callers that name none.
    pub wire_version: Option<String>,
    /// How long each part of an exchange may take.
    pub timeouts: Timeouts,
    /// The longest answer that is taken. A stream of events has no such end; its reader bounds it.
    pub max_answer_bytes: usize,
    /// Certificates (PEM) to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
}

impl fmt::Debug for HttpUpstreamSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address was not checked yet and may hold a password.
        f.debug_struct("HttpUpstreamSpec")
            .field("name", &self.name)
            .field("dialects", &self.dialects)
            .field("has_key", &self.key.is_some())
            .field("auth", &self.auth)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

/// How long each part of an exchange may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection stands, TLS included.
    pub connect: Duration,
    /// From there until the answer begins. Models that reason may be silent for minutes.
    pub first_byte: Duration,
    /// Between two parts of the answer, while somebody waits for the next.
    pub idle: Duration,
    /// For all of it.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(600),
            idle: Duration::from_secs(120),
            total: Duration::from_secs(3_600),
        }
    }
}
