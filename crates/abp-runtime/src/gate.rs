//! The gate: every action of a backend is judged here before it happens, or when it is seen.

use std::path::Path;

use abp_core::{
    AgentEventKind, EnforcedRule, EnforcementLevel, EnforcementReport, PermissionOutcome,
};
use abp_glob::{GlobError, GlobList};
use abp_policy::{ApprovedRead, ApprovedWrite, Decision, PolicyEngine, Rule, Verdict};

/// What is approved in advance for tools that need approval; nothing by default.
#[derive(Debug, Clone, Default)]
pub struct Approvals {
    tools: Option<GlobList>,
}

impl Approvals {
    /// Approves tools by glob; nothing else.
    ///
    /// # Errors
    /// Fails where a pattern is not valid.
    pub fn for_tools(patterns: &[String]) -> Result<Self, GlobError> {
        GlobList::new(patterns).map(|tools| Self { tools: Some(tools) })
    }
}

/// What is being judged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Action<'a> {
    pub(crate) tool_name: &'a str,
    pub(crate) tool_use_id: Option<&'a str>,
    /// A path, a command, a host.
    pub(crate) target: Option<&'a str>,
}

/// A judgement, with the events that tell of it.
#[derive(Debug)]
pub(crate) struct Ruling<T> {
    pub(crate) events: Vec<AgentEventKind>,
    /// What was approved, or why not.
    pub(crate) result: Result<T, String>,
}

/// The policy of one run, and what came of it.
#[derive(Debug)]
pub(crate) struct Gate {
    engine: PolicyEngine,
    approvals: Approvals,
    denied: Vec<(Rule, u64)>,
}

impl Gate {
    pub(crate) fn new(engine: PolicyEngine, approvals: Approvals) -> Self {
        let denied = engine.rules().map(|rule| (rule, 0)).collect();
        Self {
            engine,
            approvals,
            denied,
        }
    }

    /// Judges the use of a tool.
    pub(crate) fn tool(&mut self, action: Action<'_>) -> Ruling<()> {
        let decision = self.engine.judge_tool(action.tool_name);
        match decision.verdict {
            Verdict::Allow => Ruling {
                events: Vec::new(),
                result: Ok(()),
            },
            Verdict::Deny => self.deny(action, decision, "policy"),
            Verdict::Ask => self.ask(action, decision),
        }
    }

    /// Judges a read of a resolved path.
    pub(crate) fn read(&mut self, action: Action<'_>, path: &Path) -> Ruling<ApprovedRead> {
        match self.engine.approve_read(path) {
            Ok(approved) => Ruling {
                events: Vec::new(),
                result: Ok(approved),
            },
            Err(decision) => self.deny(action, decision, "policy"),
        }
    }

    /// Judges a write to a resolved path.
    pub(crate) fn write(&mut self, action: Action<'_>, path: &Path) -> Ruling<ApprovedWrite> {
        match self.engine.approve_write(path) {
            Ok(approved) => Ruling {
                events: Vec::new(),
                result: Ok(approved),
            },
            Err(decision) => self.deny(action, decision, "policy"),
        }
    }

    /// How each rule was held; `level` is what the backend's kind allows.
    pub(crate) fn report(&self, level: EnforcementLevel) -> EnforcementReport {
        let rules = self.denied.iter().map(|(rule, denied)| EnforcedRule {
            list: rule.list.as_str().to_owned(),
            pattern: rule.pattern.clone(),
            enforced_by: level,
            denied: *denied,
        });
        EnforcementReport {
            rules: rules.collect(),
        }
    }

    fn ask(&mut self, action: Action<'_>, decision: Decision) -> Ruling<()> {
        let asked = AgentEventKind::PermissionRequested {
            tool_name: action.tool_name.to_owned(),
            tool_use_id: action.tool_use_id.map(str::to_owned),
            target: action.target.map(str::to_owned),
            reason: decision.reason.clone(),
        };
        let mut ruling = match self
            .approvals
            .tools
            .as_ref()
            .and_then(|tools| tools.first_match(action.tool_name))
        {
            Some(approved) => Ruling {
                events: vec![resolved(
                    action,
                    PermissionOutcome::Approved,
                    "operator",
                    format!("approved in advance by {:?}", approved.pattern),
                )],
                result: Ok(()),
            },
            None => self.deny(
                action,
                Decision {
                    reason: format!(
                        "{}; nobody can be asked and it was not approved in advance",
                        decision.reason
                    ),
                    ..decision
                },
                "default",
            ),
        };
        ruling.events.insert(0, asked);
        ruling
    }

    fn deny<T>(&mut self, action: Action<'_>, decision: Decision, decided_by: &str) -> Ruling<T> {
        if let Some(rule) = &decision.rule
            && let Some((_, count)) = self.denied.iter_mut().find(|(known, _)| known == rule)
        {
            *count += 1;
        }
        Ruling {
            events: vec![resolved(
                action,
                PermissionOutcome::Denied,
                decided_by,
                decision.reason.clone(),
            )],
            result: Err(decision.reason),
        }
    }
}

fn resolved(
    action: Action<'_>,
    outcome: PermissionOutcome,
    decided_by: &str,
    reason: String,
) -> AgentEventKind {
    AgentEventKind::PermissionResolved {
        tool_name: action.tool_name.to_owned(),
        tool_use_id: action.tool_use_id.map(str::to_owned),
        target: action.target.map(str::to_owned),
        outcome,
        decided_by: decided_by.to_owned(),
        reason,
    }
}
