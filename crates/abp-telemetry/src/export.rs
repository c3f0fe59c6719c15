//! Writing a summary for somebody else.

use crate::MetricsSummary;

/// A form in which a summary is told. What it returns goes to whoever asked, as it is.
pub trait TelemetryExporter {
    /// The media type of the text.
    fn content_type(&self) -> &'static str;

    /// Writes a summary.
    fn export(&self, summary: &MetricsSummary) -> String;
}

/// One JSON object, with durations in seconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct JsonExporter;

impl TelemetryExporter for JsonExporter {
    fn content_type(&self) -> &'static str {
        "application/json"
    }

    fn export(&self, summary: &MetricsSummary) -> String {
        // The summary holds nothing that JSON cannot say.
        serde_json::to_string(summary).unwrap_or_default()
    }
}
