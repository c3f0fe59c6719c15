//! Which backend is chosen, and what is said about it.

use std::collections::BTreeSet;

use abp_core::{
    Capability, CapabilityManifest, CapabilityRequirement, CapabilityRequirements,
    EnforcementLevel, MinSupport, SupportLevel,
};
use abp_dialect::Dialect;
use abp_emulation::{EmulationConfig, EmulationEngine, EmulationStrategy};
use abp_mapping::Feature;
use abp_policy::{Holders, PolicyList};
use abp_projection::{
    Candidate, Demands, Evaluation, ModelOffer, ProjectionError, ProjectionMatrix,
    ProjectionResult, ServedModels, SourceRequest,
};

fn candidate(backend: &str, manifest: Option<&[(Capability, SupportLevel)]>) -> Candidate {
    Candidate {
        backend: backend.into(),
        manifest: manifest.map(|manifest| manifest.iter().cloned().collect::<CapabilityManifest>()),
        holders: Holders::HOST_TOOLS,
        priority: 0,
        is_demonstration: false,
        model: None,
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
        model: None,
        request: None,
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
            "chosen because it can do everything that is required, and its score of 0.800 is the highest",
            "streaming is native",
            "tool_edit is native",
        ]
    );
    assert_eq!(before.selection.reason, report(&before, "b")[0]);
    assert_eq!(
        report(&before, "a")[0],
        "not chosen because its score of 0.785 is below the 0.800 of b"
    );
    assert_eq!(
        report(&before, "c"),
        [
            "not chosen because it cannot do everything that is required: \
             streaming is required native, and the backend offers it emulated (adapter)",
            "streaming is required native, and the backend offers it emulated (adapter)",
            "tool_edit is native",
        ]
    );

    candidates[1] = candidate("b", Some(&[(Streaming, SupportLevel::Native)]));
    let after = project(&candidates, &wanted).unwrap();
    assert_eq!(after.selected_backend, "a");
    assert_eq!(after.selection.fallback_chain, Vec::<String>::new());
    assert_eq!(
        report(&after, "b")[2],
        "tool_edit is not offered by the backend and not emulated: No emulation available for ToolEdit"
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
        tied.selection.candidates[1].reasons[0],
        "not chosen because it has the same score as x, which comes first by name"
    );
    assert_eq!(
        tied.selection.reason,
        "chosen because it can do everything that is required, \
         and it shares the highest score (0.800) with y and comes first by name"
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
         a (tool_bash is required native, and the backend does not offer it; \
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

fn demonstration(candidate: Candidate) -> Candidate {
    Candidate {
        is_demonstration: true,
        ..candidate
    }
}

fn upstream(backend: &str, dialect: Dialect, models: Option<&[&str]>) -> Candidate {
    let served = models.map(|names| ServedModels {
        names: names.iter().map(ToString::to_string).collect(),
        aliases: [("fast".to_owned(), format!("{backend}-small"))].into(),
    });
    Candidate {
        model: Some(ModelOffer {
            dialects: vec![dialect],
            served,
        }),
        ..candidate(
            backend,
            Some(&[(Capability::Streaming, SupportLevel::Native)]),
        )
    }
}

/// Whatever speaks for a demonstration, a real backend that can do the order comes first, and a
/// demonstration never steps in for one.
#[test]
fn demonstrations_give_way_to_anything_real() {
    let wanted = demands(&[(Capability::Streaming, MinSupport::Emulated)]);
    let streaming: &[_] = &[(Capability::Streaming, SupportLevel::Native)];
    let mock = demonstration(Candidate {
        priority: 9,
        ..candidate("mock", Some(streaming))
    });
    let real_ones = [
        candidate(
            "worse",
            Some(&[(Capability::Streaming, SupportLevel::Emulated)]),
        ),
        candidate("unknown", None),
    ];
    for real in real_ones {
        let result = project(&[mock.clone(), real.clone()], &wanted).unwrap();
        assert_eq!(result.selected_backend, real.backend);
        assert_eq!(result.selection.fallback_chain, Vec::<String>::new());
        let shown = &result.selection.candidates[1];
        assert!(shown.is_demonstration);
        assert_eq!(
            shown.reasons[0],
            format!(
                "not chosen because it only demonstrates the way of an order, \
                 and {}, a real backend, can do this one",
                real.backend
            )
        );
    }
    let unable = candidate("unable", Some(&[]));
    let other = demonstration(candidate("other", Some(streaming)));
    let result = project(&[mock, unable, other], &wanted).unwrap();
    assert_eq!(result.selected_backend, "mock");
    assert_eq!(result.selection.fallback_chain, ["other"]);
    assert_eq!(
        result.selection.reason,
        "chosen because it can do everything that is required, and its score of 1.000 is the highest; \
         it only demonstrates the way of an order, and no real backend can do this one"
    );
}

/// A model that the operator did not list is refused, whoever asks for the backend.
#[test]
fn only_listed_models_are_asked_for() {
    let check = |models: Option<&[&str]>, asked: Option<&str>, is_served: bool| {
        let wanted = Demands {
            model: asked.map(str::to_owned),
            ..demands(&[])
        };
        let result = project(&[upstream("up", Dialect::OpenAi, models)], &wanted);
        assert_eq!(result.is_ok(), is_served, "{models:?} {asked:?}");
        if let Err(error) = result {
            let told = error.to_string();
            let expected = format!("it does not serve the model {:?}", asked.unwrap());
            assert!(told.contains(&expected), "{told}");
        }
    };
    check(None, Some("anything"), true);
    check(Some(&["*"]), Some("anything"), true);
    check(Some(&["gpt-*"]), Some("gpt-5"), true);
    check(Some(&["gpt-*"]), Some("claude-x"), false);
    check(Some(&["gpt-*"]), None, true);
    check(Some(&["gpt-*"]), Some("fast"), true);
    check(Some(&["gpt-*"]), Some("up-small"), true);
    check(Some(&[]), Some("gpt-5"), false);
    check(Some(&["[broken"]), Some("[broken"), true);
    let listed = ServedModels {
        names: vec!["gpt-*".to_owned(), "o9".to_owned()],
        aliases: [("fast".to_owned(), "gpt-5-mini".to_owned())].into(),
    };
    assert_eq!(listed.first_named(), Some("o9"));
    assert_eq!(listed.vendor_name("fast"), "gpt-5-mini");
    assert_eq!(listed.describe(), "gpt-*, o9, fast");
}

/// The mapping table decides between upstreams that are otherwise alike.
#[test]
fn the_dialect_of_a_request_matters() {
    let check = |from: Dialect, features: &[Feature], chosen: &str, fidelity: &[(&str, f64)]| {
        let wanted = Demands {
            request: Some(SourceRequest {
                dialect: from,
                is_vendor_request: true,
                features: features.iter().copied().collect::<BTreeSet<_>>(),
            }),
            ..demands(&[])
        };
        let offered = [
            upstream("a-gemini", Dialect::Gemini, None),
            upstream("b-claude", Dialect::Claude, None),
            upstream("c-codex", Dialect::Codex, None),
        ];
        let result = project(&offered, &wanted).unwrap();
        assert_eq!(result.selected_backend, chosen, "{from} {features:?}");
        for (backend, expected) in fidelity {
            let mut reports = result.selection.candidates.iter();
            let report = reports.find(|report| report.backend == *backend).unwrap();
            assert_eq!(report.score.mapping_fidelity, *expected, "{from} {backend}");
            assert_eq!(report.score.capability_fidelity, Some(1.0));
        }
        result
    };
    // Nothing is lost on any way: the request's own dialect is still the shortest.
    let plain = check(Dialect::Claude, &[], "b-claude", &[("a-gemini", 1.0)]);
    assert_eq!(
        plain.selection.reason,
        "chosen because it can do everything that is required, and it shares the highest score \
         (0.800) with a-gemini and speaks the vendor's own dialect"
    );
    // Responses has no stop sequences, and Gemini no switch for single calls.
    let used = [Feature::StopSequences, Feature::SingleToolCalls];
    let result = check(
        Dialect::OpenAi,
        &used,
        "b-claude",
        &[("a-gemini", 0.75), ("b-claude", 1.0), ("c-codex", 0.5)],
    );
    let last = result.selection.candidates.last().unwrap();
    assert_eq!(
        last.reasons.last().unwrap(),
        "the request is translated from openai to codex: not everything it uses arrives: \
         stop_sequences does not arrive: Responses has no stop sequences"
    );
}

/// A candidate that cannot be prepared is out, and the report says why.
#[test]
fn refused_candidates_stay_in_the_report() {
    let offered = [candidate("a", Some(&[])), candidate("b", Some(&[]))];
    let mut matrix = ProjectionMatrix::new(EmulationEngine::with_defaults());
    for candidate in offered {
        matrix.register(candidate);
    }
    let wanted = demands(&[]);
    assert_eq!(matrix.project(&wanted).unwrap().selected_backend, "a");
    matrix.refuse("a", "it cannot carry the request");
    let second = matrix.project(&wanted).unwrap();
    assert_eq!(second.selected_backend, "b");
    assert_eq!(
        second.selection.candidates[1].reasons[0],
        "not chosen because it cannot do everything that is required: it cannot carry the request"
    );
    matrix.refuse("b", "neither can this one");
    assert_eq!(
        matrix.project(&wanted).unwrap_err().to_string(),
        "no backend can do everything that is required: \
         a (it cannot carry the request), b (neither can this one)"
    );
}

/// The report of a plan counts what ABP emulates, and names how.
#[test]
fn compatibility_counts_emulations() {
    use Capability::{ExtendedThinking, Streaming, ToolBash, ToolRead};
    let wanted = demands(&[
        (ExtendedThinking, MinSupport::Emulated),
        (Streaming, MinSupport::Native),
        (ToolRead, MinSupport::Emulated),
        (ToolBash, MinSupport::Any),
    ]);
    let manifest = CapabilityManifest::from([
        (Streaming, SupportLevel::Native),
        (
            ToolRead,
            SupportLevel::Restricted {
                reason: "one file".to_owned(),
            },
        ),
    ]);
    let report = |engine: &EmulationEngine| {
        Evaluation::new(&wanted, &manifest, &Holders::NONE, engine).compatibility()
    };
    let emulating = report(&EmulationEngine::with_defaults());
    assert_eq!(
        serde_json::to_value(&emulating).unwrap(),
        serde_json::json!({
            "compatible": true,
            "native_count": 1,
            "emulated_count": 2,
            "unsupported_count": 0,
            "summary": "1 native, 2 emulatable, 0 unsupported — fully compatible",
            "details": [
                ["Streaming", {"level": "native"}],
                ["ExtendedThinking", {"level": "emulated", "strategy": "ABP (system prompt)"}],
                ["ToolRead", {"level": "emulated", "strategy": "restricted: one file"}],
            ],
        })
    );
    let mut config = EmulationConfig::new();
    let reason = "not here".to_owned();
    config.set(ExtendedThinking, EmulationStrategy::Disabled { reason });
    let engine = EmulationEngine::new(config);
    assert_eq!(report(&engine).unsupported_count, 1);
    let refusals = Evaluation::new(&wanted, &manifest, &Holders::NONE, &engine).refusals();
    assert_eq!(
        refusals,
        [
            "extended_thinking is not offered by the backend, and its emulation is switched off: not here"
        ]
    );
}

/// A receipt that was written before both fidelities had names of their own.
#[test]
fn older_reports_are_read() {
    let old = serde_json::json!({
        "selected": "a",
        "candidates": [{
            "backend": "a",
            "eligible": true,
            "score": {"capability_coverage": 1.0, "mapping_fidelity": 0.9, "priority": 0.0, "total": 0.77},
            "reasons": ["chosen: score 0.770"],
        }],
        "fallback_chain": [],
    });
    let read: abp_core::SelectionReport = serde_json::from_value(old.clone()).unwrap();
    assert_eq!(read.candidates[0].score.capability_fidelity, None);
    assert_eq!(serde_json::to_value(read).unwrap(), old);
}
