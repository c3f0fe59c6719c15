//! The messages.

use abp_core::{
    AgentEvent, BackendIdentity, CapabilityManifest, ExecutionMode, Receipt, WorkOrder,
};
use abp_error::{AbpErrorDto, ErrorCode};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A message between host and sidecar. The discriminator is `t`, not `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum Envelope {
    /// From the sidecar, as its first line: who it is and what it can do.
    Hello {
        /// The contract version it speaks.
        contract_version: String,
        /// Who it is.
        backend: BackendIdentity,
        /// What it can do.
        #[serde(default)]
        capabilities: CapabilityManifest,
        /// How it takes requests; mapped when omitted.
        #[serde(default)]
        mode: ExecutionMode,
    },
    /// From the host: do this.
    Run {
        /// The run's id, repeated as `ref_id` in every answer.
        id: String,
        /// The work.
        work_order: Box<WorkOrder>,
    },
    /// From the sidecar: something happened.
    Event {
        /// The run.
        ref_id: String,
        /// What happened.
        event: AgentEvent,
    },
    /// From the sidecar: the work is done.
    Final {
        /// The run.
        ref_id: String,
        /// The sidecar's own record; the host treats it as a claim.
        receipt: Box<Receipt>,
    },
    /// From the sidecar: it cannot go on.
    Fatal {
        /// The run, where there is one.
        #[serde(default)]
        ref_id: Option<String>,
        /// What happened, with its code.
        #[serde(flatten)]
        error: FatalError,
    },
}

impl Envelope {
    pub(crate) const KINDS: &'static [&'static str] = &["hello", "run", "event", "final", "fatal"];
}

/// The error of a fatal message: written as `error` (text) and `error_code`.
///
/// Some sidecars send `error` as an object `{code, message, context}`; that is read as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FatalError {
    /// What happened.
    #[serde(rename = "error")]
    pub message: String,
    /// The code, where the sidecar gave one this version knows.
    #[serde(rename = "error_code", skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
}

impl<'de> Deserialize<'de> for FatalError {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Wire {
            error: Value,
            #[serde(default)]
            error_code: Option<String>,
        }
        let Wire { error, error_code } = Wire::deserialize(deserializer)?;
        let code = error_code.and_then(|code| code.parse().ok());
        match error {
            Value::String(message) => Ok(Self { message, code }),
            object => {
                let dto: AbpErrorDto =
                    serde_json::from_value(object).map_err(serde::de::Error::custom)?;
                Ok(Self {
                    message: dto.message,
                    code: code.or(Some(dto.code)),
                })
            }
        }
    }
}
