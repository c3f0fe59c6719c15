//! Which backend is chosen, and what is said about it.

use abp_core::{
    Capability, CapabilityManifest, CapabilityRequirement, CapabilityRequirements,
    EnforcementLevel, MinSupport, SupportLevel,
};
use abp_emulation::EmulationEngine;
use abp_policy::{Holders, PolicyList};
use abp_projection::{Candidate, Demands, ProjectionError, ProjectionMatrix, ProjectionResult};

fn candidate(backend: &str, manifest: Option<&[(Capability, SupportLevel)]>) -> Candidate {
    Candidate {
        backend: backend.into(),
        manifest: manifest.map(|manifest| manifest.iter().cloned().collect::<CapabilityManifest>()),
        holders: Holders::HOST_TOOLS,
        priority: 0,
    }
}

fn demands(required: &[(Capability, MinSupport)]) -> Demands {
    let required =
        required
            .iter()
            .cloned()
            .map(|(capability, min_support)| CapabilityRequirement {
                capability,
                min_support,
            });
    Demands {
        requirements: CapabilityRequirements {
            required: required.collect(),
        },
        min_enforcement: EnforcementLevel::None,
        lists: Vec::new(),
        may_emulate: true,
    }
}

fn project(
    candidates: &[Candidate],
    demands: &Demands,
) -> Result<ProjectionResult, ProjectionError> {
    let mut matrix = ProjectionMatrix::new(EmulationEngine::with_defaults());
    for candidate in candidates {
        matrix.register(candidate.clone());
    }
    matrix.project(demands)
}

/// One changed manifest entry gives another choice and another reason.
#[test]
fn a_changed_manifest_changes_the_choice_and_its_reason() {
    use Capability::{Streaming, ToolEdit};
    let wanted = demands(&[
        (Streaming, MinSupport::Native),
        (ToolEdit, MinSupport::Emulated),
    ]);
    let mut candidates = [
        candidate(
            "a",
            Some(&[
                (Streaming, SupportLevel::Native),
                (ToolEdit, SupportLevel::Emulated),
            ]),
        ),
        candidate(
            "b",
            Some(&[
                (Streaming, SupportLevel::Native),
                (ToolEdit, SupportLevel::Native),
            ]),
        ),
        candidate(
            "c",
            Some(&[
                (Streaming, SupportLevel::Emulated),
                (ToolEdit, SupportLevel::Native),
            ]),
        ),
    ];
    let before = project(&candidates, &wanted).unwrap();
    assert_eq!(before.selected_backend, "b");
    assert_eq!(before.selection.fallback_chain, ["a"]);
    let report = |result: &ProjectionResult, backend: &str| {
        let found = result
            .selection
            .candidates
            .iter()
            .find(|candidate| candidate.backend == backend);
        found.unwrap().reasons.clone()
    };
    assert_eq!(
        report(&before, "b"),
        [
            "streaming: native",
            "tool_edit: native",
            "chosen: score 0.800"
        ]
    );
    assert_eq!(
        report(&before, "a").last().unwrap(),
        "passed over: score 0.770 is below 0.800 of b"
    );
    assert_eq!(
        report(&before, "c"),
        [
            "streaming: refused: required native, the backend offers it emulated (adapter)",
            "tool_edit: native",
            "passed over: cannot do everything that is required",
        ]
    );

    candidates[1] = candidate("b", Some(&[(Streaming, SupportLevel::Native)]));
    let after = project(&candidates, &wanted).unwrap();
    assert_eq!(after.selected_backend, "a");
    assert_eq!(after.selection.fallback_chain, Vec::<String>::new());
    assert_eq!(
        report(&after, "b")[1],
        "tool_edit: refused: the backend does not offer it, and it is not emulated: No emulation available for ToolEdit"
    );
}

/// How an absent capability is provided, by threshold, strategy and mode.
#[test]
fn absent_capabilities() {
    use Capability::{CodeExecution, ExtendedThinking, ToolBash};
    let bare = [candidate("bare", Some(&[]))];
    let check =
        |required: (Capability, MinSupport), may_emulate: bool, emulated: Option<&[Capability]>| {
            let demands = Demands {
                may_emulate,
                ..demands(&[required])
            };
            let result = project(&bare, &demands);
            assert_eq!(
                result
                    .ok()
                    .map(|result| result.required_emulations)
                    .as_deref(),
                emulated,
                "{demands:?}"
            );
        };
    check(
        (ExtendedThinking, MinSupport::Emulated),
        true,
        Some(&[ExtendedThinking]),
    );
    check((ExtendedThinking, MinSupport::Emulated), false, None);
    check((ExtendedThinking, MinSupport::Native), true, None);
    check((CodeExecution, MinSupport::Emulated), true, None);
    check((ToolBash, MinSupport::Any), true, Some(&[]));
}

#[test]
fn ties_priorities_and_unknown_manifests() {
    let wanted = demands(&[(Capability::Streaming, MinSupport::Emulated)]);
    let streaming: &[_] = &[(Capability::Streaming, SupportLevel::Native)];
    let equal = [
        candidate("y", Some(streaming)),
        candidate("x", Some(streaming)),
    ];
    let tied = project(&equal, &wanted).unwrap();
    assert_eq!(tied.selected_backend, "x");
    assert_eq!(
        tied.selection.candidates[1].reasons.last().unwrap(),
        "passed over: same score as x, which comes first by name"
    );
    let preferred = Candidate {
        priority: 5,
        ..candidate("y", Some(streaming))
    };
    assert_eq!(
        project(&[equal[1].clone(), preferred], &wanted)
            .unwrap()
            .selected_backend,
        "y"
    );
    let deferred = project(
        &[
            candidate("unknown", None),
            candidate("known", Some(streaming)),
        ],
        &wanted,
    )
    .unwrap();
    assert_eq!(deferred.selected_backend, "known");
    assert_eq!(deferred.selection.fallback_chain, ["unknown"]);
}

#[test]
fn refusals_name_every_backend() {
    assert_eq!(
        project(&[], &demands(&[])).unwrap_err(),
        ProjectionError::EmptyMatrix
    );
    let kernel = Demands {
        min_enforcement: EnforcementLevel::Kernel,
        lists: vec![PolicyList::DenyWrite, PolicyList::DenyNetwork],
        ..demands(&[(Capability::ToolBash, MinSupport::Native)])
    };
    let error = project(
        &[candidate("a", Some(&[])), candidate("later", None)],
        &kernel,
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "no backend can do everything that is required: \
         a (tool_bash: required native, the backend does not offer it; \
         deny_write would be enforced by the host, deny_network would be enforced by nothing, \
         the order demands the kernel), \
         later (deny_write would be enforced by the host, deny_network would be enforced by nothing, \
         the order demands the kernel)"
    );
    let empty = Demands {
        lists: Vec::new(),
        ..demands(&[])
    };
    let nothing_to_hold = project(&[candidate("a", Some(&[]))], &empty);
    assert_eq!(nothing_to_hold.unwrap().selected_backend, "a");
    assert_eq!(error.code(), abp_error::ErrorCode::CapabilityUnsupported);
}
