//! Receipts and the log.

use abp_control::store_location;
use abp_core::Receipt;
use abp_error::{AbpError, ErrorCode};
use abp_gateway::Refusal;
use abp_receipt::{Hash, ReceiptVerdict, consistency_proof, inclusion_proof};
use abp_store::{KeyScope, ReceiptJudge, Store};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::api::{
    CheckpointView, ConsistencyProof, ConsistencyQuery, InclusionProof, ProofQuery, ReceiptItem,
    ReceiptPage, ReceiptsQuery, VerifyReport,
};
use crate::call::Call;
use crate::query::NoQuery;
use crate::table::RouteRow;

/// How many receipts a page has where nothing is said.
const PAGE: u32 = 100;
/// How many receipts are looked at for one page of a principal that sees few of them.
const MAX_SEARCHED: u32 = 10_000;
/// The largest log that proofs are made of: its leaves are read into memory.
const MAX_PROVEN: u64 = 1 << 22;

pub(crate) fn rows() -> Vec<RouteRow> {
    let read = KeyScope::RunsRead;
    vec![
        RouteRow::get(
            "/runs/{run_id}/receipt",
            read,
            "get_run_receipt",
            "Returns the receipt of a run that has ended.",
            run_receipt,
        ),
        RouteRow::get(
            "/receipts",
            read,
            "list_receipts",
            "Lists the receipts of runs, newest first.",
            list,
        ),
        RouteRow::get(
            "/receipts/{receipt_id}",
            KeyScope::Models,
            "get_receipt",
            "Returns the receipt of an exchange; with the scope `runs:read` also that of a run.",
            any_receipt,
        ),
        RouteRow::post(
            "/receipts/verify",
            read,
            "verify_receipt",
            "Judges a document that claims to be a receipt, by its hashes and by the log.",
            verify,
        ),
        RouteRow::get(
            "/log/checkpoint",
            read,
            "get_checkpoint",
            "Returns the newest signed checkpoint of the log, to be kept elsewhere.",
            checkpoint,
        ),
        RouteRow::get(
            "/log/proof",
            read,
            "get_inclusion_proof",
            "Proves that the log contains the receipt of a run.",
            inclusion,
        ),
        RouteRow::get(
            "/log/consistency",
            read,
            "get_consistency_proof",
            "Proves that a newer log continues an older one.",
            consistency,
        ),
    ]
}

async fn run_receipt(call: Call, _: NoQuery) -> Result<Receipt, Refusal> {
    let run = call.face.run_of(&call.caller, call.run_id()?).await?;
    let record = call.face.store().await?.receipt(run.run_id).await?;
    let record = record.ok_or_else(|| not_ended(run.run_id))?;
    read_stored(&record.document)
}

/// The refusal for a part of a run that exists only when it has ended.
pub(crate) fn not_ended(run_id: Uuid) -> Refusal {
    let message = format!("run {run_id} has not ended yet");
    Refusal::new(ErrorCode::RunNotEnded, message)
}

fn read_stored(document: &[u8]) -> Result<Receipt, Refusal> {
    abp_core::read_document(document)
        .map_err(|error| Refusal::new(ErrorCode::ReceiptChainBroken, error.to_string()))
}

async fn any_receipt(call: Call, _: NoQuery) -> Result<Receipt, Refusal> {
    let text = call.params.get("receipt_id");
    let unknown = || Refusal::new(ErrorCode::NotFound, "no such receipt").at("receipt_id");
    let id: Uuid = text.parse().map_err(|_| unknown())?;
    if let Some(receipt) = call.face.gateway().receipt(call.caller.key(), id).await? {
        return Ok(receipt);
    }
    // A run of another principal is as unknown as none, and so are all runs to a key that reads none.
    if !call.caller.principal().may(KeyScope::RunsRead) {
        return Err(unknown());
    }
    call.face
        .run_of(&call.caller, id)
        .await
        .map_err(|_| unknown())?;
    let record = call.face.store().await?.receipt(id).await?;
    read_stored(&record.ok_or_else(|| not_ended(id))?.document)
}

async fn list(call: Call, query: ReceiptsQuery) -> Result<ReceiptPage, Refusal> {
    let store = call.face.store().await?;
    let limit = query.limit.unwrap_or(PAGE) as usize;
    let mut before = query.cursor;
    let mut receipts = Vec::new();
    let mut searched = 0;
    while receipts.len() < limit && searched < MAX_SEARCHED {
        let page = store.receipts(before, PAGE).await?;
        let Some(last) = page.last() else {
            return Ok(ReceiptPage {
                receipts,
                next: None,
            });
        };
        before = Some(last.log_seq);
        searched += PAGE;
        for summary in page {
            if receipts.len() == limit {
                break;
            }
            before = Some(summary.log_seq);
            if call.face.sees(&call.caller, summary.run_id).await? {
                receipts.push(ReceiptItem {
                    run_id: summary.run_id,
                    log_seq: summary.log_seq,
                    sha256: summary.sha256,
                    bytes: summary.bytes,
                });
            }
        }
    }
    Ok(ReceiptPage {
        receipts,
        next: before,
    })
}

