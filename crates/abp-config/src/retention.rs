//! How long runs leave things behind.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `abp gc`, and `abp serve` by itself, remove of runs that have ended. Receipts and the log always
/// stay. Without a setting nothing of its kind is removed. Read by `abp gc` and `abp serve`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionConfig {
    /// Events go this many days after the end of their run. Read by `abp gc` and `abp serve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 36_500))]
    pub events_days: Option<u32>,
    /// The most megabytes of events; those of the oldest runs go first. Read by `abp gc` and
    /// `abp serve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub events_mb: Option<u32>,
    /// Changes that nobody decided about expire after this many days, with their stage. Read by
    /// `abp gc` and `abp serve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 36_500))]
    pub undecided_days: Option<u32>,
    /// The most megabytes of stages; the changes that wait for the longest expire first. Read by
    /// `abp gc` and `abp serve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub stages_mb: Option<u32>,
    /// The home directories that agents left go this many days after the end of their run; its session
    /// cannot go on then. Read by `abp gc` and `abp serve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 36_500))]
    pub homes_days: Option<u32>,
    /// The most megabytes of home directories; the oldest go first. Read by `abp gc` and `abp serve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub homes_mb: Option<u32>,
    /// A limit in megabytes removes nothing that is younger than this many days. Read by `abp gc` and
    /// `abp serve`.
    #[schemars(range(max = 36_500))]
    pub keep_days: u32,
    /// The minutes between two rounds of `abp serve`. Read by `abp serve`.
    #[schemars(range(min = 1, max = 10_080))]
    pub interval_minutes: u32,
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self {
            events_days: None,
            events_mb: None,
            undecided_days: None,
            stages_mb: None,
            homes_days: None,
            homes_mb: None,
            keep_days: 7,
            interval_minutes: 60,
        }
    }
}
