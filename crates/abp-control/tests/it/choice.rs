//! The choice of a backend by `auto` among agents that are installed, or not, or broken.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use abp_agents::{AgentProgram, PackageSource, presets};
use abp_control::{OrderDraft, Submission};
use abp_core::{Capability, CapabilityRequirement, MinSupport, WorkOrder};
use abp_runtime::StartedRun;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::lab::{Lab, me};

/// Puts a program in the place of an agent that is one, as if it had been installed.
fn install(agents: &Path, name: &str, program: &str) {
    let preset = presets().iter().find(|preset| preset.name == name).unwrap();
    let (AgentProgram::Native(path), PackageSource::Npm { version, lock, .. }) =
        (preset.program, preset.source)
    else {
        panic!("{name} is a script");
    };
    let arch = match std::env::consts::ARCH {
        "x86_64" => "x64",
        _ => "arm64",
    };
    let place = agents.join(name).join(version);
    let file = place
        .join("node_modules")
        .join(path.replace("{arch}", arch));
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, program).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    let hash = Sha256::digest(lock.as_bytes());
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(place.join("installed"), hash).unwrap();
}

/// A lab where this agent is installed as a program that ends at once.
fn lab_with(agent: Option<&str>, mut config: Value) -> (tempfile::TempDir, Lab) {
    let agents = tempfile::tempdir().unwrap();
    if let Some(name) = agent {
        install(agents.path(), name, "#!/bin/sh\nexit 7\n");
    }
    config["agents_dir"] = json!(agents.path());
    (agents, Lab::new(&["a.txt"], config))
}

fn order(lab: &Lab, requires: &[Capability]) -> WorkOrder {
    let root = lab.source().to_str().unwrap().to_owned();
    let required = requires.iter().map(|capability| CapabilityRequirement {
        capability: capability.clone(),
        min_support: MinSupport::Native,
    });
    let draft = OrderDraft::new("t").with(|order| {
        order.workspace.root = root;
        order.requirements.required = required.collect();
    });
    draft.build(&lab.plane).unwrap()
}

fn auto(order: WorkOrder) -> Submission {
    Submission {
        backend: Some("auto".to_owned()),
        ..Submission::new(order)
    }
}

fn upstream() -> Value {
    json!({"upstreams": {"up": {
        "dialect": "openai", "base_url": "http://127.0.0.1:9/v1", "models": ["m"],
    }}})
}

#[tokio::test]
async fn auto_takes_installed_agents_whose_models_are_real() {
    let resume = [Capability::SessionFork];
    let cases = [
        // Installed, and an upstream is configured: the agent can do what nothing else can.
        (Some("opencode"), upstream(), &resume[..], Some("opencode")),
        // Not installed: nothing can.
        (None, upstream(), &resume, None),
        // Installed, but Copilot CLI has no fork, which is known without starting it.
        (Some("copilot"), upstream(), &resume, None),
        // Without an upstream its models are a demonstration, so the scripted backend is chosen.
        (Some("opencode"), json!({}), &[], Some("writer")),
    ];
    for (agent, config, requires, expected) in cases {
        let (_agents, lab) = lab_with(agent, config);
        let planned = lab.plane.plan(auto(order(&lab, requires)));
        let chosen = planned.map(|plan| plan.projection().selected_backend.clone());
        assert_eq!(chosen.ok().as_deref(), expected, "{agent:?} {requires:?}");
    }
}

/// An agent that does not start is not healthy; the next in line gets the order, and the trace says so.
#[tokio::test]
async fn auto_goes_on_to_the_next_where_an_agent_does_not_start() {
    let (_agents, lab) = lab_with(Some("opencode"), upstream());
    let order = order(&lab, &[Capability::Streaming]);
    let plan = lab.plane.plan(auto(order.clone())).unwrap();
    let first = plan.projection().selected_backend.clone();
    assert_eq!(first, "opencode", "{:?}", plan.projection());
    let started = lab.plane.run_here(&me(), auto(order)).await.unwrap();
    let StartedRun::Started(handle) = started else {
        panic!("a new run");
    };
    let receipt = handle.receipt.await.unwrap();
    assert_eq!(
        receipt.backend.id,
        plan.projection().selection.fallback_chain[0]
    );
    let trace = serde_json::to_string(&receipt.trace).unwrap();
    assert!(trace.contains("backend opencode cannot be used"), "{trace}");
}
