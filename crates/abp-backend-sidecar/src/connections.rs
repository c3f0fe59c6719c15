//! Connections of a sidecar's processes, told to the host one by one.

use abp_backend_core::{ObservedConnection, RunContext};
use abp_core::AgentEventKind;
use abp_error::{AbpError, ErrorCode};
use abp_host::{Egress, EgressEvent, EgressReport, EgressRule};

/// The connections of one run.
#[derive(Debug)]
pub struct Connections {
    egress: Option<Egress>,
    /// Connections that came faster than they could be told.
    lost: u64,
}

impl Connections {
    /// The connections through this way out; none where there is no proxy.
    #[must_use]
    pub fn new(egress: Option<Egress>) -> Self {
        Self { egress, lost: 0 }
    }

    /// The next report; never where there is no way out.
    ///
    /// # Errors
    /// Fails where the proxy ended: connections would no longer be listed, so the run must end as well.
    pub async fn next(&mut self) -> Result<EgressReport, AbpError> {
        let Some(egress) = &mut self.egress else {
            return std::future::pending().await;
        };
        egress.next().await.ok_or_else(|| {
            let message = "the egress proxy of the sandbox ended before the run did";
            AbpError::new(ErrorCode::SandboxUnavailable, message)
        })
    }

    /// Tells the host of a report.
    pub async fn tell(&mut self, report: EgressReport, context: &RunContext) {
        match report {
            EgressReport::Event(event) => context.observe_connection(observed(event)).await,
            EgressReport::Lost(count) => self.lost += count,
        }
    }

    /// Ends the way out, and tells what was not told yet.
    pub async fn finish(mut self, context: &RunContext) {
        if let Some(egress) = self.egress.take() {
            for report in egress.close().await {
                self.tell(report, context).await;
            }
        }
        if self.lost > 0 {
            let lost = self.lost;
            let message = format!("{lost} connections came too fast to be listed or counted");
            // Where the run was stopped nobody listens any more.
            let _ = context.emit(AgentEventKind::Warning { message }).await;
        }
    }
}

fn observed(event: EgressEvent) -> ObservedConnection {
    let allowed = event.is_allowed();
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
