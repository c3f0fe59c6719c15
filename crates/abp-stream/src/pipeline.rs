//! Stages that events pass through.

use abp_core::AgentEvent;

use crate::{Predicate, Redactor};

/// One stage.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Stage {
    /// Lets through what meets the condition.
    Keep(Predicate),
    /// Lets through what does not meet the condition.
    Drop(Predicate),
    /// Takes secrets out.
    Redact(Redactor),
}

/// Stages in order.
#[derive(Debug, Clone, Default)]
pub struct Pipeline {
    stages: Vec<Stage>,
}

impl Pipeline {
    /// A pipeline that changes nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a stage at the end.
    #[must_use]
    pub fn then(mut self, stage: Stage) -> Self {
        self.stages.push(stage);
        self
    }

    /// The event as it leaves the pipeline; `None` where a stage held it back.
    #[must_use]
    pub fn apply(&self, event: AgentEvent) -> Option<AgentEvent> {
        self.stages
            .iter()
            .try_fold(event, |event, stage| match stage {
                Stage::Keep(condition) => condition.matches(&event).then_some(event),
                Stage::Drop(condition) => (!condition.matches(&event)).then_some(event),
                Stage::Redact(redactor) => Some(redactor.redact(event)),
            })
    }
}
