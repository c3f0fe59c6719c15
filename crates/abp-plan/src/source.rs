//! What a run starts from: the order's own words, or a vendor's request that it carries.

use abp_core::ir::IrConversation;
use abp_core::{RuntimeConfig, WorkOrder};
use abp_dialect::{DetectionReason, Dialect, DialectDetector, Signals};
use abp_json::{Limits, Tape};
use abp_translate::{ContextFile, map_work_order, map_work_order_with, read_request};
use serde_json::Value;

use crate::PlanError;

/// What a run starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// The task and its context.
    Order,
    /// A vendor's request.
    Vendor {
        /// Its dialect.
        dialect: Dialect,
        /// Its text.
        request: String,
    },
    /// A vendor's request that is passed on byte for byte and not looked into.
    Verbatim {
        /// Its dialect, where the order names it.
        dialect: Option<Dialect>,
        /// Its text.
        request: String,
    },
}

impl Source {
    /// The request in `config.vendor.abp.request`, in the dialect that `.dialect` names or the body
    /// shows; the order itself where there is none.
    pub(crate) fn of(order: &WorkOrder) -> Result<Self, PlanError> {
        let Some(request) = vendor_request(&order.config) else {
            return Ok(Self::Order);
        };
        let dialect = match named_dialect(&order.config)? {
            Some(dialect) => dialect,
            None => detect(&request)?,
        };
        Ok(Self::Vendor { dialect, request })
    }

    /// The request in `config.vendor.abp.request`, to be passed on as it is.
    pub(crate) fn verbatim(order: &WorkOrder) -> Result<Self, PlanError> {
        let request = vendor_request(&order.config).ok_or_else(|| PlanError::Setting {
            key: "request",
            problem: "passthrough needs the vendor's request here".to_owned(),
        })?;
        let dialect = named_dialect(&order.config)?;
        Ok(Self::Verbatim { dialect, request })
    }

    /// The dialect of a vendor's request, where it is known.
    pub(crate) fn dialect(&self) -> Option<Dialect> {
        match self {
            Self::Order => None,
            Self::Vendor { dialect, .. } => Some(*dialect),
            Self::Verbatim { dialect, .. } => *dialect,
        }
    }

    /// The conversation the run starts with. Files whose content is known go along with an order's own
    /// words; a vendor's request stays what it is.
    pub(crate) fn conversation(
        &self,
        order: &WorkOrder,
        files: &[ContextFile],
    ) -> Result<IrConversation, PlanError> {
        match self {
            Self::Order => Ok(map_work_order_with(order, files)),
            Self::Verbatim { .. } => Ok(map_work_order(order)),
            Self::Vendor { dialect, request } => {
                read_request(request.as_bytes(), *dialect, &Limits::default())
                    .map_err(|error| setting("request", &error))
            }
        }
    }

    /// The model that a vendor's request names in its body.
    pub(crate) fn model(&self) -> Option<String> {
        let (Self::Vendor { request, .. } | Self::Verbatim { request, .. }) = self else {
            return None;
        };
        let tape = Tape::parse_str(request, &Limits::default()).ok()?;
        let model = tape.root().get("model")?.as_str()?.into_owned();
        Some(model).filter(|model| !model.is_empty())
    }
}

/// The text of the vendor's request. A string is the text itself, byte for byte; any other JSON is
/// written compactly.
fn vendor_request(config: &RuntimeConfig) -> Option<String> {
    match config.abp_setting("request")? {
        Value::String(text) => Some(text.clone()),
        value => Some(value.to_string()),
    }
}

fn named_dialect(config: &RuntimeConfig) -> Result<Option<Dialect>, PlanError> {
    match config.abp_setting("dialect") {
        None => Ok(None),
        Some(Value::String(name)) => name
            .parse()
            .map(Some)
            .map_err(|error: abp_dialect::UnknownDialect| setting("dialect", &error)),
        Some(other) => Err(setting("dialect", &format!("is {other}, expected a name"))),
    }
}

/// The dialect of the vendor whose models have such names.
pub(crate) fn dialect_of_model(model: &str) -> Option<Dialect> {
    let mut body = String::from("{\"model\":");
    abp_json::push_string(&mut body, model);
    body.push('}');
    let tape = Tape::parse_str(&body, &Limits::default()).ok()?;
    let signals = Signals {
        body: Some(tape.root()),
        ..Signals::default()
    };
    let found = DialectDetector::detect(&signals)?;
    let by_name = |reason: &DetectionReason| matches!(reason, DetectionReason::Model(_));
    found.reasons.iter().any(by_name).then_some(found.dialect)
}

fn detect(request: &str) -> Result<Dialect, PlanError> {
    let tape =
        Tape::parse_str(request, &Limits::default()).map_err(|error| setting("request", &error))?;
    let signals = Signals {
        body: Some(tape.root()),
        ..Signals::default()
    };
    DialectDetector::detect(&signals)
        .map(|found| found.dialect)
        .ok_or_else(|| setting("request", &"is of no known dialect; name it in abp.dialect"))
}

fn setting(key: &'static str, problem: &impl ToString) -> PlanError {
    PlanError::Setting {
        key,
        problem: problem.to_string(),
    }
}
