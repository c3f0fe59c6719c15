//! From hello to the end of input.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::time::Instant;

use abp_core::{BackendIdentity, Outcome, Receipt};
use abp_error::ErrorCode;
use abp_protocol::{Envelope, FatalError};
use abp_receipt::ReceiptBuilder;
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
        output.envelope(&end)?;
    }
    Ok(())
}

fn end(
    run: &Run,
    handled: Result<WorkReport, Failure>,
    receipt: impl FnOnce(Outcome, WorkReport) -> Receipt,
) -> io::Result<Envelope> {
    let done = |outcome, claim| Envelope::Final {
        ref_id: run.id().to_owned(),
        receipt: Box::new(receipt(outcome, claim)),
    };
    Ok(match handled {
        Ok(claim) => done(Outcome::Complete, claim),
        Err(Failure::Cancelled(claim)) => done(Outcome::Partial, *claim),
        Err(Failure::Failed { code, message }) => Envelope::Fatal {
            ref_id: Some(run.id().to_owned()),
            error: FatalError {
                message,
                code: Some(code),
            },
        },
        Err(Failure::Io(error)) => return Err(error),
    })
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