/// A document that claims to be a receipt, or an exported one with its proof.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
struct ReceiptDocument(serde_json::Map<String, Value>);

async fn verify(call: Call, _: ReceiptDocument) -> Result<VerifyReport, Refusal> {
    let location = store_location(call.face.config())?;
    let judge = ReceiptJudge::open_at(Some(&location), None).await;
    // The bytes as they came: hashes are over them, not over what was parsed.
    let verdict = judge.judge(&call.body).await;
    judge.close().await;
    let mut report = VerifyReport {
        verdict: verdict.name().to_owned(),
        run_id: verdict.run_id(),
        receipt_sha256: None,
        proven_by: None,
        unproven_because: None,
        problems: Vec::new(),
    };
    match verdict {
        ReceiptVerdict::Proven { receipt, by } => {
            report.receipt_sha256 = receipt.receipt_sha256;
            report.proven_by = serde_json::to_value(by).ok();
        }
        ReceiptVerdict::SelfConsistent { receipt, because } => {
            report.receipt_sha256 = receipt.receipt_sha256;
            report.unproven_because = Some(because.to_string());
        }
        ReceiptVerdict::Wrong { problems, .. } => {
            let lines = problems.into_iter();
            let lines = lines.map(|problem| format!("{}: {}", problem.code, problem.problem));
            report.problems = lines.collect();
        }
    }
    Ok(report)
}

async fn checkpoint(call: Call, _: NoQuery) -> Result<CheckpointView, Refusal> {
    let store = call.face.store().await?;
    let signed = store.latest_checkpoint().await?;
    Ok(CheckpointView {
        size: signed.checkpoint().size(),
        root: signed.checkpoint().root().to_string(),
        key: store.public_key().await?.to_string(),
        checkpoint: signed.to_string(),
    })
}

async fn inclusion(call: Call, query: ProofQuery) -> Result<InclusionProof, Refusal> {
    let run = call.face.run_of(&call.caller, query.run_id).await?;
    let store = call.face.store().await?;
    let receipt = store.receipt(run.run_id).await?;
    let receipt = receipt.ok_or_else(|| not_ended(run.run_id))?;
    let signed = store.latest_checkpoint().await?;
    let size = signed.checkpoint().size();
    let leaves = leaves(store, size).await?;
    let path = inclusion_proof(&leaves, receipt.log_seq).map_err(|error| broken(&error))?;
    let entry = store.log_entries(receipt.log_seq, 1).await?.pop();
    let entry = entry.ok_or_else(|| broken(&"the entry is missing"))?;
    Ok(InclusionProof {
        run_id: run.run_id,
        log_seq: receipt.log_seq,
        entry: entry.entry,
        size,
        path: path.iter().map(Hash::to_string).collect(),
        checkpoint: signed.to_string(),
    })
}

async fn consistency(call: Call, query: ConsistencyQuery) -> Result<ConsistencyProof, Refusal> {
    let store = call.face.store().await?;
    let signed = store.latest_checkpoint().await?;
    let newest = signed.checkpoint().size();
    let to = query.to.unwrap_or(newest);
    let wrong =
        |name: &str, problem: String| Refusal::new(ErrorCode::ValidationFailed, problem).at(name);
    if to > newest {
        return Err(wrong("to", format!("the log has {newest} entries")));
    }
    if query.from > to {
        return Err(wrong("from", format!("from is at most {to}")));
    }
    let leaves = leaves(store, to).await?;
    let path = consistency_proof(&leaves, query.from).map_err(|error| broken(&error))?;
    Ok(ConsistencyProof {
        from: query.from,
        to,
        path: path.iter().map(Hash::to_string).collect(),
        checkpoint: signed.to_string(),
    })
}

async fn leaves(store: &Store, size: u64) -> Result<Vec<Hash>, Refusal> {
    if size > MAX_PROVEN {
        let message =
            format!("proofs of a log with more than {MAX_PROVEN} entries are made offline");
        return Err(Refusal::new(ErrorCode::RequestTooLarge, message));
    }
    Ok(store.leaf_hashes(size).await?)
}

fn broken(problem: &dyn std::fmt::Display) -> Refusal {
    AbpError::new(ErrorCode::ReceiptChainBroken, problem.to_string()).into()
}
