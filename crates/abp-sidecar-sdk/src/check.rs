//! Checks a program against the protocol, one rule after the other, each with a fresh process.

mod advice;

use std::time::Duration;

use abp_backend_sidecar::deliver_emulations;
use abp_core::ir::IrConversation;
use abp_core::{Capability, ContextSnippet, EmulationEntry, WorkOrder, WorkOrderBuilder};
use abp_emulation::default_strategy;
use abp_error::ErrorCode;
use abp_host::{Grace, HostError, SidecarClient, SidecarFailure, SidecarRun, SidecarSpec};
use serde::Serialize;
use serde_json::{Value, json};
use sidecar_kit::Frame;
use uuid::Uuid;

use advice::fix;

/// How large a work order the program must take.
const LARGE: usize = 4 * 1024 * 1024;
/// How long a cancelled program may take to end its run.
const CANCEL_PATIENCE: Duration = Duration::from_secs(5);
/// How often a program is pinged while it works.
const PING_EVERY: Duration = Duration::from_millis(5);
/// How long it may take to answer.
const PONG_PATIENCE: Duration = Duration::from_secs(2);

/// What to check with.
#[derive(Debug, Clone)]
pub struct CheckSettings {
    /// The program, and the directory it works in.
    pub spec: SidecarSpec,
    /// What it is asked to do.
    pub task: String,
    /// How long one run may take.
    pub patience: Duration,
}

/// What is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// It says hello.
    Hello,
    /// It carries out a run.
    Run,
    /// It answers pings.
    Ping,
    /// It ignores what it does not know.
    Unknown,
    /// It is given ABP's instructions with its task.
    Emulation,
    /// It takes long lines.
    Large,
    /// It can be cancelled.
    Cancel,
    /// It exits.
    Shutdown,
}

/// What came of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check.
    pub check: Check,
    /// Whether it passed.
    #[serde(flatten)]
    pub verdict: CheckResult,
}

/// Whether a check passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum CheckResult {
    /// It did.
    Passed {
        /// What was seen.
        note: String,
    },
    /// It did not.
    Failed {
        /// The code of the error that a run would end with.
        code: ErrorCode,
        /// What was seen.
        problem: String,
        /// What to change.
        fix: String,
        /// The end of what the program wrote to its standard error.
        #[serde(skip_serializing_if = "String::is_empty")]
        stderr_tail: String,
        /// Whether the program itself ended the run with a fatal message.
        gave_up: bool,
    },
    /// It could not be made.
    Skipped {
        /// Why.
        why: String,
    },
}

/// Makes every check. A program that does not even say hello is not checked further.
pub async fn check(settings: &CheckSettings) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for &check in Check::ALL {
        let mute = findings.first().is_some_and(|hello| !hello.passed());
        let verdict = if mute {
            let why = "it does not say hello".to_owned();
            CheckResult::Skipped { why }
        } else {
            check.make(settings).await
        };
        findings.push(Finding { check, verdict });
    }
    findings
}

impl Check {
    /// Every check, in order.
    pub const ALL: &'static [Self] = &[
        Self::Hello,
        Self::Run,
        Self::Ping,
        Self::Unknown,
        Self::Emulation,
        Self::Large,
        Self::Cancel,
        Self::Shutdown,
    ];

    /// What is checked, in words.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Hello => "says hello first, in time, in a version that fits",
            Self::Run => "carries out a run: events, one final, then the end",
            Self::Ping => "answers pings while it works",
            Self::Unknown => "ignores members and messages it does not know",
            Self::Emulation => "is given ABP's instructions with its task",
            Self::Large => "takes a work order of four megabytes",
            Self::Cancel => "ends a run that is cancelled",
            Self::Shutdown => "exits when its input is closed",
        }
    }

    async fn make(self, settings: &CheckSettings) -> CheckResult {
        match self {
            Self::Hello => hello(settings).await,
            Self::Run => run(settings).await,
            Self::Ping => ping(settings).await,
            Self::Unknown => unknown(settings).await,
            Self::Emulation => emulation(settings).await,
            Self::Large => large(settings).await,
            Self::Cancel => cancel(settings).await,
            Self::Shutdown => shutdown(settings).await,
        }
    }
}

