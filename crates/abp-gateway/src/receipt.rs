//! The receipt of an exchange, made from its record when somebody asks for it.

use abp_core::{
    Attestation, BackendIdentity, CONTRACT_VERSION, CapabilityManifest, EnforcementReport,
    ExchangeReport, MicroUsd, Receipt, RunMetadata, UsageNormalized, VerificationReport,
};
use abp_error::{AbpError, AbpErrorDto, ErrorCode};
use abp_store::{ExchangeRecord, ExchangeUsage};
use serde_json::Value;
use uuid::Uuid;

use crate::Principal;
use crate::gateway::Gateway;

impl Gateway {
    /// The receipt of an exchange; `None` where there is none that concerns the caller.
    ///
    /// # Errors
    /// Fails where the store cannot be read.
    pub async fn receipt(
        &self,
        principal: &Principal,
        run_id: Uuid,
    ) -> Result<Option<Receipt>, AbpError> {
        // What was recorded a moment ago may not be written yet.
        self.flush().await?;
        let store = self.store();
        let Some(found) = store.exchange(run_id).await? else {
            return Ok(None);
        };
        if !principal.is_operator && found.record.principal != principal.id {
            return Ok(None);
        }
        let ledger = match found.record.ledger {
            Some(hash) => store.ledger(hash).await?,
            None => None,
        };
        exchange_receipt(&found.record, ledger.as_deref()).map(Some)
    }
}

/// The receipt of a recorded exchange. The same record always gives the same receipt.
///
/// # Errors
/// Fails where it cannot be hashed.
pub fn exchange_receipt(
    record: &ExchangeRecord,
    ledger: Option<&str>,
) -> Result<Receipt, AbpError> {
    let millis = record.duration_us / 1000;
    let receipt = Receipt {
        meta: RunMetadata {
            run_id: record.run_id,
            work_order_id: record.run_id,
            work_order_sha256: Some(hex(&record.request_sha256)),
            contract_version: CONTRACT_VERSION.to_owned(),
            started_at: record.started_at,
            finished_at: record.started_at.plus_millis(millis),
            duration_ms: millis,
            lineage: None,
        },
        task: None,
        model: None,
        backend: BackendIdentity {
            id: record.upstream.clone(),
            backend_version: Some(record.model_sent.clone()),
            adapter_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        },
        capabilities: CapabilityManifest::default(),
        mode: record.mode,
        usage_raw: Value::Null,
        usage: usage(record),
        usage_source: Some(Attestation::Measured),
        trace: Vec::new(),
        trace_digest: None,
        artifacts: Vec::new(),
        verification: VerificationReport::default(),
        workspace: None,
        outcome: record.outcome,
        cancel_reason: None,
        error: error(record),
        plan: None,
        enforcement: EnforcementReport::default(),
        adaptations: Vec::new(),
        exchanges: Vec::new(),
        exchange: Some(report(record, ledger)),
        mcp: None,
        member_sha256: std::collections::BTreeMap::new(),
        receipt_sha256: None,
    };
    receipt
        .with_hash()
        .map_err(|error| AbpError::new(error.code(), error.to_string()))
}

fn report(record: &ExchangeRecord, ledger: Option<&str>) -> ExchangeReport {
    ExchangeReport {
        principal: record.principal.clone(),
        operation: record.operation.clone(),
        caller_dialect: record.caller_dialect.clone(),
        upstream_dialect: record.upstream_dialect.clone(),
        model_asked: record.model_asked.clone(),
        model_sent: record.model_sent.clone(),
        streamed: record.streamed,
        status: record.status,
        attempts: record.attempts,
        first_byte_us: record.first_byte_us,
        request_sha256: hex(&record.request_sha256),
        sent_sha256: hex(&record.sent_sha256),
        received_sha256: hex(&record.received_sha256),
        delivered_sha256: hex(&record.delivered_sha256),
        request_bytes: record.request_bytes,
        response_bytes: record.response_bytes,
        usage_is_estimate: record.cost_is_estimate,
        client_closed: record.client_closed,
        emulated: record.emulated.clone(),
        ledger_sha256: record.ledger.as_ref().map(|hash| hex(hash)),
        ledger: ledger
            .and_then(|json| serde_json::from_str(json).ok())
            .unwrap_or(Value::Null),
    }
}

fn usage(record: &ExchangeRecord) -> UsageNormalized {
    let ExchangeUsage {
        input_tokens,
        output_tokens,
        cache_read_tokens,
        cache_write_tokens,
        request_units,
    } = record.usage;
    UsageNormalized {
        input_tokens,
        output_tokens,
        cache_read_tokens,
        cache_write_tokens,
        request_units,
        estimated_cost_usd: record.cost.map(MicroUsd::dollars),
    }
}

fn error(record: &ExchangeRecord) -> Option<AbpErrorDto> {
    let code: ErrorCode = record.error_code.as_deref()?.parse().ok()?;
    Some(AbpError::new(code, code.explanation()).to_dto())
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}
