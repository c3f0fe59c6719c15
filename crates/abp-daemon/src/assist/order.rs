//! From a request to a work order that names nothing of this machine.

use abp_control::{ControlPlane, OrderDraft, PolicyChoice, configured_models};
use abp_core::{ClientCapabilities, PolicyProfile, WorkOrder, WorkspaceSpec};
use abp_error::{AbpError, ErrorCode};
use abp_glob::GlobList;

use super::request::AssistRequest;

/// What an agent may do where the operator does not say: work in its own directory.
const USUAL_TOOLS: [&str; 5] = ["Read", "Write", "Edit", "Glob", "Grep"];

pub(super) async fn build(
    request: &AssistRequest,
    client: Option<ClientCapabilities>,
    plane: &ControlPlane,
) -> Result<WorkOrder, AbpError> {
    if let Some(model) = &request.model {
        check_model(model, plane)?;
    }
    let workspace = plane.empty_workspace(WorkspaceSpec::default()).await?;
    OrderDraft::new(&request.task)
        .policy(PolicyChoice::Unless(own_directory_only()))
        .with(|order| {
            order.id = request.id;
            order.workspace = workspace;
            order.context.snippets.clone_from(&request.snippets);
            order.config.model.clone_from(&request.model);
            order.client = client;
            order.lineage.clone_from(&request.lineage);
        })
        .build(plane)
}

fn own_directory_only() -> PolicyProfile {
    PolicyProfile {
        allowed_tools: USUAL_TOOLS.map(str::to_owned).to_vec(),
        ..PolicyProfile::default()
    }
}

/// Only models that the operator serves can be asked for.
fn check_model(model: &str, plane: &ControlPlane) -> Result<(), AbpError> {
    let served: Vec<_> = configured_models(plane.config())
        .iter()
        .map(|served| served.name.to_owned())
        .collect();
    let served = GlobList::new(&served)
        .map_err(|error| AbpError::new(ErrorCode::ConfigInvalid, error.to_string()))?;
    if served.is_match(model) {
        return Ok(());
    }
    let message = format!("no model {model:?} is served");
    Err(AbpError::new(ErrorCode::BackendModelNotFound, message))
}
