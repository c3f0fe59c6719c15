//! Delivering ABP's emulations to a sidecar: as instructions in its task.
//!
//! A sidecar hands its agent a task in words, so an emulation that is an instruction is put there, in
//! a block of its own after the task. The block's lines are fixed by docs/sidecar_protocol.md:
//!
//! ```text
//! Fix the test.
//!
//! <abp-instructions>
//! [extended_thinking] Think step by step before answering.
//! </abp-instructions>
//! ```

use std::fmt::Write as _;

use abp_core::ir::{IrConversation, IrResponseFormatKind};
use abp_core::{Capability, EmulationEntry, EmulationStrategy, RuntimeConfig, WorkOrder};
use abp_error::{AbpError, ErrorCode};
use abp_plan::{ConfirmedPlan, Payload};
use serde_json::{Value, json};

/// The first line of the block.
const OPENING: &str = "<abp-instructions>";
/// The last line of the block.
const CLOSING: &str = "</abp-instructions>";
/// The setting under `config.vendor.abp` that lists the instructions.
const SETTING: &str = "emulation";

/// An emulation and the words in which the agent is told of it.
#[derive(Debug, PartialEq)]
struct Instruction<'p> {
    entry: &'p EmulationEntry,
    text: String,
}

/// Puts emulations into an order: as instructions after its task, and as entries of
/// `config.vendor.abp.emulation`, in place of whatever the order has there. Where a vendor's request
/// is passed on as it is there is no conversation, and nothing can be put in.
///
/// # Errors
/// Names the first emulation that a sidecar cannot be given.
pub fn deliver_emulations(
    order: &mut WorkOrder,
    applied: &[EmulationEntry],
    conversation: Option<&IrConversation>,
) -> Result<(), AbpError> {
    let instructions = instructions(order, applied, conversation)?;
    remove_own(&mut order.config, SETTING);
    if instructions.is_empty() {
        return Ok(());
    }
    order.task = task_with(&order.task, &instructions);
    let settings = instructions.iter().map(Instruction::to_setting).collect();
    set_own(&mut order.config, SETTING, settings);
    Ok(())
}

/// Checks that every emulation of a plan can be put into its order.
///
/// # Errors
/// Names the first emulation that cannot be delivered.
pub fn check_deliverable(plan: &ConfirmedPlan) -> Result<(), AbpError> {
    let applied = &plan.report().emulation.applied;
    instructions(plan.order(), applied, conversation_of(plan.payload())).map(drop)
}

/// The conversation of a payload; none where the vendor's request is passed on as it is.
#[must_use]
pub fn conversation_of(payload: &Payload) -> Option<&IrConversation> {
    match payload {
        Payload::Conversation { conversation } => Some(conversation),
        _ => None,
    }
}

fn instructions<'p>(
    order: &WorkOrder,
    applied: &'p [EmulationEntry],
    conversation: Option<&IrConversation>,
) -> Result<Vec<Instruction<'p>>, AbpError> {
    let instruct = |entry: &'p EmulationEntry| match conversation {
        Some(conversation) => Instruction::new(entry, order, conversation),
        None => Err(undeliverable(entry, "the vendor's request is not changed")),
    };
    applied.iter().map(instruct).collect()
}

impl<'p> Instruction<'p> {
    fn new(
        entry: &'p EmulationEntry,
        order: &WorkOrder,
        conversation: &IrConversation,
    ) -> Result<Self, AbpError> {
        let text = match (&entry.strategy, &entry.capability) {
            (EmulationStrategy::SystemPromptInjection { prompt }, _) => prompt.clone(),
            // The host checks the answer at the end of the run.
            (EmulationStrategy::PostProcessing { .. }, Capability::StructuredOutputJsonSchema) => {
                match output_schema(order, conversation) {
                    Some(schema) => format!(
                        "Answer with nothing but JSON that follows this JSON schema: {schema}"
                    ),
                    None => "Answer with nothing but JSON.".to_owned(),
                }
            }
            (EmulationStrategy::PostProcessing { .. }, _) => {
                let problem = "its answers cannot be changed after they were given";
                return Err(undeliverable(entry, problem));
            }
            (EmulationStrategy::Disabled { reason }, _) => {
                return Err(undeliverable(entry, reason));
            }
        };
        Ok(Self { entry, text })
    }

    fn to_setting(&self) -> Value {
        json!({
            "capability": self.entry.capability,
            "strategy": self.entry.strategy,
            "instruction": self.text,
        })
    }
}

fn task_with(task: &str, instructions: &[Instruction<'_>]) -> String {
    let mut text = format!("{task}\n\n{OPENING}\n");
    for Instruction { entry, text: words } in instructions {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "[{}] {words}", entry.capability);
    }
    text.push_str(CLOSING);
    text
}

/// Sets one of ABP's own settings, in place of whatever the order has under this name.
pub(crate) fn set_own(config: &mut RuntimeConfig, key: &str, value: Value) {
    let flat = format!("abp.{key}");
    config.vendor.remove(&flat);
    let settings = config.vendor.entry("abp".to_owned());
    match settings.or_insert_with(|| json!({})) {
        Value::Object(settings) => {
            settings.insert(key.to_owned(), value);
        }
        _ => {
            config.vendor.insert(flat, value);
        }
    }
}

/// Takes one of ABP's own settings out.
pub(crate) fn remove_own(config: &mut RuntimeConfig, key: &str) {
    config.vendor.remove(&format!("abp.{key}"));
    if let Some(Value::Object(settings)) = config.vendor.get_mut("abp") {
        settings.remove(key);
    }
}

/// The schema that the answer is to follow: the order's, or that of the vendor's request it carries.
fn output_schema(order: &WorkOrder, conversation: &IrConversation) -> Option<Value> {
    if let Some(schema) = order.config.abp_setting("output_schema") {
        return Some(schema.clone());
    }
    let format = conversation.settings.response_format.as_ref()?;
    let IrResponseFormatKind::JsonSchema { schema, .. } = &format.kind else {
        return None;
    };
    serde_json::from_str(schema.as_ref()?.text()).ok()
}

fn undeliverable(entry: &EmulationEntry, problem: &str) -> AbpError {
    let capability = &entry.capability;
    let message = format!(
        "the emulation of {capability} cannot be delivered to a sidecar: {problem}; require another level of {capability}, or use a backend that has it"
    );
    AbpError::new(ErrorCode::CapabilityUnsupported, message)
        .with_context("capability", capability.as_str())
}

#[cfg(test)]
mod tests;
