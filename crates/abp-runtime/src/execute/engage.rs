//! Opening a backend for a run, and confirming the plan on what the open session really is.

use std::sync::Arc;

use abp_backend_core::{Backend, BackendDescriptor, OpenSpec, Session, is_asked};
use abp_core::{AgentEventKind, Attestation, CancelReason};
use abp_error::{AbpError, ErrorCode};
use abp_plan::ConfirmedPlan;
use abp_policy::{Holder, Holders, PolicyEngine, PolicyList, Rule};
use secrecy::ExposeSecret as _;

use super::{Engaged, NotEngaged, Supervisor, caught, until};
use crate::RuntimeError;
use crate::finish::Ended;
use crate::mcp::{McpPlace, RunMcp};
use crate::runtime::{asked_model, check_budget};
use crate::stage::Stage;

impl Supervisor {
    /// Opens the chosen backend, or the next in line, and confirms the plan on what it really is.
    pub(super) async fn engage(
        &mut self,
        stage: &Stage,
    ) -> Result<(Box<dyn Session>, Arc<ConfirmedPlan>), NotEngaged> {
        let mut last = AbpError::new(ErrorCode::BackendNotFound, "no backend is left to try");
        for backend in self.accepted.backends.clone() {
            let name = backend.descriptor().name.clone();
            let tried = self.try_backend(&*backend, stage).await;
            match tried.map_err(NotEngaged::Ended)? {
                Ok(engaged) => return Ok(engaged),
                Err(error)
                    if !stage.overlays().is_empty()
                        && error.code() == ErrorCode::WorkspaceInitFailed =>
                {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    let reason = cause.unwrap_or_else(|| error.to_string());
                    return Err(NotEngaged::NoOverlay(reason));
                }
                Err(error) => {
                    let message = format!("backend {name} cannot be used: {error}");
                    self.recorder
                        .record(AgentEventKind::Warning { message }, None)
                        .await;
                    last = error;
                }
            }
        }
        Err(NotEngaged::Ended(Ended::failed(last)))
    }

    async fn try_backend(
        &mut self,
        backend: &dyn Backend,
        stage: &Stage,
    ) -> Result<Result<(Box<dyn Session>, Arc<ConfirmedPlan>), AbpError>, Ended> {
        let descriptor = backend.descriptor();
        // Until a session is open nothing but the host's own handling holds anything.
        self.engaged = Engaged {
            holders: stage.holders(),
            measures_usage: descriptor.measures_usage,
            ..Engaged::untried(&descriptor.name)
        };
        if let Err(error) = self.engage_meter(descriptor) {
            return Ok(Err(error.into()));
        }
        let spec = OpenSpec {
            run_id: self.accepted.run_id,
            workspace_root: stage.root().to_owned(),
            overlays: stage.overlays(),
            model: self.accepted.plan.order().config.model.clone(),
            policy: self.accepted.policy.clone(),
            hidden: self.accepted.runtime.hidden_dirs(),
            source: stage.source(),
            budget: self.accepted.meter.budget(),
            session: self.accepted.options.session.clone(),
            traceparent: self.accepted.trace().map(|trace| trace.to_string()),
        };
        let opened = tokio::select! {
            biased;
            reason = self.cancel.cancelled() => return Err(Ended::stopped(reason, self.limit_error(reason))),
            () = until(self.deadline) => return Err(Ended::stopped(CancelReason::Timeout, None)),
            opened = caught(backend.open(spec)) => opened,
        };
        let session = match opened {
            Ok(session) => session,
            Err(error) => {
                self.gate.count_refusal(&error);
                return Ok(Err(error));
            }
        };
        self.engaged.identity = session.identity().clone();
        self.engaged.manifest = session.manifest().clone();
        self.engaged.contained_by = session.contained_by();
        self.engaged.state = session.state_access();
        self.engaged.sandbox = session.sandbox();
        // A mount of the agent's sandbox holds nothing where a server outside of it does what the agent asks.
        self.engaged.mounted = match &self.accepted.mcp {
            Some(mcp) if !mcp.is_confined => Vec::new(),
            Some(_) | None => session.mounted_rules(),
        };
        self.engaged.asked_tools = session.asked_tools();
        self.engaged.holders = stage.holders().or_stronger(session.holders());
        let mounted = &self.engaged.mounted;
        let policy = &self.accepted.policy;
        self.engaged.holders = with_mounts(self.engaged.holders, mounted, policy);
        self.engaged.holders = with_asked(self.engaged.holders, self.engaged.asked_tools, policy);
        for secret in session.secrets() {
            self.recorder.hide(secret.expose_secret());
        }
        let confirmed =
            self.accepted
                .plan
                .confirm(&descriptor.name, session.manifest(), &self.engaged.holders);
        let accepted = confirmed
            .map_err(AbpError::from)
            .and_then(|plan| session.accept(&plan).map(|()| plan));
        Ok(match accepted {
            Ok(plan) => {
                let plan = Arc::new(plan);
                self.engaged.plan = Some(Arc::clone(&plan));
                Ok((session, plan))
            }
            Err(error) => Err(error),
        })
    }

