//! A run, from the handler's side.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use abp_core::{AgentEvent, AgentEventKind, ArtifactRef, Timestamp, UsageNormalized, WorkOrder};
use abp_error::ErrorCode;
use abp_protocol::Envelope;
use serde_json::Value;

use crate::output::Output;

/// What stands between a task and ABP's instructions.
const INSTRUCTIONS_BEGIN: &str = "\n\n<abp-instructions>\n";
/// What ends ABP's instructions.
const INSTRUCTIONS_END: &str = "\n</abp-instructions>";

/// A run under way.
#[derive(Debug)]
pub struct Run {
    id: String,
    order: WorkOrder,
    cancel: Arc<CancelState>,
    output: Arc<Output>,
}

/// What the sidecar says about its work.
#[derive(Debug, Default)]
pub struct WorkReport {
    /// The usage in common terms.
    pub usage: UsageNormalized,
    /// The usage in the vendor's own terms.
    pub usage_raw: Value,
    /// What it left behind.
    pub artifacts: Vec<ArtifactRef>,
}

/// Why a run did not get to its end.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The host cancelled it; the run ends with a partial result.
    Cancelled(Box<WorkReport>),
    /// The work failed.
    Failed {
        /// A code for it.
        code: ErrorCode,
        /// In words.
        message: String,
    },
    /// The host cannot be reached any more.
    Io(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Failure {
    /// The work failed.
    pub fn failed(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::Failed {
            code,
            message: message.into(),
        }
    }
}

/// Whether the host wants the run to end.
#[derive(Debug, Default)]
pub(crate) struct CancelState {
    reason: Mutex<Option<String>>,
    changed: Condvar,
}

impl CancelState {
    pub(crate) fn cancel(&self, reason: String) {
        let mut current = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        current.get_or_insert(reason);
        self.changed.notify_all();
    }
}

impl Run {
    pub(crate) fn new(
        id: String,
        order: WorkOrder,
        cancel: Arc<CancelState>,
        output: Arc<Output>,
    ) -> Self {
        Self {
            id,
            order,
            cancel,
            output,
        }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What is to be done.
    #[must_use]
    pub fn order(&self) -> &WorkOrder {
        &self.order
    }

    /// The instructions that ABP adds to the task, with the capability that each stands in for. They
    /// are in the order's task already; this is for agents that want them apart from it.
    #[must_use]
    pub fn instructions(&self) -> Vec<(&str, &str)> {
        let entries = self.order.config.abp_setting("emulation");
        let entries = entries.and_then(Value::as_array).into_iter().flatten();
        entries
            .filter_map(|entry| {
                let capability = entry.get("capability")?.as_str()?;
                Some((capability, entry.get("instruction")?.as_str()?))
            })
            .collect()
    }

    /// The task without ABP's instructions.
    #[must_use]
    pub fn own_task(&self) -> &str {
        let task = self.order.task.as_str();
        let is_added = !self.instructions().is_empty() && task.ends_with(INSTRUCTIONS_END);
        match task.rfind(INSTRUCTIONS_BEGIN).filter(|_| is_added) {
            Some(begin) => task.get(..begin).unwrap_or(task),
            None => task,
        }
    }

    /// Tells the host that something happened.
    ///
    /// # Errors
    /// Fails when the run was cancelled, or the host is gone: the handler should return. Fails also
    /// for kinds of events that only the host sends.
    pub fn emit(&self, kind: AgentEventKind) -> Result<(), Failure> {
        if kind.is_host_only() {
            let message = format!(
                "events of the kind {} are sent by the host alone",
                kind.name()
            );
            return Err(Failure::failed(
                ErrorCode::ProtocolUnexpectedMessage,
                message,
            ));
        }
        if self.cancelled().is_some() {
            return Err(Failure::Cancelled(Box::default()));
        }
        let event = Envelope::Event {
            ref_id: self.id.clone(),
            event: AgentEvent::new(now(), kind),
        };
        Ok(self.output.envelope(&event)?)
    }

    /// Why the host wants the run to end, where it does.
    #[must_use]
    pub fn cancelled(&self) -> Option<String> {
        let reason = self.cancel.reason.lock();
        reason.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for a while; less where the host wants the run to end, and says why then.
    #[must_use]
    pub fn wait(&self, patience: Duration) -> Option<String> {
        let reason = self.cancel.reason.lock();
        let reason = reason.unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .cancel
            .changed
            .wait_timeout_while(reason, patience, |reason| reason.is_none());
        let (reason, _) = waited.unwrap_or_else(PoisonError::into_inner);
        reason.clone()
    }
}

pub(crate) fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let millis = since_epoch.unwrap_or_default().as_millis();
    Timestamp::from_unix_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use abp_core::WorkOrderBuilder;
    use serde_json::json;

    use super::*;

    fn run(task: &str, emulation: &Value) -> Run {
        let mut order = WorkOrderBuilder::new(task).build();
        let settings = json!({ "emulation": emulation });
        order.config.vendor.insert("abp".to_owned(), settings);
        let (cancel, output) = (Arc::default(), Arc::default());
        Run::new("r".to_owned(), order, cancel, output)
    }

    #[test]
    fn instructions_can_be_told_from_the_task() {
        let entries = json!([{ "capability": "a", "instruction": "One." }, 7]);
        let block = "\n\n<abp-instructions>\n[a] One.\n</abp-instructions>";
        let given = run(&format!("Fix it.{block}"), &entries);
        assert_eq!(given.own_task(), "Fix it.");
        assert_eq!(given.instructions(), [("a", "One.")]);
        // Nothing was added: what looks like a block is the author's.
        let own = format!("Fix it.{block}");
        let plain = run(&own, &json!([]));
        assert_eq!(
            (plain.own_task(), plain.instructions().len()),
            (own.as_str(), 0)
        );
    }

    #[test]
    fn a_sidecar_does_not_speak_for_the_host() {
        let message = "m".to_owned();
        let refused = run("x", &json!([])).emit(AgentEventKind::RunStarted { message });
        let Err(Failure::Failed { code, message }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(code, ErrorCode::ProtocolUnexpectedMessage);
        assert!(message.contains("run_started"), "{message}");
    }
}
