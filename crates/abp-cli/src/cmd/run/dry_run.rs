//! `abp run --dry-run`: the plan, the policy, the limits and the workspace of a run that is not started.

use std::path::{Path, PathBuf};
use std::time::Duration;

use abp_config::BackendConfig;
use abp_control::{ControlPlane, Submission};
use abp_core::{EnforcementLevel, ExecutionLane, WorkOrder, WorkspaceMode};
use abp_error::{AbpError, ErrorCode};
use abp_plan::RunPlan;
use abp_policy::{PolicyEngine, lists_in_use};
use rustix::fs::{Mode, OFlags};
use serde::Serialize;

use crate::output::{Output, STRONG};
use crate::render;
use crate::text::one_line;

/// Everything that is decided before a run starts.
#[derive(Debug, Serialize)]
struct DryRun<'p> {
    #[serde(flatten)]
    plan: &'p RunPlan,
    workspace: WorkspacePreview<'p>,
    policy: PolicyPreview,
    limits: Limits,
}

#[derive(Debug, Serialize)]
struct WorkspacePreview<'p> {
    /// The root without links.
    root: PathBuf,
    mode: WorkspaceMode,
    lane: ExecutionLane,
    include: &'p [String],
    exclude: &'p [String],
    respect_gitignore: bool,
}

#[derive(Debug, Serialize)]
struct PolicyPreview {
    rules: Vec<HeldRule>,
}

/// A rule, and the mechanism that would hold it on the chosen backend.
#[derive(Debug, Serialize)]
struct HeldRule {
    list: &'static str,
    pattern: String,
    enforced_by: EnforcementLevel,
    by: &'static str,
}

#[derive(Debug, Serialize)]
struct Limits {
    timeout_secs: Option<f64>,
    /// The configured limit of the chosen backend, which holds as well.
    backend_timeout_secs: Option<u32>,
    max_budget_usd: Option<f64>,
    max_turns: Option<u32>,
}

/// Plans a submission and shows what would happen. Nothing is copied or written.
///
/// # Errors
/// Fails as the run would before it starts, and where its workspace cannot be opened.
pub(super) fn run(
    plane: &ControlPlane,
    submission: Submission,
    output: &mut Output,
) -> Result<(), AbpError> {
    let timeout = submission.timeout;
    let plan = plane.plan(submission)?;
    let order = plan.order();
    PolicyEngine::new(&order.policy)
        .map_err(|error| AbpError::new(ErrorCode::PolicyInvalid, error.to_string()))?;
    let dry_run = DryRun {
        workspace: workspace(order)?,
        policy: policy(plane, &plan)?,
        limits: limits(plane, &plan, timeout),
        plan: &plan,
    };
    if output.is_json() {
        return output.json(&dry_run);
    }
    dry_run.print(output);
    Ok(())
}

/// The workspace, whose root is opened as a run opens it.
fn workspace(order: &WorkOrder) -> Result<WorkspacePreview<'_>, AbpError> {
    let spec = &order.workspace;
    let root = Path::new(&spec.root);
    let refused = |error: std::io::Error| {
        let message = format!("cannot open workspace root {}", root.display());
        AbpError::new(ErrorCode::WorkspaceInitFailed, message)
            .with_context("root", spec.root.as_str())
            .with_source(error)
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(root, flags, Mode::empty()).map_err(|error| refused(error.into()))?;
    Ok(WorkspacePreview {
        root: root.canonicalize().map_err(refused)?,
        mode: spec.mode,
        lane: order.lane,
        include: &spec.include,
        exclude: &spec.exclude,
        respect_gitignore: spec.respect_gitignore,
    })
}

fn policy(plane: &ControlPlane, plan: &RunPlan) -> Result<PolicyPreview, AbpError> {
    let order = plan.order();
    let name = &plan.projection().selected_backend;
    let backend = plane.registry().get(name).ok_or_else(|| {
        let message = format!("there is no backend {name:?}");
        AbpError::new(ErrorCode::BackendNotFound, message)
    })?;
    let descriptor = backend.descriptor();
    let mode = order.workspace.mode;
    let lists = lists_in_use(&order.policy).into_iter();
    let rules = lists.flat_map(|list| {
        let patterns = list.patterns(&order.policy).iter();
        patterns.map(move |pattern| {
            let holder = descriptor.holder(list, pattern, mode);
            HeldRule {
                list: list.as_str(),
                pattern: pattern.clone(),
                enforced_by: holder.level,
                by: holder.by,
            }
        })
    });
    Ok(PolicyPreview {
        rules: rules.collect(),
    })
}

