//! From hello to the end of input.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::time::Instant;

use abp_core::{BackendIdentity, Outcome, Receipt};
use abp_error::ErrorCode;
use abp_receipt::ReceiptBuilder;
use sidecar_kit::Frame;
use uuid::Uuid;

use crate::input::{Current, Input};
use crate::output::Output;
use crate::run::now;
use crate::{Failure, Hello, Run, WorkReport};

/// Says hello and gives every run to the handler, one after the other, until the host closes the
/// input. A handler that panics fails its run and nothing else.
///
/// # Errors
/// Fails when the host cannot be reached.
pub fn serve(
    hello: &Hello,
    mut handler: impl FnMut(&Run) -> Result<WorkReport, Failure>,
) -> io::Result<()> {
    let output = Arc::new(Output::default());
    output.envelope(&hello.envelope())?;
    let (sender, runs) = mpsc::channel();
    let current = Arc::new(Current::default());
    let input = Input {
        runs: sender,
        output: Arc::clone(&output),
        current: Arc::clone(&current),
    };
    std::thread::spawn(move || input.read());
    for run in runs {
        let clock = (now(), Instant::now());
        let handled = catch_unwind(AssertUnwindSafe(|| handler(&run))).unwrap_or_else(|_| {
            Err(Failure::failed(
                ErrorCode::BackendCrashed,
                "the agent panicked",
            ))
        });
        let took = u64::try_from(clock.1.elapsed().as_millis()).unwrap_or(u64::MAX);
        let end = end(&run, handled, |outcome, claim| {
            receipt(&run, hello.backend(), (clock.0, took), outcome, claim)
        })?;
        current.end();
        output.frame(&end)?;
    }
    Ok(())
}

fn end(
    run: &Run,
    handled: Result<WorkReport, Failure>,
    receipt: impl FnOnce(Outcome, WorkReport) -> Receipt,
) -> io::Result<Frame> {
    let ref_id = Some(run.id().to_owned());
    let (outcome, claim) = match handled {
        Ok(claim) => (Outcome::Complete, claim),
        Err(Failure::Cancelled(claim)) => (Outcome::Partial, *claim),
        Err(Failure::Failed { code, message }) => {
            return Ok(Frame::Fatal {
                ref_id,
                error: message.into(),
                error_code: Some(code.as_str().to_owned()),
            });
        }
        Err(Failure::Io(error)) => return Err(error),
    };
    let mut receipt = serde_json::to_value(receipt(outcome, claim))?;
    let told: Vec<_> = run
        .instructions()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    if let (false, Some(members)) = (told.is_empty(), receipt.as_object_mut()) {
        // The handler was given them, in the task.
        members.insert("emulation".to_owned(), told.into());
    }
    Ok(Frame::Final { ref_id, receipt })
}

fn receipt(
    run: &Run,
    backend: &BackendIdentity,
    (started, took): (abp_core::Timestamp, u64),
    outcome: Outcome,
    claim: WorkReport,
) -> Receipt {
    let run_id = Uuid::parse_str(run.id()).unwrap_or_default();
    ReceiptBuilder::new(
        run_id,
        run.order().id,
        backend.clone(),
        started,
        took,
        outcome,
    )
    .usage(claim.usage)
    .usage_raw(claim.usage_raw)
    .artifacts(claim.artifacts)
    .build()
}
