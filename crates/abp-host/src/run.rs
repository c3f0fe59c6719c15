//! Following a run.

use abp_core::{AgentEvent, ArtifactRef, Capability, Outcome, UsageNormalized};
use abp_error::AbpErrorDto;
use abp_sandbox::Exit;
use serde_json::Value;
use sidecar_kit::{
    BatchItem, CancelToken, PermissionRequest, PermissionResponse, RawRun, RunReport,
};

use crate::records::Record;
use crate::{HostError, SidecarFailure, event};

/// A run of a sidecar under way. Dropping it ends the sidecar.
#[derive(Debug)]
pub struct SidecarRun {
    run: RawRun,
    record: Record,
    /// An event that could not be read; it ended the run.
    refused: Option<HostError>,
}

/// Something that a sidecar says during its run.
#[derive(Debug)]
pub enum RunItem {
    /// Something happened.
    Event(AgentEvent),
    /// The agent is about to use a tool and waits for [`SidecarRun::answer`].
    Question(PermissionRequest),
}

/// How a run ended.
#[derive(Debug)]
pub struct RunEnded {
    /// What the sidecar says about it, or why it says nothing.
    pub result: Result<Claim, SidecarFailure>,
    /// How the process ended, where that is known.
    pub exit: Option<Exit>,
    /// The end of what it wrote to its standard error.
    pub stderr_tail: String,
    /// Oddities that a reader should know of.
    pub warnings: Vec<String>,
    /// How many pings it answered.
    pub answered_pings: u64,
}

/// What a sidecar says about its own work. The host saw the events, the process and the workspace
/// itself; only what it cannot see is taken from here.
#[derive(Debug, Default)]
pub struct Claim {
    /// The usage in the vendor's own terms.
    pub usage_raw: Value,
    /// The usage in common terms.
    pub usage: UsageNormalized,
    /// What it left behind.
    pub artifacts: Vec<ArtifactRef>,
    /// How it says its work ended.
    pub outcome: Option<Outcome>,
    /// What it says went wrong.
    pub error: Option<AbpErrorDto>,
    /// The capabilities whose emulation it says its agent was instructed in; `None` where it does not
    /// say.
    pub emulation: Option<Vec<Capability>>,
}

impl SidecarRun {
    pub(crate) fn new(run: RawRun, record: Record) -> Self {
        Self {
            run,
            record,
            refused: None,
        }
    }

    /// Asks the sidecar to end early.
    #[must_use]
    pub fn cancel_token(&self) -> CancelToken {
        self.run.cancel.clone()
    }

    /// The next events; `None` after the last. Questions are answered with a denial, because nobody is there
    /// to decide.
    pub async fn next_events(&mut self) -> Option<Vec<AgentEvent>> {
        let items = self.next_items().await?;
        let mut events = Vec::new();
        for item in items {
            match item {
                RunItem::Event(event) => events.push(event),
                RunItem::Question(PermissionRequest { id, .. }) => {
                    self.answer(PermissionResponse {
                        id,
                        approved: false,
                        reason: Some("nobody is there to decide".to_owned()),
                    });
                }
            }
        }
        Some(events)
    }

    /// Answers a question. After the end of the run the answer is for nobody.
    pub fn answer(&self, response: PermissionResponse) {
        drop(self.run.answers.send(response));
    }

    /// The next events and questions, in their order; `None` after the last. An event that cannot be read ends
    /// the run.
    pub async fn next_items(&mut self) -> Option<Vec<RunItem>> {
        // Batches that were on their way when one was refused are not looked at.
        if self.refused.is_some() {
            return None;
        }
        let batch = self.run.events.recv().await?;
        let mut items = Vec::new();
        for item in batch.iter() {
            let read = match item {
                BatchItem::Event(json) => event::read(json).map(RunItem::Event),
                BatchItem::Question(request) => {
                    event::check_question(request).map(|()| RunItem::Question(request.clone()))
                }
            };
            match read {
                Ok(item) => items.push(item),
                Err(error) => {
                    self.refused = Some(error);
                    self.run.events.close();
                    break;
                }
            }
        }
        Some(items)
    }

    /// Ends the sidecar without asking it first, and waits for the end.
    pub async fn stop(mut self) -> RunEnded {
        self.run.events.close();
        self.finish().await
    }

    /// Waits for the end and drops events that were not taken. Nothing of the sidecar is left then.
    pub async fn finish(mut self) -> RunEnded {
        while self.run.events.recv().await.is_some() {}
        let Ok(mut report) = self.run.report.await else {
            return RunEnded::lost();
        };
        self.record.settle(report.exit);
        let warnings = std::mem::take(&mut report.warnings);
        let answered_pings = report.answered_pings;
        let (exit, stderr_tail) = (report.exit, report.stderr_tail.clone());
        let result = match (self.refused, report) {
            (Some(error), report) => Err(SidecarFailure::of(report, error)),
            (
                None,
                RunReport {
                    result: Ok(receipt),
                    ..
                },
            ) => match Claim::read(&receipt) {
                Ok(claim) => Ok(claim),
                Err(error) => Err(SidecarFailure {
                    error,
                    exit,
                    stderr_tail: stderr_tail.clone(),
                }),
            },
            (None, report) => Err(report.into()),
        };
        RunEnded {
            result,
            exit,
            stderr_tail,
            warnings,
            answered_pings,
        }
    }
}

impl RunEnded {
    /// The task that followed the run is gone; that takes a shutdown, or a defect.
    fn lost() -> Self {
        let failure = SidecarFailure {
            error: HostError::Stopped,
            exit: None,
            stderr_tail: String::new(),
        };
        Self {
            result: Err(failure),
            exit: None,
            stderr_tail: String::new(),
            warnings: Vec::new(),
            answered_pings: 0,
        }
    }
}

impl Claim {
    /// Reads a final receipt. Figures that cannot be read are worth nothing anyway; an outcome that cannot
    /// be read must not count as success, so it breaks the protocol.
    fn read(receipt: &Value) -> Result<Self, HostError> {
        let mut claim = Self::default();
        let member = |name: &str| receipt.get(name).cloned().unwrap_or_default();
        let invalid = |problem: String| HostError::InvalidFinal(problem);
        if !receipt.is_object() {
            return Err(invalid("receipt is not an object".to_owned()));
        }
        claim.usage_raw = member("usage_raw");
        claim.usage = serde_json::from_value(member("usage")).unwrap_or_default();
        claim.artifacts = serde_json::from_value(member("artifacts")).unwrap_or_default();
        claim.outcome = serde_json::from_value(member("outcome"))
            .map_err(|error| invalid(format!("receipt.outcome: {error}")))?;
        claim.error = serde_json::from_value(member("error")).ok();
        claim.emulation = serde_json::from_value(member("emulation")).ok();
        Ok(claim)
    }
}
