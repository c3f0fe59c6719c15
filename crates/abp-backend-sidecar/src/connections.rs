//! Connections of a sidecar's processes, told to the host one by one.

use abp_backend_core::{ObservedConnection, RunContext};
use abp_core::AgentEventKind;
use abp_host::{Egress, EgressEvent, EgressReport, EgressRule, EgressVerdict};

/// The most connections of a run that are told one by one; the rest is counted.
const MAX_TOLD: u64 = 1_000;

/// The connections of one run.
#[derive(Debug)]
pub(crate) struct Connections {
    egress: Option<Egress>,
    told: u64,
    untold: u64,
}

impl Connections {
    pub(crate) fn new(egress: Option<Egress>) -> Self {
        Self {
            egress,
            told: 0,
            untold: 0,
        }
    }

    /// The next report; never where there is no way out.
    pub(crate) async fn next(&mut self) -> EgressReport {
        if let Some(egress) = &mut self.egress
            && let Some(report) = egress.next().await
        {
            return report;
        }
        std::future::pending().await
    }

    pub(crate) async fn tell(&mut self, report: EgressReport, context: &RunContext) {
        match report {
            EgressReport::Event(event) => self.tell_event(event, context).await,
            EgressReport::Lost(count) => self.untold += count,
        }
    }

    /// Ends the way out, and tells what was not told yet.
    pub(crate) async fn finish(mut self, context: &RunContext) {
        if let Some(egress) = self.egress.take() {
            for event in egress.close().await {
                self.tell_event(event, context).await;
            }
        }
        if self.untold > 0 {
            let message = format!("{} more connections are not listed", self.untold);
            // Where the run was stopped nobody listens any more.
            let _ = context.emit(AgentEventKind::Warning { message }).await;
        }
    }

    async fn tell_event(&mut self, event: EgressEvent, context: &RunContext) {
        if self.told >= MAX_TOLD {
            self.untold += 1;
            return;
        }
        self.told += 1;
        context.observe_connection(observed(event)).await;
    }
}

fn observed(event: EgressEvent) -> ObservedConnection {
    let allowed = event.verdict == EgressVerdict::Allowed;
    let rule = event.rule.to_string();
    let refused_by = match event.rule {
        EgressRule::Policy { policy } if !allowed => Some(policy),
        _ => None,
    };
    ObservedConnection {
        host: event.host,
        port: event.port,
        refused_by,
        allowed,
        rule,
        bytes_up: event.bytes_up,
        bytes_down: event.bytes_down,
    }
}
