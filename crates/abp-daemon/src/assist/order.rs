//! From a request to a work order that names nothing of this machine.

use abp_core::{
    ClientCapabilities, ContextPacket, PolicyProfile, WorkOrder, WorkOrderBuilder, WorkspaceSpec,
};
use abp_error::{AbpError, ErrorCode};
use abp_glob::GlobList;

use super::request::AssistRequest;
use crate::runs::{RunPlane, configured_models};

/// The directory of the state in which nothing is. Runs get a copy of it.
const EMPTY: &str = "assist";

/// What an agent may do where the operator does not say: work in its own directory.
const USUAL_TOOLS: [&str; 5] = ["Read", "Write", "Edit", "Glob", "Grep"];

pub(super) async fn build(
    request: &AssistRequest,
    client: Option<ClientCapabilities>,
    runs: &RunPlane,
) -> Result<WorkOrder, AbpError> {
    if let Some(model) = &request.model {
        check_model(model, runs)?;
    }
    let mut order = WorkOrderBuilder::new(&request.task)
        .id(request.id)
        .workspace(empty_workspace(runs).await?)
        .policy(runs.default_policy().unwrap_or_else(own_directory_only))
        .context(ContextPacket {
            snippets: request.snippets.clone(),
            ..ContextPacket::default()
        })
        .build();
    order.config.model.clone_from(&request.model);
    order.client = client;
    Ok(order)
}

/// A directory of our own. Whatever may be found in it is left out.
async fn empty_workspace(runs: &RunPlane) -> Result<WorkspaceSpec, AbpError> {
    let root = runs.config().state_dir.join(EMPTY);
    tokio::fs::create_dir_all(&root).await.map_err(|error| {
        AbpError::new(
            ErrorCode::WorkspaceInitFailed,
            "there is no room for a workspace",
        )
        .with_source(error)
    })?;
    Ok(WorkspaceSpec {
        root: root.display().to_string(),
        exclude: vec!["**".to_owned()],
        ..WorkspaceSpec::default()
    })
}

fn own_directory_only() -> PolicyProfile {
    PolicyProfile {
        allowed_tools: USUAL_TOOLS.map(str::to_owned).to_vec(),
        ..PolicyProfile::default()
    }
}

/// Only models that the operator serves can be asked for.
fn check_model(model: &str, runs: &RunPlane) -> Result<(), AbpError> {
    let served: Vec<_> = configured_models(runs.config())
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
