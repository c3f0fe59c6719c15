//! A backend that cannot be used leaves nothing of itself in the receipt of the next one's run.

use std::sync::Arc;

use abp_backend_core::{
    Backend, BackendDescriptor, BoxFuture, OpenSpec, RunContext, RunEnd, Session,
};
use abp_core::{
    Attestation, BackendIdentity, Capability, CapabilityManifest, EnforcementLevel, Outcome,
    StateAccess, SupportLevel,
};
use abp_error::{AbpError, ErrorCode};
use abp_plan::ConfirmedPlan;
use abp_policy::{Holder, Holders};
use serde_json::json;

use crate::bench::Bench;

/// Where a candidate gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GivesUp {
    Never,
    Opening,
    Accepting,
}

/// A backend that says much of itself as soon as it is open.
#[derive(Debug, Clone)]
struct Candidate {
    descriptor: BackendDescriptor,
    gives_up: GivesUp,
}

impl Candidate {
    fn new(name: &str, priority: u32, gives_up: GivesUp) -> Self {
        let holders = Holders {
            network: Holder::host("a claim of its own"),
            ..Holders::HOST_TOOLS
        };
        Self {
            descriptor: BackendDescriptor {
                name: name.to_owned(),
                manifest: Some(CapabilityManifest::new()),
                holders,
                mounts: false,
                asked_tools: &[],
                overlays: false,
                measures_usage: true,
                priority,
                is_demonstration: false,
                takes_sessions: false,
                model: None,
            },
            gives_up,
        }
    }

    /// One that holds and claims nothing.
    fn modest(gives_up: GivesUp) -> Self {
        let mut modest = Self::new("second", 0, gives_up);
        modest.descriptor.holders = Holders::HOST_TOOLS;
        modest.descriptor.measures_usage = false;
        modest
    }

    fn is_modest(&self) -> bool {
        self.descriptor.name == "second"
    }

    fn unusable() -> AbpError {
        AbpError::new(ErrorCode::BackendUnavailable, "it gave up")
    }
}

impl Backend for Candidate {
    fn descriptor(&self) -> &BackendDescriptor {
        &self.descriptor
    }

    fn open(&self, _: OpenSpec) -> BoxFuture<'_, Result<Box<dyn Session>, AbpError>> {
        Box::pin(async move {
            if self.gives_up == GivesUp::Opening {
                return Err(Self::unusable());
            }
            let said = |text: &str| (!self.is_modest()).then(|| text.to_owned());
            let mut manifest = CapabilityManifest::new();
            if !self.is_modest() {
                manifest.insert(Capability::ToolBash, SupportLevel::Native);
            }
            Ok(Box::new(Opened {
                identity: BackendIdentity {
                    id: self.descriptor.name.clone(),
                    backend_version: said("9.9"),
                    adapter_version: said("8.8"),
                },
                manifest,
                candidate: self.clone(),
            }) as Box<dyn Session>)
        })
    }
}

struct Opened {
    identity: BackendIdentity,
    manifest: CapabilityManifest,
    candidate: Candidate,
}

impl Session for Opened {
    fn identity(&self) -> &BackendIdentity {
        &self.identity
    }

    fn manifest(&self) -> &CapabilityManifest {
        &self.manifest
    }

    fn holders(&self) -> Holders {
        self.candidate.descriptor.holders
    }

    fn contained_by(&self) -> Option<&'static str> {
        (!self.candidate.is_modest()).then_some("a cage")
    }

    fn state_access(&self) -> Option<StateAccess> {
        (!self.candidate.is_modest()).then_some(StateAccess::Hidden)
    }

    fn accept(&self, _: &ConfirmedPlan) -> Result<(), AbpError> {
        match self.candidate.gives_up {
            GivesUp::Accepting => Err(Candidate::unusable()),
            GivesUp::Never | GivesUp::Opening => Ok(()),
        }
    }

    fn run(self: Box<Self>, context: RunContext) -> BoxFuture<'static, RunEnd> {
        Box::pin(async move {
            let usage = abp_core::UsageNormalized {
                input_tokens: Some(3),
                ..abp_core::UsageNormalized::default()
            };
            let told = abp_core::AgentEventKind::UsageUpdated { usage };
            // A run that is over says so to whoever asks next.
            let _ = context.emit(told).await;
            RunEnd::completed()
        })
    }
}

