//! `abp receipt verify FILE`: proven, consistent with itself only, or wrong.

use std::path::Path;

use abp_control::store_location;
use abp_error::{AbpError, ExitStatus};
use abp_receipt::{KeyRing, ReceiptProvenBy, ReceiptVerdict};
use abp_store::ReceiptJudge;
use serde_json::{Value, json};

use super::log::read_key;
use crate::args::{GlobalArgs, VerifyArgs};
use crate::input;
use crate::output::{BAD, GOOD, NOTE, Output};
use crate::session::{Session, block_on};
use crate::text::{one_line, printable};

/// Judges every file; the exit status is that of the worst.
pub(super) fn verify(
    args: &VerifyArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let key = args.key.as_deref().map(read_key).transpose()?;
    let session = Session::open(global, &[], output)?;
    let files: Vec<Vec<u8>> = args
        .files
        .iter()
        .map(|path| input::read(path))
        .collect::<Result<_, _>>()?;
    let verdicts = block_on(async {
        let location = store_location(session.config())?;
        let judge = ReceiptJudge::open_at(Some(&location), key.map(KeyRing::of)).await;
        let mut verdicts = Vec::new();
        for file in &files {
            verdicts.push(judge.judge(file).await);
        }
        judge.close().await;
        Ok(verdicts)
    })?;
    let worst = verdicts.iter().max_by_key(|verdict| badness(verdict));
    let files = args.files.iter().zip(&verdicts);
    if output.is_json() {
        let receipts: Vec<Value> = files
            .map(|(path, verdict)| to_json(path, verdict))
            .collect();
        output.json(&json!({
            "verdict": worst.map(ReceiptVerdict::name),
            "receipts": receipts,
        }))?;
    } else {
        for (path, verdict) in files {
            print(path, verdict, output);
        }
    }
    Ok(worst.map_or(ExitStatus::Success, ReceiptVerdict::exit_status))
}

fn badness(verdict: &ReceiptVerdict) -> u8 {
    match verdict {
        ReceiptVerdict::Proven { .. } => 0,
        ReceiptVerdict::SelfConsistent { .. } => 1,
        ReceiptVerdict::Wrong { .. } => 2,
    }
}

fn to_json(path: &Path, verdict: &ReceiptVerdict) -> Value {
    let mut result = json!({
        "file": path.display().to_string(),
        "verdict": verdict.name(),
        "run_id": verdict.run_id(),
        "receipt_sha256": null,
        "proven_by": null,
        "unproven_because": null,
        "problems": [],
    });
    let members = match verdict {
        ReceiptVerdict::Proven { receipt, by } => {
            json!({ "receipt_sha256": receipt.receipt_sha256, "proven_by": by })
        }
        ReceiptVerdict::SelfConsistent { receipt, because } => json!({
            "receipt_sha256": receipt.receipt_sha256,
            "unproven_because": because.to_string(),
        }),
        ReceiptVerdict::Wrong { problems, .. } => json!({ "problems": problems }),
    };
    if let (Value::Object(result), Value::Object(members)) = (&mut result, members) {
        result.extend(members);
    }
    result
}

fn print(path: &Path, verdict: &ReceiptVerdict, output: &mut Output) {
    let path = one_line(&path.display().to_string());
    match verdict {
        ReceiptVerdict::Proven { receipt, by } => {
            let hash = receipt.receipt_sha256.as_deref().unwrap_or_default();
            output.line(&format!("{GOOD}proven{GOOD:#} {path}  {hash}"));
            let by = match by {
                ReceiptProvenBy::Log { origin, seq } => {
                    format!("entry {seq} of the log {origin}")
                }
                ReceiptProvenBy::Proof { origin, seq, key } => {
                    format!("its proof of entry {seq} of the log {origin}, signed with key {key}")
                }
            };
            output.line(&format!("  by {}", printable(&by)));
        }
        ReceiptVerdict::SelfConsistent { receipt, because } => {
            let hash = receipt.receipt_sha256.as_deref().unwrap_or_default();
            output.line(&format!(
                "{NOTE}self-consistent only{NOTE:#} {path}  {hash}"
            ));
            let because = because.to_string();
            output.line(&format!(
                "  its own hashes hold, which any forgery can have: {}",
                printable(&because)
            ));
        }
        ReceiptVerdict::Wrong { problems, .. } => {
            output.line(&format!("{BAD}WRONG{BAD:#} {path}"));
            for problem in problems {
                let text = printable(&problem.problem);
                output.line(&format!("  {}: {text}", problem.code));
            }
        }
    }
}
