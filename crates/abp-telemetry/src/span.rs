//! A piece of work, told to the log when it is over.

use std::time::Instant;

use serde_json::{Map, Value};

use crate::escape_for_log;

/// A piece of work with attributes. When it is dropped, however the work ended, one event of level
/// `info` and target `abp.span` tells its name, how long it took and its attributes as JSON.
#[derive(Debug)]
pub struct TelemetrySpan {
    name: &'static str,
    started: Instant,
    attributes: Map<String, Value>,
}

impl TelemetrySpan {
    /// Whether the log takes spans at all; where it does not, none need be started.
    #[must_use]
    pub fn is_heard() -> bool {
        tracing::enabled!(target: "abp.span", tracing::Level::INFO)
    }

    /// The work begins.
    #[must_use]
    pub fn start(name: &'static str) -> Self {
        Self {
            name,
            started: Instant::now(),
            attributes: Map::new(),
        }
    }

    /// Sets an attribute.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        self.attributes.insert(key.to_owned(), value.into());
    }
}

impl Drop for TelemetrySpan {
    fn drop(&mut self) {
        let attributes = Value::Object(std::mem::take(&mut self.attributes)).to_string();
        let duration_us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        tracing::info!(
            target: "abp.span",
            name = self.name,
            duration_us,
            attributes = %escape_for_log(&attributes),
        );
    }
}