/// However the first candidate gives up, and whether or not the second runs, only what the second did
/// is in the receipt.
#[tokio::test]
async fn a_candidate_that_gave_up_is_no_part_of_the_receipt() {
    let budget = json!({"config": {"model": "priced", "max_budget_usd": 1.0}});
    let cases = [
        (GivesUp::Opening, GivesUp::Never, json!({}), None),
        (GivesUp::Accepting, GivesUp::Never, json!({}), None),
        (
            GivesUp::Accepting,
            GivesUp::Opening,
            json!({}),
            Some(ErrorCode::BackendUnavailable),
        ),
        (
            GivesUp::Accepting,
            GivesUp::Accepting,
            json!({}),
            Some(ErrorCode::BackendUnavailable),
        ),
        // Refused before it is opened: nothing measures what it uses.
        (
            GivesUp::Accepting,
            GivesUp::Never,
            budget,
            Some(ErrorCode::ConfigInvalid),
        ),
    ];
    for (first, second, mut order, code) in cases {
        let place = format!("{first:?}, {second:?}, {order}");
        order["policy"] = json!({"deny_network": ["example.org"]});
        let bench = Bench::new([
            Arc::new(Candidate::new("first", 9, first)) as Arc<dyn Backend>,
            Arc::new(Candidate::modest(second)),
        ]);
        let handle = bench
            .runtime
            .run_with("auto", bench.order(order), bench.options())
            .await
            .unwrap();
        let (receipt, events) = bench.follow(handle).await;
        let outcome = match code {
            None => Outcome::Complete,
            Some(_) => Outcome::Failed,
        };
        let error = receipt.error.as_ref().map(|error| error.code);
        assert_eq!((receipt.outcome, error), (outcome, code), "{place}");
        let expected = BackendIdentity {
            id: "second".to_owned(),
            backend_version: None,
            adapter_version: None,
        };
        assert_eq!(receipt.backend, expected, "{place}");
        assert_eq!(receipt.capabilities, CapabilityManifest::new(), "{place}");
        let held = &receipt.enforcement;
        assert_eq!((&held.contained_by, held.state), (&None, None), "{place}");
        let network = &held.rules[0];
        assert_eq!(
            (network.enforced_by, network.by.as_str()),
            (EnforcementLevel::None, ""),
            "{place}"
        );
        assert_eq!(receipt.plan.is_some(), code.is_none(), "{place}");
        let claimed = code.is_none().then_some(Attestation::Claimed);
        assert_eq!(receipt.usage_source, claimed, "{place}");
        let warned = events.iter().any(|event| {
            matches!(&event.kind, abp_core::AgentEventKind::Warning { message } if message.contains("backend first cannot be used"))
        });
        assert!(warned, "{place}");
    }
}

/// The verification of a stage sees nothing that processes write elsewhere, and the receipt says so where
/// there were processes and a stage.
#[tokio::test]
async fn a_receipt_says_what_the_verification_cannot_see() {
    let with_processes = || Candidate::new("mock", 0, GivesUp::Never);
    let without = || Candidate {
        descriptor: BackendDescriptor {
            name: "second".to_owned(),
            ..with_processes().descriptor
        },
        gives_up: GivesUp::Never,
    };
    for (candidate, mode, is_noted) in [
        (with_processes(), "staged", true),
        (with_processes(), "pass_through", false),
        (without(), "staged", false),
    ] {
        let name = candidate.descriptor.name.clone();
        let bench = Bench::new([Arc::new(candidate) as Arc<dyn Backend>]);
        let order = bench.order(json!({"workspace": {"mode": mode}}));
        let handle = bench
            .runtime
            .run_with(&name, order, bench.options())
            .await
            .unwrap();
        let (receipt, _) = bench.follow(handle).await;
        let notes = receipt.workspace.map(|workspace| workspace.notes);
        let notes = notes.unwrap_or_default();
        let found = notes.iter().any(|note| note.contains("processes"));
        assert_eq!(found, is_noted, "{name}, {mode}: {notes:?}");
    }
}
