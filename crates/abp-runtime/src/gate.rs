//! The gate: every action of a backend is judged here before it happens, or when it is seen.
//!
//! What the gate decides it also records: every question, every answer and every denial is an event.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use abp_backend_core::is_asked;
use abp_core::{AgentEventKind, EnforcedRule, EnforcementReport, PermissionOutcome};
use abp_error::{AbpError, ErrorCode};
use abp_mcp::ServerTool;
use abp_policy::{
    ApprovedRead, ApprovedWrite, Decision, Holder, Holders, PolicyEngine, Rule, Verdict,
};

use serde_json::Value;
use uuid::Uuid;

use crate::approval::{Answer, ApprovalDesk, Approvals, Decider};
use crate::mcp;
use crate::record::Recorder;

/// The most breaches of a workspace that are told one by one.
const MAX_BREACH_EVENTS: u64 = 100;

/// What is being judged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Action<'a> {
    pub(crate) tool_name: &'a str,
    pub(crate) tool_use_id: Option<&'a str>,
    /// A path, a command, a host.
    pub(crate) target: Option<&'a str>,
}

/// The policy of one run, and what came of it.
#[derive(Debug)]
pub(crate) struct Gate {
    engine: PolicyEngine,
    approvals: Approvals,
    desk: ApprovalDesk,
    denied: Vec<(Rule, u64)>,
    /// Writes that were denied when they were asked for or announced.
    denied_writes: BTreeSet<PathBuf>,
    /// Changes of the workspace that broke a rule.
    breaches: u64,
}

impl Gate {
    pub(crate) fn new(engine: PolicyEngine, approvals: Approvals, desk: ApprovalDesk) -> Self {
        let denied = engine.rules().map(|rule| (rule, 0)).collect();
        Self {
            engine,
            approvals,
            desk,
            denied,
            denied_writes: BTreeSet::new(),
            breaches: 0,
        }
    }

    /// Judges the use of a tool, asking a person where the policy wants that.
    ///
    /// # Errors
    /// Says why the tool may not be used.
    pub(crate) async fn tool(
        &mut self,
        action: Action<'_>,
        recorder: &mut Recorder,
    ) -> Result<(), String> {
        let decision = self.engine.judge_tool(action.tool_name);
        self.settle(action, decision, recorder).await
    }

    /// Judges a call of a tool of an MCP server, asking a person where the policy wants that.
    ///
    /// # Errors
    /// Says why the tool may not be called.
    pub(crate) async fn mcp_tool(
        &mut self,
        tool: &ServerTool,
        recorder: &mut Recorder,
    ) -> Result<(), String> {
        let name = mcp::qualified(tool);
        let action = Action {
            tool_name: &name,
            tool_use_id: None,
            target: None,
        };
        let decision = mcp::judge(&self.engine, tool);
        self.settle(action, decision, recorder).await
    }

    /// Judges a read of a resolved path.
    ///
    /// # Errors
    /// Says why the path may not be read.
    pub(crate) async fn read(
        &mut self,
        action: Action<'_>,
        path: &Path,
        recorder: &mut Recorder,
    ) -> Result<ApprovedRead, String> {
        match self.engine.approve_read(path) {
            Ok(approved) => Ok(approved),
            Err(decision) => Err(self.deny(action, decision, Decider::Policy, recorder).await),
        }
    }

    /// Judges a write to a resolved path.
    ///
    /// # Errors
    /// Says why the path may not be written.
    pub(crate) async fn write(
        &mut self,
        action: Action<'_>,
        path: &Path,
        recorder: &mut Recorder,
    ) -> Result<ApprovedWrite, String> {
        match self.engine.approve_write(path) {
            Ok(approved) => Ok(approved),
            Err(decision) => {
                self.denied_writes.insert(path.to_owned());
                Err(self.deny(action, decision, Decider::Policy, recorder).await)
            }
        }
    }

    /// Judges a change that was found in the workspace. Every breach is counted; the first hundred are
    /// events.
    ///
    /// # Errors
    /// Says which rule the change breaks.
    pub(crate) async fn change(
        &mut self,
        action: Action<'_>,
        path: &Path,
        recorder: &mut Recorder,
    ) -> Result<(), String> {
        let decision = self.engine.can_write_path(path);
        if decision.is_allowed() {
            return Ok(());
        }
        // Announced before, and counted then.
        if self.denied_writes.contains(path) {
            return Err(decision.reason);
        }
        self.breaches += 1;
        if self.breaches <= MAX_BREACH_EVENTS {
            return Err(self.deny(action, decision, Decider::Policy, recorder).await);
        }
        self.count(&decision);
        Err(decision.reason)
    }

    /// Judges a connection to a host, named as `host` or `host:port`.
    ///
    /// # Errors
    /// Says why the host may not be reached.
    pub(crate) async fn network(
        &mut self,
        action: Action<'_>,
        host: &str,
        recorder: &mut Recorder,
    ) -> Result<(), String> {
        if !self.engine.has_network_rules() {
            return Ok(());
        }
        let decision = self.engine.can_reach_network(host);
        match decision.verdict {
            Verdict::Allow => Ok(()),
            Verdict::Ask | Verdict::Deny => {
                Err(self.deny(action, decision, Decider::Policy, recorder).await)
            }
        }
    }

