//! Usage and changes of runs, read from their receipts.

use abp_store::Store;
use serde::Deserialize;

use crate::api::{RunFigures, RunView};
use abp_gateway::Refusal;

/// The members of a receipt that a summary is made of.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ReceiptFigures {
    usage: UsageFigures,
    workspace: Option<WorkspaceFigures>,
    enforcement: EnforcementFigures,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UsageFigures {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    estimated_cost_usd: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WorkspaceFigures {
    changes: Option<ChangeFigures>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ChangeFigures {
    files_changed: u64,
    insertions: u64,
    deletions: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EnforcementFigures {
    rules: Vec<RuleFigures>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RuleFigures {
    denied: u64,
}

/// Adds its summary to every run that has ended.
pub(crate) async fn add(store: &Store, runs: &mut [RunView]) -> Result<(), Refusal> {
    for run in runs {
        if !run.state.is_final() {
            continue;
        }
        let receipt = store.receipt(run.run_id).await?;
        run.summary = receipt.and_then(|receipt| summary(&receipt.document));
    }
    Ok(())
}

/// A receipt that cannot be read has no summary; looking at the receipt itself says why.
fn summary(document: &[u8]) -> Option<RunFigures> {
    let figures: ReceiptFigures = serde_json::from_slice(document).ok()?;
    let changes = figures.workspace.and_then(|workspace| workspace.changes);
    Some(RunFigures {
        input_tokens: figures.usage.input_tokens,
        output_tokens: figures.usage.output_tokens,
        cost_usd: figures.usage.estimated_cost_usd,
        files_changed: changes.as_ref().map(|changes| changes.files_changed),
        insertions: changes.as_ref().map(|changes| changes.insertions),
        deletions: changes.as_ref().map(|changes| changes.deletions),
        denied: figures
            .enforcement
            .rules
            .iter()
            .map(|rule| rule.denied)
            .sum(),
    })
}
