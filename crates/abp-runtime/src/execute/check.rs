//! The operator's check of a result: after the backend's work, before the receipt.

use abp_core::{AgentEventKind, CancelReason, CheckReport, Outcome};
use abp_error::AbpError;
use abp_host::{CheckCommand, CheckPlace, check_failed, check_not_run};

use super::{Supervisor, until};
use crate::finish::Ended;
use crate::stage::Stage;

impl Supervisor {
    /// Lets the check judge what a backend says is done. A result that it does not pass is partial, so it is
    /// not applied without a decision. Work that did not get this far is not checked.
    pub(super) async fn check_result(&mut self, stage: Option<&Stage>, ended: Ended) -> Ended {
        let check = self.accepted.options.check.clone();
        let (Some(check), Some(stage)) = (check, stage) else {
            return ended;
        };
        if ended.outcome != Outcome::Complete {
            return ended;
        }
        let mut cancel = self.cancel.clone();
        let report = tokio::select! {
            biased;
            reason = cancel.cancelled() => Err(reason),
            () = until(self.deadline) => Err(CancelReason::Timeout),
            report = self.run_check(&check, stage) => Ok(report),
        };
        if let Err(error) = stage.remove_check_layers().await {
            // They go with the stage.
            tracing::warn!(target: "abp.workspace", %error, "the layers of a check could not be removed");
        }
        let report = match report {
            Ok(report) => report,
            Err(reason) => return Ended::stopped(reason, None),
        };
        let report = report.unwrap_or_else(|error| check_not_run(&check.command, &error));
        let kind = AgentEventKind::CommandExecuted {
            command: report.command.clone(),
            exit_code: report.exit_code,
            output_preview: Some(report.output_tail.clone()),
        };
        self.recorder.record(kind, None).await;
        let ended = match report.passed {
            true => ended,
            false => Ended {
                outcome: Outcome::Partial,
                error: Some(check_failed(&report)),
                ..ended
            },
        };
        self.check = Some(report);
        ended
    }

    async fn run_check(
        &self,
        check: &CheckCommand,
        stage: &Stage,
    ) -> Result<CheckReport, AbpError> {
        let layers = stage.make_check_layers().await?;
        let place = CheckPlace {
            root: stage.root(),
            layers: &layers,
            hidden: &self.accepted.runtime.hidden_dirs(),
        };
        check.run(&place, &self.accepted.policy).await
    }
}