    /// Lets the meter count at the prices of a backend, which has to be able to keep a budget.
    fn engage_meter(&mut self, descriptor: &BackendDescriptor) -> Result<(), RuntimeError> {
        let model = asked_model(&self.accepted.plan, &descriptor.name);
        let prices = self.accepted.options.prices.of(&descriptor.name);
        let provenance = match descriptor.measures_usage {
            true => Attestation::Measured,
            false => Attestation::Claimed,
        };
        let meter = &mut self.accepted.meter;
        check_budget(
            meter,
            &descriptor.name,
            model.as_deref(),
            prices,
            provenance,
        )?;
        meter.engage(prices.clone(), model, provenance);
        Ok(())
    }

    /// Opens the endpoint of the run's MCP servers, where it has some.
    pub(super) async fn open_mcp(&mut self, stage: &Stage) -> Result<Option<RunMcp>, AbpError> {
        let Some(grant) = self.accepted.mcp.take() else {
            return Ok(None);
        };
        let place = McpPlace {
            workspace: stage.root(),
            source: stage.source(),
            hidden: self.accepted.runtime.hidden_dirs(),
            policy: &self.accepted.policy,
        };
        let mcp = grant.open(&place).await?;
        self.recorder.hide(mcp.access().key.expose_secret());
        Ok(Some(mcp))
    }
}

/// Raises the holders of lists on files whose every rule has a mount.
fn with_mounts(mut holders: Holders, mounted: &[Rule], policy: &PolicyEngine) -> Holders {
    let all_mounted = |list: PolicyList| {
        let count = policy.patterns(list).len();
        count > 0 && mounted.iter().filter(|rule| rule.list == list).count() == count
    };
    if all_mounted(PolicyList::DenyRead) {
        holders.reads = Holder::MOUNTED;
    }
    if all_mounted(PolicyList::DenyWrite) {
        holders.writes = Holder::MOUNTED;
    }
    holders
}

/// Raises the holders of lists on tools whose every rule names a tool that is asked about.
fn with_asked(mut holders: Holders, asked_tools: &[&str], policy: &PolicyEngine) -> Holders {
    let all_asked = |list: PolicyList| {
        let patterns = policy.patterns(list);
        let is_asked = |pattern: &String| is_asked(list, pattern, asked_tools);
        !patterns.is_empty() && patterns.iter().all(is_asked)
    };
    let no_list = policy.patterns(PolicyList::AllowedTools).is_empty();
    if no_list && all_asked(PolicyList::DisallowedTools) {
        holders.tools = Holder::ASKED;
    }
    if all_asked(PolicyList::RequireApprovalFor) {
        holders.approvals = Holder::ASKED;
    }
    holders
}
