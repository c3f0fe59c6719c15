//! The JSON schemas of the contract, as published under `schemas/`.

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::Value;

use crate::{
    AgentEvent, CapabilityManifest, CapabilityRequirements, PolicyProfile, Receipt, WorkOrder,
};

/// Every published schema: the stem of its file, and the schema.
#[must_use]
pub fn documents() -> Vec<(&'static str, Value)> {
    vec![
        ("work_order", of::<WorkOrder>()),
        ("receipt", of::<Receipt>()),
        ("agent_event", of::<AgentEvent>()),
        ("policy_profile", of::<PolicyProfile>()),
        ("capability_manifest", of::<CapabilityManifest>()),
        ("capability_requirements", of::<CapabilityRequirements>()),
    ]
}

fn of<T: JsonSchema>() -> Value {
    SchemaGenerator::default()
        .into_root_schema_for::<T>()
        .to_value()
}