impl Finding {
    /// Whether it passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        matches!(self.verdict, CheckResult::Passed { .. })
    }
}

impl CheckResult {
    fn passed(note: impl Into<String>) -> Self {
        Self::Passed { note: note.into() }
    }
}

impl From<SidecarFailure> for CheckResult {
    fn from(failure: SidecarFailure) -> Self {
        let mut cause = String::new();
        let mut next = std::error::Error::source(&failure.error);
        while let Some(one) = next {
            cause.push_str(&format!(": {one}"));
            next = one.source();
        }
        // Otherwise it did not end by itself.
        let exit = match (&failure.error, failure.exit) {
            (HostError::Exited | HostError::Fatal(_), Some(exit)) => format!(" ({exit})"),
            _ => String::new(),
        };
        Self::Failed {
            code: failure.error.code(),
            problem: format!("{}{cause}{exit}", failure.error),
            fix: fix(&failure.error).to_owned(),
            gave_up: matches!(failure.error, HostError::Fatal(_)),
            stderr_tail: failure.stderr_tail,
        }
    }
}

async fn hello(settings: &CheckSettings) -> CheckResult {
    match SidecarClient::spawn(settings.spec.clone()).await {
        Ok(client) => CheckResult::passed(format!(
            "{}, {} capabilities",
            client.identity().id,
            client.manifest().len()
        )),
        Err(failure) => failure.into(),
    }
}

async fn run(settings: &CheckSettings) -> CheckResult {
    match start(settings, settings.spec.clone(), order(settings)).await {
        Ok(run) => follow(run).await.0,
        Err(failure) => failure.into(),
    }
}

async fn ping(settings: &CheckSettings) -> CheckResult {
    let mut spec = settings.spec.clone();
    spec.timing.ping_interval = PING_EVERY;
    spec.timing.pong = PONG_PATIENCE;
    spec.timing.max_missed_pongs = 1;
    let mut client = match SidecarClient::spawn(limited(settings, spec)).await {
        Ok(client) => client,
        Err(failure) => return failure.into(),
    };
    // A run may be too short for a ping; this one is there before it.
    client.ping();
    match follow(client.run_json(Uuid::new_v4(), order(settings))).await {
        (CheckResult::Passed { .. }, 0) => CheckResult::Failed {
            code: ErrorCode::BackendTimeout,
            problem: "no ping was answered".to_owned(),
            fix: advice::PONG.to_owned(),
            stderr_tail: String::new(),
            gave_up: false,
        },
        (CheckResult::Passed { .. }, answered) => {
            CheckResult::passed(format!("{answered} answers"))
        }
        (failed, _) => failed,
    }
}

async fn unknown(settings: &CheckSettings) -> CheckResult {
    let mut order = order(settings);
    if let Value::Object(members) = &mut order {
        members.insert(
            "x_from_a_newer_host".to_owned(),
            json!({"nested": [1, null]}),
        );
    }
    let client = match SidecarClient::spawn(limited(settings, settings.spec.clone())).await {
        Ok(client) => client,
        Err(failure) => return failure.into(),
    };
    client.send_frame(&Frame::Unknown(json!({"t": "x_from_a_newer_host", "n": 1})));
    follow(client.run_json(Uuid::new_v4(), order)).await.0
}

/// Sends a task with an instruction of ABP's. Only the sidecar knows whether its agent was given it:
/// one that tells is believed, and for any other the author is shown what the agent should have got.
async fn emulation(settings: &CheckSettings) -> CheckResult {
    let capability = Capability::ExtendedThinking;
    let strategy = default_strategy(&capability);
    let entries = [EmulationEntry {
        capability,
        strategy,
    }];
    let mut order = work_order(settings);
    let conversation = IrConversation::default();
    let delivered = deliver_emulations(&mut order, &entries, Some(&conversation));
    let problem = match (delivered, serde_json::to_value(&order)) {
        (Ok(()), Ok(order)) => return instructed(settings, order).await,
        (Err(error), _) => error.to_string(),
        (_, Err(error)) => error.to_string(),
    };
    CheckResult::Skipped { why: problem }
}