    /// How each rule was held, and by whom.
    /// `mounted` are the rules that have a mount of their own, `asked_tools` the tools that are asked about.
    pub(crate) fn report(
        &self,
        holders: &Holders,
        mounted: &[Rule],
        asked_tools: &[&str],
    ) -> EnforcementReport {
        let rules = self.denied.iter().map(|(rule, denied)| {
            let holder = if mounted.contains(rule) {
                Holder::MOUNTED
            } else if is_asked(rule.list, &rule.pattern, asked_tools) {
                Holder::ASKED
            } else {
                holders.of(rule.list)
            };
            EnforcedRule {
                list: rule.list.as_str().to_owned(),
                pattern: rule.pattern.clone(),
                enforced_by: holder.level,
                by: holder.by.to_owned(),
                denied: *denied,
            }
        });
        EnforcementReport {
            rules: rules.collect(),
            ..EnforcementReport::default()
        }
    }

    async fn settle(
        &mut self,
        action: Action<'_>,
        decision: Decision,
        recorder: &mut Recorder,
    ) -> Result<(), String> {
        match decision.verdict {
            Verdict::Allow => Ok(()),
            Verdict::Deny => Err(self.deny(action, decision, Decider::Policy, recorder).await),
            Verdict::Ask => self.ask(action, decision, recorder).await,
        }
    }

    async fn ask(
        &mut self,
        action: Action<'_>,
        decision: Decision,
        recorder: &mut Recorder,
    ) -> Result<(), String> {
        let (approval_id, answer) = self.decide(action, &decision, recorder).await;
        let Answer {
            approved,
            by,
            reason,
        } = answer;
        if approved {
            let event = resolved(action, PermissionOutcome::Approved, by, reason, approval_id);
            recorder.record(event, None).await;
            return Ok(());
        }
        self.count(&decision);
        let reason = format!("{}; {reason}", decision.reason);
        let outcome = PermissionOutcome::Denied;
        let event = resolved(action, outcome, by, reason.clone(), approval_id);
        recorder.record(event, None).await;
        Err(reason)
    }

    /// Finds the answer to a question, asking a person where somebody may be asked; its id then, too.
    async fn decide(
        &mut self,
        action: Action<'_>,
        decision: &Decision,
        recorder: &mut Recorder,
    ) -> (Option<Uuid>, Answer) {
        let in_advance = self.approvals.in_advance(action.tool_name);
        let timeout = match (in_advance, self.approvals.timeout()) {
            (None, Some(timeout)) => timeout,
            (in_advance, _) => {
                recorder.record(asked(action, decision, None), None).await;
                let nobody = "nobody can be asked and it was not approved in advance";
                return (None, in_advance.unwrap_or_else(|| Answer::denied(nobody)));
            }
        };
        // Its rows are written before anybody hears of it, so that whoever hears of it can answer.
        match self.desk.ask(action, decision, timeout).await {
            Ok(question) => {
                let id = question.record.id;
                recorder
                    .record(asked(action, decision, Some(id)), None)
                    .await;
                let answer = self.desk.wait(question, recorder.end()).await;
                (Some(id), answer)
            }
            Err(error) => {
                recorder.record(asked(action, decision, None), None).await;
                let reason = format!("the question cannot be stored: {error}");
                (None, Answer::denied(&reason))
            }
        }
    }

    async fn deny(
        &mut self,
        action: Action<'_>,
        decision: Decision,
        by: Decider,
        recorder: &mut Recorder,
    ) -> String {
        self.count(&decision);
        let reason = decision.reason.clone();
        let event = resolved(action, PermissionOutcome::Denied, by, reason, None);
        recorder.record(event, None).await;
        decision.reason
    }
}

impl Gate {
    /// Counts a backend that refused to be opened because of a rule, which its error names.
    pub(crate) fn count_refusal(&mut self, error: &AbpError) {
        if error.code() != ErrorCode::PolicyDenied {
            return;
        }
        let named = |key: &str| error.context().get(key).and_then(Value::as_str);
        let (Some(list), Some(pattern)) = (named("list"), named("pattern")) else {
            return;
        };
        let mut rules = self.denied.iter_mut();
        let rule = rules.find(|(rule, _)| rule.list.as_str() == list && rule.pattern == pattern);
        if let Some((_, count)) = rule {
            *count += 1;
        }
    }

    fn count(&mut self, decision: &Decision) {
        if let Some(rule) = &decision.rule {
            self.count_rule(rule);
        }
    }

    /// Counts something that a rule refused.
    pub(crate) fn count_rule(&mut self, rule: &Rule) {
        if let Some((_, count)) = self.denied.iter_mut().find(|(known, _)| known == rule) {
            *count += 1;
        }
    }
}

fn resolved(
    action: Action<'_>,
    outcome: PermissionOutcome,
    by: Decider,
    reason: String,
    approval_id: Option<Uuid>,
) -> AgentEventKind {
    let (decided_by, decided_via) = by.into_parts();
    AgentEventKind::PermissionResolved {
        tool_name: action.tool_name.to_owned(),
        tool_use_id: action.tool_use_id.map(str::to_owned),
        target: action.target.map(str::to_owned),
        outcome,
        decided_by,
        decided_via,
        reason,
        approval_id,
    }
}

fn asked(action: Action<'_>, decision: &Decision, approval_id: Option<Uuid>) -> AgentEventKind {
    AgentEventKind::PermissionRequested {
        tool_name: action.tool_name.to_owned(),
        tool_use_id: action.tool_use_id.map(str::to_owned),
        target: action.target.map(str::to_owned),
        reason: decision.reason.clone(),
        approval_id,
    }
}
