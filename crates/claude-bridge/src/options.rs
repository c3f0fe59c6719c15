//! Claude Code's options and ABP's work orders.

use abp_core::{RuntimeConfig, WorkOrder, WorkOrderBuilder};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// ABP's own setting that names the session to go on with.
const SESSION: &str = "session";

/// The options of Claude's Agent SDK that a work order can carry, by the names that the SDK gives them.
///
/// `allowedTools` of the SDK is not among them: it names tools that are used without a question, and ABP's policy
/// decides that. `tools` is the list of those that there are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaudeOptions {
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The most turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// The most that the run may cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_budget_usd: Option<f64>,
    /// The tools that there are; all where it is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Tools that are not used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disallowed_tools: Vec<String>,
    /// The session to go on with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
    /// Whether a copy of that session goes on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fork_session: bool,
}

impl ClaudeOptions {
    /// The work order for a prompt with these options.
    #[must_use]
    pub fn to_order(&self, prompt: &str) -> WorkOrder {
        let mut order = WorkOrderBuilder::new(prompt).build();
        order.policy.allowed_tools.clone_from(&self.tools);
        order
            .policy
            .disallowed_tools
            .clone_from(&self.disallowed_tools);
        let config = RuntimeConfig {
            model: self.model.clone(),
            max_turns: self.max_turns,
            max_budget_usd: self.max_budget_usd,
            ..RuntimeConfig::default()
        };
        order.config = config;
        if let Some(id) = &self.resume {
            let session = json!({ "id": id, "fork": self.fork_session });
            let settings = json!({ SESSION: session });
            order.config.vendor.insert("abp".to_owned(), settings);
        }
        order
    }

    /// The options that a work order stands for, and its prompt.
    #[must_use]
    pub fn from_order(order: &WorkOrder) -> (Self, &str) {
        let session = order.config.abp_setting(SESSION);
        let member = |name: &str| session.and_then(|session| session.get(name));
        let options = Self {
            model: order.config.model.clone(),
            max_turns: order.config.max_turns,
            max_budget_usd: order.config.max_budget_usd,
            tools: order.policy.allowed_tools.clone(),
            disallowed_tools: order.policy.disallowed_tools.clone(),
            resume: member("id").and_then(Value::as_str).map(str::to_owned),
            fork_session: member("fork").and_then(Value::as_bool).unwrap_or_default(),
        };
        (options, &order.task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_survive_the_way_through_an_order() {
        let cases = [
            json!({}),
            json!({"model": "claude-sonnet-4-5", "maxTurns": 3, "maxBudgetUsd": 0.5}),
            json!({"tools": ["Read"], "disallowedTools": ["Bash"]}),
            json!({"resume": "s-1"}),
            json!({"resume": "s-1", "forkSession": true}),
        ];
        for written in cases {
            let options: ClaudeOptions = serde_json::from_value(written.clone()).unwrap();
            let order = options.to_order("fix it");
            assert_eq!(
                ClaudeOptions::from_order(&order),
                (options.clone(), "fix it")
            );
            assert_eq!(serde_json::to_value(&options).unwrap(), written);
        }
    }
}