async fn instructed(settings: &CheckSettings, order: Value) -> CheckResult {
    let instruction = order.pointer("/config/vendor/abp/emulation/0/instruction");
    let instruction = instruction.and_then(Value::as_str).unwrap_or_default();
    let sent = format!("sent {instruction:?} in the task");
    let mut run = match start(settings, settings.spec.clone(), order).await {
        Ok(run) => run,
        Err(failure) => return failure.into(),
    };
    while run.next_events().await.is_some() {}
    let claim = match run.finish().await.result {
        Ok(claim) => claim,
        Err(failure) => return failure.into(),
    };
    match claim.emulation {
        Some(told) if told.contains(&Capability::ExtendedThinking) => {
            CheckResult::passed(format!("{sent}; the sidecar says that its agent got it"))
        }
        None => CheckResult::passed(format!(
            "{sent}; the sidecar does not say whether its agent got it"
        )),
        Some(_) => CheckResult::Failed {
            code: ErrorCode::CapabilityEmulationFailed,
            problem: format!("{sent}; the sidecar says that its agent did not get it"),
            fix: advice::WHOLE_TASK.to_owned(),
            stderr_tail: String::new(),
            gave_up: false,
        },
    }
}

async fn large(settings: &CheckSettings) -> CheckResult {
    let mut order = work_order(settings);
    order.context.snippets.push(ContextSnippet {
        name: "large".to_owned(),
        content: "x".repeat(LARGE),
    });
    let order = serde_json::to_value(order).unwrap_or_default();
    match start(settings, settings.spec.clone(), order).await {
        Ok(run) => follow(run).await.0,
        Err(failure) => failure.into(),
    }
}

async fn cancel(settings: &CheckSettings) -> CheckResult {
    let mut spec = settings.spec.clone();
    spec.timing.cancel = Grace {
        before_term: CANCEL_PATIENCE,
        before_kill: Duration::from_millis(500),
    };
    let run = match start(settings, spec, order(settings)).await {
        Ok(run) => run,
        Err(failure) => return failure.into(),
    };
    run.cancel_token().cancel("user");
    match follow(run).await.0 {
        // The run ended, though with an error; that is an answer to a cancel.
        CheckResult::Failed {
            gave_up: true,
            problem,
            ..
        } => CheckResult::passed(problem),
        verdict => verdict,
    }
}

async fn shutdown(settings: &CheckSettings) -> CheckResult {
    match SidecarClient::spawn(settings.spec.clone()).await {
        Ok(client) => match client.close().await {
            Ok(()) => CheckResult::passed("it exited by itself"),
            Err(failure) => failure.into(),
        },
        Err(failure) => failure.into(),
    }
}

fn work_order(settings: &CheckSettings) -> WorkOrder {
    let mut order = WorkOrderBuilder::new(&settings.task).build();
    order.workspace.root = settings.spec.directory.to_string_lossy().into_owned();
    order
}

fn order(settings: &CheckSettings) -> Value {
    serde_json::to_value(work_order(settings)).unwrap_or_default()
}

fn limited(settings: &CheckSettings, mut spec: SidecarSpec) -> SidecarSpec {
    spec.timing.run = Some(settings.patience + CANCEL_PATIENCE);
    spec
}

async fn start(
    settings: &CheckSettings,
    spec: SidecarSpec,
    order: Value,
) -> Result<SidecarRun, SidecarFailure> {
    let client = SidecarClient::spawn(limited(settings, spec)).await?;
    Ok(client.run_json(Uuid::new_v4(), order))
}

/// Follows a run to its end; says how many pings were answered.
async fn follow(mut run: SidecarRun) -> (CheckResult, u64) {
    let mut events = 0;
    while let Some(batch) = run.next_events().await {
        events += batch.len();
    }
    let ended = run.finish().await;
    let verdict = match ended.result {
        Ok(_) => CheckResult::passed(format!("{events} events")),
        Err(failure) => failure.into(),
    };
    (verdict, ended.answered_pings)
}
