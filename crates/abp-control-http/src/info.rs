//! What the server is made of: backends, capabilities, configuration, schemas, and checks of documents.

use abp_config::{Loaded, render_json};
use abp_core::{PolicyProfile, WorkOrder, schema, validate_work_order, verify_receipt_document};
use abp_error::ErrorCode;
use abp_gateway::Refusal;
use abp_policy::PolicyEngine;
use abp_store::KeyScope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::api::{
    BackendPage, BackendView, CapabilityPage, CapabilityView, ConfigView, NodePage, NodeView,
    ValidateRequest, ValidationFinding, ValidationReport,
};
use crate::call::Call;
use crate::query::NoQuery;
use crate::table::RouteRow;

pub(crate) fn rows() -> Vec<RouteRow> {
    let read = KeyScope::RunsRead;
    vec![
        RouteRow::get(
            "/backends",
            read,
            "list_backends",
            "Lists the backends and whether they could be opened.",
            backends,
        ),
        RouteRow::get(
            "/capabilities",
            read,
            "list_capabilities",
            "Lists what each backend can do.",
            capabilities,
        ),
        RouteRow::get(
            "/nodes",
            read,
            "list_nodes",
            "Lists the servers that carry runs out: the one that answers.",
            nodes,
        ),
        RouteRow::get(
            "/config",
            KeyScope::Admin,
            "get_config",
            "Returns the configuration in force with the origin of each value; secrets are hidden.",
            config,
        ),
        RouteRow::get(
            "/schemas/{name}",
            read,
            "get_schema",
            "Returns a JSON schema of the contract.",
            contract_schema,
        ),
        RouteRow::post(
            "/validate",
            read,
            "validate_document",
            "Checks a work order, a receipt or a policy without using it.",
            validate,
        ),
    ]
}

/// The configuration as the server shows it: made once, when it starts.
pub(crate) fn config_view(loaded: &Loaded) -> ConfigView {
    let mut shown = render_json(loaded, true);
    let mut take = |name: &str| shown.get_mut(name).map(Value::take).unwrap_or_default();
    ConfigView {
        config: take("config"),
        origins: take("origins"),
    }
}

async fn backends(call: Call, _: NoQuery) -> Result<BackendPage, Refusal> {
    let plane = call.face.plane().clone();
    // Programs are looked for on the search path, which is work for the disk.
    let found = tokio::task::spawn_blocking(move || plane.check_backends()).await;
    let found = found.map_err(|error| Refusal::new(ErrorCode::Internal, error.to_string()))?;
    let backends = found.into_iter().map(|backend| BackendView {
        name: backend.name,
        is_default: backend.is_default,
        problem: backend.problem,
    });
    Ok(BackendPage {
        backends: backends.collect(),
    })
}

async fn nodes(call: Call, _: NoQuery) -> Result<NodePage, Refusal> {
    let plane = call.face.plane();
    let control = &call.face.config().control;
    let running = plane.runtime().running().len();
    Ok(NodePage {
        nodes: vec![NodeView {
            node_id: call.face.node_id().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: call.face.started_at(),
            running: u32::try_from(running).unwrap_or(u32::MAX),
            max_running: control.max_running,
        }],
    })
}

async fn capabilities(call: Call, _: NoQuery) -> Result<CapabilityPage, Refusal> {
    let registry = call.face.plane().registry();
    let backends = registry.backends().map(|backend| CapabilityView {
        backend: backend.descriptor().name.clone(),
        capabilities: backend.manifest(None),
    });
    Ok(CapabilityPage {
        backends: backends.collect(),
    })
}

async fn config(call: Call, _: NoQuery) -> Result<ConfigView, Refusal> {
    Ok(call.face.config_view().clone())
}

/// A JSON schema.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
struct SchemaDocument(Map<String, Value>);

async fn contract_schema(call: Call, _: NoQuery) -> Result<SchemaDocument, Refusal> {
    let name = call.params.get("name");
    let documents = schema::documents();
    let found = documents.into_iter().find(|(stem, _)| *stem == name);
    match found {
        Some((_, Value::Object(document))) => Ok(SchemaDocument(document)),
        _ => {
            let known: Vec<_> = schema::documents().iter().map(|(stem, _)| *stem).collect();
            let message = format!("no such schema; there are {}", known.join(", "));
            Err(Refusal::new(ErrorCode::NotFound, message).at("name"))
        }
    }
}

async fn validate(call: Call, request: ValidateRequest) -> Result<ValidationReport, Refusal> {
    drop(call);
    let problems = match request {
        ValidateRequest::WorkOrder(document) => order_problems(&document),
        ValidateRequest::Receipt(document) => receipt_problems(&document),
        ValidateRequest::Policy(document) => policy_problems(&document),
    };
    Ok(ValidationReport {
        is_valid: problems.is_empty(),
        problems,
    })
}

fn finding(code: ErrorCode, problem: &impl ToString) -> ValidationFinding {
    ValidationFinding {
        code,
        message: problem.to_string(),
    }
}

fn order_problems(document: &Value) -> Vec<ValidationFinding> {
    let order: WorkOrder = match abp_core::read_document(document.to_string().as_bytes()) {
        Ok(order) => order,
        Err(error) => return vec![finding(error.code(), &error)],
    };
    let mut problems = Vec::new();
    if let Err(errors) = validate_work_order(&order) {
        problems.extend(errors.iter().map(|error| finding(error.code(), error)));
    }
    if let Err(error) = PolicyEngine::new(&order.policy) {
        problems.push(finding(ErrorCode::PolicyInvalid, &error));
    }
    problems
}

fn receipt_problems(document: &Value) -> Vec<ValidationFinding> {
    match verify_receipt_document(document.to_string().as_bytes()) {
        Ok(_) => Vec::new(),
        Err(errors) => errors
            .iter()
            .map(|error| finding(error.code(), error))
            .collect(),
    }
}

fn policy_problems(document: &Value) -> Vec<ValidationFinding> {
    let read = abp_core::read_document::<PolicyProfile>(document.to_string().as_bytes());
    match read {
        Err(error) => vec![finding(ErrorCode::PolicyInvalid, &error)],
        Ok(profile) => match PolicyEngine::new(&profile) {
            Ok(_) => Vec::new(),
            Err(error) => vec![finding(ErrorCode::PolicyInvalid, &error)],
        },
    }
}