fn limits(plane: &ControlPlane, plan: &RunPlan, timeout: Option<Duration>) -> Limits {
    let backends = &plane.config().backends;
    let configured = backends.get(&plan.projection().selected_backend);
    let asked = &plan.order().config;
    Limits {
        timeout_secs: timeout.map(|timeout| timeout.as_secs_f64()),
        backend_timeout_secs: match configured {
            Some(BackendConfig::Sidecar { timeout_secs, .. }) => *timeout_secs,
            Some(BackendConfig::Mock { .. } | BackendConfig::Acp { .. }) | None => None,
        },
        max_budget_usd: asked.max_budget_usd,
        max_turns: asked.max_turns,
    }
}

impl DryRun<'_> {
    fn print(&self, output: &mut Output) {
        let projection = self.plan.projection();
        output.line(&format!(
            "{STRONG}Nothing was started, copied or written.{STRONG:#}"
        ));
        output.field("task", &one_line(&self.plan.order().task));
        output.field("backend", &projection.selected_backend);
        output.field("why", &one_line(&projection.selection.reason));
        let fallbacks = &projection.selection.fallback_chain;
        if !fallbacks.is_empty() {
            output.field("fallback", &fallbacks.join(", "));
        }
        for emulated in &projection.required_emulations {
            output.field("emulated", emulated.as_str());
        }
        self.workspace.print(output);
        self.limits.print(output);
        output.line("");
        output.line(&format!("{STRONG}policy{STRONG:#}"));
        for rule in &self.policy.rules {
            rule.print(output);
        }
        if self.policy.rules.is_empty() {
            output.line("  no rules");
        }
        output.line("");
        render::candidates(&projection.selection.candidates, output);
    }
}

impl WorkspacePreview<'_> {
    fn print(&self, output: &mut Output) {
        let root = one_line(&self.root.display().to_string());
        let mode = match self.mode {
            WorkspaceMode::Staged => "on a copy",
            WorkspaceMode::PassThrough => "in place",
        };
        output.field("workspace", &format!("{root}, {mode}"));
        output.field(
            "lane",
            match self.lane {
                ExecutionLane::PatchFirst => "patch-first: changes are proposed",
                ExecutionLane::WorkspaceFirst => {
                    "workspace-first: changes are applied when the run succeeds"
                }
            },
        );
        for (label, globs) in [("include", self.include), ("exclude", self.exclude)] {
            if !globs.is_empty() {
                output.field(label, &one_line(&globs.join(", ")));
            }
        }
        if !self.respect_gitignore {
            output.field("gitignore", "not respected");
        }
    }
}

impl Limits {
    fn print(&self, output: &mut Output) {
        let limits = [
            self.timeout_secs.map(|secs| format!("{secs} s")),
            self.backend_timeout_secs
                .map(|secs| format!("{secs} s on this backend")),
            self.max_budget_usd.map(|budget| format!("${budget}")),
            self.max_turns.map(|turns| format!("{turns} turns")),
        ];
        let limits: Vec<String> = limits.into_iter().flatten().collect();
        let shown = match limits.is_empty() {
            true => "none".to_owned(),
            false => limits.join(", "),
        };
        output.field("limits", &shown);
    }
}

impl HeldRule {
    fn print(&self, output: &mut Output) {
        let Self { list, pattern, .. } = self;
        let held = match self.enforced_by {
            EnforcementLevel::None => "held by nothing".to_owned(),
            EnforcementLevel::Advisory => format!("advisory, by {}", self.by),
            EnforcementLevel::Host => format!("held by the host: {}", self.by),
            EnforcementLevel::Kernel => format!("held by the kernel: {}", self.by),
        };
        output.line(&format!("  {list} {pattern:?}  {held}"));
    }
}
