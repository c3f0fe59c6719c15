//! Sending traces and metrics to a collector, as OTLP in JSON over HTTP.
//!
//! Spans are recorded into a queue that is bounded by bytes; this is the only place that takes them out. Neither
//! a run nor an exchange waits for it: a collector that is slow or gone costs spans, which are counted.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use abp_backend_http::{HttpUpstream, HttpUpstreamSpec, Timeouts, UpstreamAuth};
use abp_config::{EnvValue, TelemetryConfig};
use abp_core::Timestamp;
use abp_dialect::Dialect;
use abp_error::{AbpError, ErrorCode};
use abp_telemetry::{MetricsCollector, SpanQueue, encode_metrics, encode_spans};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::ControlPlane;
use abp_gateway::current_time;

/// The number of spans that are sent at once.
const BATCH: usize = 512;
/// The time that a request to the collector may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The time that a process that ends waits for the collector.
const FLUSH: Duration = Duration::from_millis(500);
/// The interval at which the queue is looked at for its metrics.
const LOOK: Duration = Duration::from_secs(2);
/// The longest answer of the collector that is read.
const MAX_ANSWER: usize = 1 << 20;

/// Sends spans and metrics.
#[derive(Debug)]
pub(crate) struct TelemetrySender {
    collector: HttpUpstream,
    headers: HeaderMap,
    queue: Arc<SpanQueue>,
    metrics: Arc<MetricsCollector>,
    interval: Duration,
    started_at: SystemTime,
}

impl TelemetrySender {
    /// The sender of a configuration; `None` where no endpoint is configured. Spans are recorded from now on.
    ///
    /// # Errors
    /// Fails where the endpoint or a header cannot be used.
    pub(crate) fn new(
        config: &TelemetryConfig,
        metrics: &Arc<MetricsCollector>,
    ) -> Result<Option<Self>, AbpError> {
        let Some(endpoint) = &config.endpoint else {
            return Ok(None);
        };
        let collector = HttpUpstream::new(HttpUpstreamSpec {
            name: "telemetry.endpoint".to_owned(),
            // Of no consequence: documents are posted as they are.
            dialects: vec![Dialect::OpenAi],
            base_url: endpoint.clone(),
            key: None,
            key_command: None,
            auth: UpstreamAuth::Dialect,
            headers: Vec::new(),
            query: None,
            proxy: None,
            wire_version: None,
            timeouts: Timeouts {
                connect: TIMEOUT,
                first_byte: TIMEOUT,
                idle: TIMEOUT,
                total: TIMEOUT,
            },
            max_answer_bytes: MAX_ANSWER,
            ca_file: None,
        })?;
        let queue = Arc::new(SpanQueue::new((config.max_queue_mb as usize) << 20));
        metrics.record_spans(Arc::clone(&queue));
        Ok(Some(Self {
            collector,
            headers: headers(config)?,
            queue,
            metrics: Arc::clone(metrics),
            interval: Duration::from_secs(config.interval_secs.into()),
            started_at: SystemTime::now(),
        }))
    }

    /// Sends what waits, for as long as a process that ends may take.
    pub(crate) async fn flush(&self) {
        if tokio::time::timeout(FLUSH, self.send_round())
            .await
            .is_err()
        {
            tracing::warn!(target: "abp.telemetry", "the collector does not answer; what waited is lost");
        }
    }

    /// Sends every span that waits, then the metrics.
    async fn send_round(&self) {
        loop {
            let spans = self.queue.take(BATCH);
            let count = spans.len();
            if count == 0 {
                break;
            }
            if let Err(problem) = self.post("/v1/traces", encode_spans(&spans)).await {
                self.queue.lose(count as u64);
                tracing::warn!(target: "abp.telemetry", problem, count, "spans could not be sent");
                return;
            }
        }
        let summary = self.metrics.summary();
        let metrics = encode_metrics(&summary, self.started_at, SystemTime::now());
        if let Err(problem) = self.post("/v1/metrics", metrics).await {
            tracing::warn!(target: "abp.telemetry", problem, "metrics could not be sent");
        }
    }

    async fn post(&self, path: &str, document: String) -> Result<(), String> {
        let sent = self
            .collector
            .post_json(path, &self.headers, document.into())
            .await;
        match sent {
            Ok(status) if status.is_success() => Ok(()),
            Ok(status) => Err(format!("the collector answered {status}")),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn headers(config: &TelemetryConfig) -> Result<HeaderMap, AbpError> {
    let mut headers = HeaderMap::new();
    for (name, value) in EnvValue::exposed(&config.headers) {
        let invalid = || {
            let message = format!("telemetry.headers: {name:?} cannot be sent");
            AbpError::new(ErrorCode::ConfigInvalid, message)
        };
        let header = HeaderName::try_from(&name).map_err(|_| invalid())?;
        let mut value = HeaderValue::try_from(value).map_err(|_| invalid())?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(headers)
}

impl ControlPlane {
    /// Sends spans and metrics, round after round.
    pub(crate) async fn send_telemetry(self) {
        let Some(telemetry) = self.telemetry() else {
            return;
        };
        loop {
            tokio::time::sleep(telemetry.interval).await;
            telemetry.send_round().await;
        }
    }

    /// Looks at the queue now and then, for the metrics that an autoscaler reads.
    pub(crate) async fn watch_queue(self) {
        loop {
            if let Err(error) = self.look_at_queue().await {
                tracing::debug!(target: "abp.telemetry", %error, "the queue cannot be looked at");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn look_at_queue(&self) -> Result<(), AbpError> {
        let (depth, oldest) = self.store().await?.queue_depth().await?;
        let waited = |since: Timestamp| current_time().as_unix_millis() - since.as_unix_millis();
        let waited = oldest.map_or(0, waited);
        let running = self.runtime().running().len() as u64;
        let waited = u64::try_from(waited).unwrap_or(0);
        self.metrics().set_queue(depth, waited, running);
        Ok(())
    }
}
