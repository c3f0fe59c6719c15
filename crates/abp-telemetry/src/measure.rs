//! What is counted.

use std::time::Duration;

use abp_core::{ExecutionMode, MicroUsd, Outcome, Receipt, UsageNormalized};
use serde::{Serialize, Serializer};

/// A run of the agent plane, as it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunMetrics<'m> {
    /// The backend.
    pub backend: &'m str,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub duration: Duration,
    /// How many events there were.
    pub events: u64,
    /// The tokens it used.
    pub tokens: TokenCounts,
    /// What it cost.
    pub cost: MicroUsd,
}

impl<'m> From<&'m Receipt> for RunMetrics<'m> {
    fn from(receipt: &'m Receipt) -> Self {
        let digest = receipt.trace_digest.as_ref();
        let cost = receipt.usage.estimated_cost_usd;
        Self {
            backend: &receipt.backend.id,
            outcome: receipt.outcome,
            duration: Duration::from_millis(receipt.meta.duration_ms),
            events: digest.map_or(receipt.trace.len() as u64, |digest| digest.count),
            tokens: TokenCounts::from(&receipt.usage),
            cost: cost.and_then(MicroUsd::from_dollars).unwrap_or_default(),
        }
    }
}

/// An exchange of the gateway with a model's API, as it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeMetrics<'m> {
    /// The kind of route it came by.
    pub route: RouteFamily,
    /// The upstream that was asked last.
    pub upstream: &'m str,
    /// The model as the caller named it.
    pub model: &'m str,
    /// Whether the request was carried as it was or translated.
    pub mode: ExecutionMode,
    /// What the caller got.
    pub status: StatusClass,
    /// How long it took.
    pub duration: Duration,
    /// How long it took until the answer began.
    pub first_byte: Option<Duration>,
    /// The tokens it used.
    pub tokens: TokenCounts,
    /// What it cost.
    pub cost: MicroUsd,
    /// The pieces of a stream.
    pub chunks: u64,
    /// How often it was sent again.
    pub retries: u64,
}

/// Tokens by kind; what nobody knows counts as none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TokenCounts {
    /// Tokens read.
    pub input: u64,
    /// Tokens written.
    pub output: u64,
    /// Tokens read from a cache.
    pub cache_read: u64,
    /// Tokens written to a cache.
    pub cache_write: u64,
}

impl From<&UsageNormalized> for TokenCounts {
    fn from(usage: &UsageNormalized) -> Self {
        Self {
            input: usage.input_tokens.unwrap_or(0),
            output: usage.output_tokens.unwrap_or(0),
            cache_read: usage.cache_read_tokens.unwrap_or(0),
            cache_write: usage.cache_write_tokens.unwrap_or(0),
        }
    }
}

/// A closed set of label values, each with its place in a table.
macro_rules! labels {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$about])* $variant,)+
        }

        impl $name {
            /// Every one of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Its name as a label.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
    };
}

labels! {
    /// A kind of route.
    RouteFamily {
        /// Chat completions.
        Chat = "chat",
        /// Responses.
        Responses = "responses",
        /// Messages.
        Messages = "messages",
        /// Generate content.
        GenerateContent = "generate_content",
        /// Anything else: counts of tokens, kept answers, lists of models.
        Other = "other",
    }
}

labels! {
    /// What a caller got.
    StatusClass {
        /// 2xx.
        Success = "2xx",
        /// 3xx.
        Redirect = "3xx",
        /// 4xx.
        ClientError = "4xx",
        /// 5xx.
        ServerError = "5xx",
        /// A stream that began well and broke off.
        Broken = "broken",
        /// Nothing more: the caller went away.
        Cancelled = "cancelled",
    }
}

impl StatusClass {
    /// The class of an HTTP status.
    #[must_use]
    pub const fn of(status: u16) -> Self {
        match status {
            0..=299 => Self::Success,
            300..=399 => Self::Redirect,
            400..=499 => Self::ClientError,
            _ => Self::ServerError,
        }
    }
}

labels! {
    /// Whether an upstream is asked at all.
    BreakerLevel {
        /// It is.
        Closed = "closed",
        /// It is tried with one request.
        HalfOpen = "half_open",
        /// It is not.
        Open = "open",
    }
}
