//! What a run starts from: the order's own words, or a vendor's request that it carries.

use abp_core::ir::IrConversation;
use abp_core::{RuntimeConfig, WorkOrder};
use abp_dialect::{Dialect, DialectDetector, Signals};
use abp_json::{Limits, Tape};
use abp_translate::{map_work_order, read_request};
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
}

impl Source {
    /// The request in `config.vendor.abp.request`, in the dialect that `.dialect` names or the body
    /// shows; the order itself where there is none.
    pub(crate) fn of(order: &WorkOrder) -> Result<Self, PlanError> {
        let Some(request) = vendor_request(&order.config) else {
            return Ok(Self::Order);
        };
        let dialect = match order.config.abp_setting("dialect") {
            Some(Value::String(name)) => name
                .parse()
                .map_err(|error: abp_dialect::UnknownDialect| setting("dialect", &error))?,
            Some(other) => return Err(setting("dialect", &format!("is {other}, expected a name"))),
            None => detect(&request)?,
        };
        Ok(Self::Vendor { dialect, request })
    }

    /// The conversation the run starts with.
    pub(crate) fn conversation(&self, order: &WorkOrder) -> Result<IrConversation, PlanError> {
        match self {
            Self::Order => Ok(map_work_order(order)),
            Self::Vendor { dialect, request } => {
                read_request(request.as_bytes(), *dialect, &Limits::default())
                    .map_err(|error| setting("request", &error))
            }
        }
    }
}

/// The text of the vendor's request. A string is the text itself, byte for byte; any other JSON is
/// written compactly.
pub(crate) fn vendor_request(config: &RuntimeConfig) -> Option<String> {
    match config.abp_setting("request")? {
        Value::String(text) => Some(text.clone()),
        value => Some(value.to_string()),
    }
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
