//! What the journal has of a run from its start: the redacted order, the project, and the request's name.

use abp_core::WorkOrder;
use abp_plan::RunPlan;
use abp_receipt::Hash;
use abp_store::{IdempotencyKey, NewRun, Project};
use abp_stream::Redactor;
use uuid::Uuid;

use crate::RuntimeError;
use crate::record::now;

/// The row of a run.
pub(crate) fn journal_entry(
    plan: &RunPlan,
    run_id: Uuid,
    backend_asked: &str,
) -> Result<NewRun, RuntimeError> {
    Ok(NewRun {
        run_id,
        order_json: redacted(plan.order())?,
        order_sha256: plan.order_sha256().to_owned(),
        backend: plan.projection().selected_backend.clone(),
        backend_asked: Some(backend_asked.to_owned()),
        // A root that is not there is refused when it is staged.
        project: Project::locate(plan.order().workspace.root.as_ref()).ok(),
        principal: None,
        at: now(),
        idempotency_key: None,
    })
}

pub(crate) fn named_request(key: Option<&str>, request: Option<Hash>) -> Option<IdempotencyKey> {
    let key = key?.to_owned();
    Some(IdempotencyKey {
        key,
        request: request?,
    })
}

/// What makes two requests the same: the backend and the order, but for its id and for who listens. A
/// relative root is another directory elsewhere.
pub(crate) fn request_hash(backend_name: &str, mut order: WorkOrder) -> Result<Hash, RuntimeError> {
    order.id = Uuid::nil();
    order.client = None;
    let root = std::path::absolute(&order.workspace.root);
    let request = serde_json::to_vec(&(backend_name, root.ok(), order));
    let request = request.map_err(|error| RuntimeError::Lost(error.to_string()))?;
    Ok(Hash::of(&request))
}

/// The order for the journal, without the secrets of its environment.
fn redacted(order: &WorkOrder) -> Result<String, RuntimeError> {
    let mut json =
        serde_json::to_value(order).map_err(|error| RuntimeError::Lost(error.to_string()))?;
    Redactor::for_environment(&order.config.env).redact_value(&mut json);
    Ok(json.to_string())
}
