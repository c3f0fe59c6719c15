//! The half of emulation that works on the answer.

use abp_core::{Capability, EmulationReport, EmulationStrategy};
use serde_json::Value;

/// How many violations of a schema are reported.
const MAX_VIOLATIONS: usize = 5;

/// Why an answer does not hold what was emulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The schema the answer is to follow is no valid JSON schema.
    #[error("the output schema is not a valid JSON schema: {0}")]
    InvalidSchema(String),
    /// The answer is no JSON.
    #[error("the answer is not JSON: {0}")]
    NotJson(String),
    /// The answer is JSON of another shape.
    #[error("the answer does not follow the output schema: {}", .0.join("; "))]
    SchemaViolation(Vec<String>),
}

/// Carries out the post-processing strategies of a report on the final answer.
#[derive(Debug, Clone, Default)]
pub struct PostProcessor {
    structured_output: Option<StructuredOutput>,
}

#[derive(Debug, Clone)]
struct StructuredOutput {
    schema: Option<std::sync::Arc<jsonschema::Validator>>,
}

impl PostProcessor {
    /// Prepares what the report promises; `output_schema` is what the answer is to follow.
    ///
    /// # Errors
    /// Fails where the schema itself is not valid, before anything is dispatched.
    pub fn new(report: &EmulationReport, output_schema: Option<&Value>) -> Result<Self, PostError> {
        let promised = report.applied.iter().any(|entry| {
            entry.capability == Capability::StructuredOutputJsonSchema
                && matches!(entry.strategy, EmulationStrategy::PostProcessing { .. })
        });
        if !promised {
            return Ok(Self::default());
        }
        match output_schema {
            Some(schema) => Self::for_schema(schema),
            None => Ok(Self {
                structured_output: Some(StructuredOutput { schema: None }),
            }),
        }
    }

    /// Checks answers against a schema.
    ///
    /// # Errors
    /// Fails where the schema itself is not valid.
    pub fn for_schema(schema: &Value) -> Result<Self, PostError> {
        let schema = jsonschema::validator_for(schema)
            .map_err(|error| PostError::InvalidSchema(error.to_string()))?;
        Ok(Self {
            structured_output: Some(StructuredOutput {
                schema: Some(std::sync::Arc::new(schema)),
            }),
        })
    }

    /// Whether there is anything to check.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.structured_output.is_none()
    }

    /// Checks the final answer.
    ///
    /// # Errors
    /// Says how the answer falls short of what was promised.
    pub fn check(&self, answer: &str) -> Result<(), PostError> {
        let Some(StructuredOutput { schema }) = &self.structured_output else {
            return Ok(());
        };
        let value: Value = serde_json::from_str(without_fence(answer))
            .map_err(|error| PostError::NotJson(error.to_string()))?;
        let Some(schema) = schema else { return Ok(()) };
        let violations: Vec<_> = schema
            .iter_errors(&value)
            .take(MAX_VIOLATIONS)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        if violations.is_empty() {
            Ok(())
        } else {
            Err(PostError::SchemaViolation(violations))
        }
    }
}

/// Models like to wrap JSON in a markdown fence; what is inside is the answer.
fn without_fence(answer: &str) -> &str {
    let answer = answer.trim();
    answer
        .strip_prefix("```")
        .and_then(|rest| rest.split_once('\n'))
        .and_then(|(_, body)| body.strip_suffix("```"))
        .map_or(answer, str::trim)
}
