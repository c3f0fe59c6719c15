//! The command line.

mod acp;
mod agents;
mod control;
mod exchanges;
mod import;
mod keys;
mod launch;
mod mcp;
mod present;
mod sandbox;
mod serve;
mod sidecar;
mod store;
mod translate;
mod ui;
mod upstreams;

use std::path::PathBuf;

use abp_core::ExecutionLane;
use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use acp::AcpArgs;
pub(crate) use agents::{AgentsArgs, AgentsCommand};
pub(crate) use control::{
    AnswerArgs, ApprovalsArgs, BackupArgs, CancelArgs, GcArgs, LogsArgs, RestoreArgs,
};
pub(crate) use exchanges::{ExchangeFilter, ExchangesArgs, ExchangesCommand, GroupBy};
pub(crate) use import::ImportArgs;
pub(crate) use keys::{KeyLimits, KeysArgs, KeysCommand, NewKeyArgs};
pub(crate) use launch::{Agent, LaunchArgs};
pub(crate) use mcp::{McpArgs, McpCommand, NegotiateArgs};
pub(crate) use present::{ClientKind, PresentArgs};
pub(crate) use sandbox::{SandboxArgs, SandboxCommand, SandboxPlanArgs, SandboxRunArgs};
pub(crate) use serve::{ServeArgs, listen_address};
pub(crate) use sidecar::{SidecarArgs, SidecarCheckArgs, SidecarCommand, SidecarLanguage};
pub(crate) use store::{MigrateArgs, NodesArgs};
pub(crate) use translate::{MatrixArgs, OnLoss, ReportForm, Source, TranslateArgs, TranslateKind};
pub(crate) use ui::UiArgs;
pub(crate) use upstreams::{AddUpstreamArgs, UpstreamsArgs, UpstreamsCommand};

/// Agent Backplane: any client drives any agent or model, and you see exactly what was kept,
/// emulated, adapted or refused on the way.
#[derive(Debug, Parser)]
#[command(name = "abp", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Example:\n  abp run --task \"say hello\"\n\n\
Exit status: 0 ok, 1 run failed, 2 usage or input, 3 capability unsupported, 4 policy denied,\n\
5 budget exceeded, 6 backend unavailable or timed out, 7 verification failed,\n\
8 workspace conflict, 130 cancelled.")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Args)]
pub(crate) struct GlobalArgs {
    /// Log what happens inside to standard error (or set RUST_LOG=abp=debug).
    #[arg(long, global = true)]
    pub(crate) debug: bool,
    /// Print one JSON object instead of text.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The configuration to use instead of ./backplane.toml (or set ABP_CONFIG).
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where runs, receipts and stages are kept (or set ABP_HOME) [default: ~/.local/state/abp].
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// The server to run on, whose key is in ABP_REMOTE_KEY: for run, runs, logs, cancel, approvals,
    /// approve, deny, diff, apply and discard.
    #[arg(long, global = true, value_name = "URL", env = "ABP_REMOTE")]
    pub(crate) remote: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a task on a backend.
    Run(Box<RunArgs>),
    /// Serve the vendors' own endpoints in front of any upstream.
    Serve(ServeArgs),
    /// Open the console of a server that runs, in a browser.
    Ui(UiArgs),
    /// Start an agent that asks its models through the gateway.
    Launch(Box<LaunchArgs>),
    /// Make, list and revoke the keys of the gateway's callers.
    Keys(KeysArgs),
    /// List the models that the gateway serves.
    Models(ModelsArgs),
    /// Add, list and remove the models' APIs that requests go to.
    Upstreams(UpstreamsArgs),
    /// Serve runs, or other MCP servers, to an MCP client at the standard streams.
    Mcp(McpArgs),
    /// Be an agent of an editor, over the Agent Client Protocol (ACP).
    Acp(AcpArgs),
    /// Install agents, list and update them.
    Agents(AgentsArgs),
    /// List the backends and what they can do.
    Backends(BackendsArgs),
    /// List runs and show one.
    Runs(RunsArgs),
    /// List the sessions that agents had in runs, which `abp run --continue` goes on with.
    Sessions(SessionsArgs),
    /// List, show and count what went through the gateway.
    Exchanges(ExchangesArgs),
    /// Show what a run did, and follow one that goes on.
    Logs(LogsArgs),
    /// Cancel a run, whichever process carries it out.
    Cancel(CancelArgs),
    /// List the questions of runs that wait for a person.
    Approvals(ApprovalsArgs),
    /// Allow what a run asks for.
    Approve(AnswerArgs),
    /// Refuse what a run asks for.
    Deny(AnswerArgs),
    /// Show the changes of a run that are not decided about yet.
    Diff(StageArgs),
    /// Apply the changes of a run to its source: all of them or, on conflict, none.
    Apply(ApplyArgs),
    /// Throw the changes of a run away.
    Discard(StageArgs),
    /// Remove what runs that have ended left behind, by age and size.
    Gc(GcArgs),
    /// Copy the state directory while it is in use, and verify the copy.
    Backup(BackupArgs),
    /// Make a state directory from a backup, after verifying it.
    Restore(RestoreArgs),
    /// Bring the tables of a store on Postgres up to date, and make its keys.
    Migrate(MigrateArgs),
    /// List the processes that have a store on Postgres open.
    Nodes(NodesArgs),
    /// Copy the receipts of an earlier version's state directory, trusting nothing of it.
    Import(ImportArgs),
    /// Check a work order, receipt, policy or sidecar transcript.
    Validate(ValidateArgs),
    /// Translate a vendor's request, answer, stream or error into another vendor's form.
    Translate(TranslateArgs),
    /// Show what survives between dialects, feature by feature.
    Matrix(MatrixArgs),
    /// Show a recorded run as a client would get it: a web page, a terminal, a voice.
    Present(PresentArgs),
    /// Run any program in a sandbox, or show what it would be.
    Sandbox(SandboxArgs),
    /// Check or start a program that is to be a backend.
    Sidecar(SidecarArgs),
    /// Print a JSON schema.
    Schema(SchemaArgs),
    /// Show what a receipt says.
    Inspect(InspectArgs),
    /// Work with receipts.
    Receipt(ReceiptArgs),
    /// Check or show the configuration.
    Config(ConfigArgs),
    /// Make a configuration file to start from.
    Init(InitArgs),
    /// Explain an error code.
    Explain(ExplainArgs),
    /// Check what this machine gives and what stands in the way.
    Doctor(DoctorArgs),
    /// Print a completion script for a shell.
    Completion(CompletionArgs),
    /// Print a manual page.
    Man(ManArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  abp run --task \"say hello\"\n  \
abp run --order order.json --require streaming:native --json\n  \
abp run --task \"fix the tests\" --backend auto --policy policy.json --dry-run\n  \
abp run --task \"nightly cleanup\" --idempotency-key cleanup-2026-11-16\n  \
abp run --task \"say hello\" --backend upstream:mock\n  \
abp run --task \"say hello\" --race mock,upstream:mock --check \"test -d .\"")]
pub(crate) struct RunArgs {
    /// What is to be done.
    #[arg(long, value_name = "TEXT", required_unless_present = "order")]
    pub(crate) task: Option<String>,
    /// A work order to start from; `-` reads standard input. Other flags override it.
    #[arg(long, value_name = "FILE")]
    pub(crate) order: Option<PathBuf>,
    /// The backend, `upstream:NAME` for a configured upstream, or `auto` for whichever fits best
    /// [default: the configured one, else mock].
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<String>,
    /// Go on with the agent's session of an earlier run: its id, the beginning of it, or `last`. The backend is
    /// that run's.
    #[arg(long = "continue", value_name = "RUN", conflicts_with = "fork")]
    pub(crate) continue_run: Option<String>,
    /// Go on with a copy of the agent's session of an earlier run, which stays as it is.
    #[arg(long, value_name = "RUN")]
    pub(crate) fork: Option<String>,
    /// Run on several backends at once, each on a stage of its own, and compare them, e.g. `claude,codex`.
    /// Nobody is asked meanwhile: what was not approved in advance is denied.
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',', conflicts_with_all = [
        "backend", "continue_run", "fork", "dry_run", "jsonl", "detach", "out", "idempotency_key",
    ])]
    pub(crate) race: Vec<String>,
    /// A command that judges the result, e.g. "cargo test". It runs in a sandbox, on a layer over the stage
    /// that is thrown away; a result that it does not pass is `partial`.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) check: Option<String>,
    /// Apply the fastest result of the race that passed the check.
    #[arg(long, requires = "race", requires = "check")]
    pub(crate) apply_winner: bool,
    /// The model; the backend's default when omitted.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// A file of the workspace that matters for the task.
    #[arg(long = "context", value_name = "PATH")]
    pub(crate) context: Vec<String>,
    /// A vendor setting, e.g. `abp.mode=passthrough`; the value is JSON, or else a string.
    #[arg(long = "param", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) params: Vec<(String, String)>,
    /// An environment variable for what the agent starts; it travels in the work order.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = key_value)]
    pub(crate) env: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// Show the plan, the policy, the limits and the workspace, and stop: nothing is started or written.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print each event as a line of JSON, then the summary.
    #[arg(long, conflicts_with = "json")]
    pub(crate) jsonl: bool,
    /// Queue the run for `abp serve` and return: `abp logs`, `abp cancel` and `abp approve` take its id.
    #[arg(long, conflicts_with_all = ["dry_run", "jsonl", "out"])]
    pub(crate) detach: bool,
    /// Also write the receipt to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Name this request: sent again with the same name, it is the run it was before, not a new one.
    #[arg(long, value_name = "KEY", conflicts_with = "dry_run", value_parser = idempotency_key)]
    pub(crate) idempotency_key: Option<String>,
    #[command(flatten)]
    pub(crate) workspace: WorkspaceArgs,
    #[command(flatten)]
    pub(crate) governance: GovernanceArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Workspace")]
pub(crate) struct WorkspaceArgs {
    /// The directory to work on [default: .].
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<String>,
    /// Work on a copy, or in place [default: staged].
    #[arg(long, value_name = "MODE")]
    pub(crate) workspace_mode: Option<WorkspaceModeArg>,
    /// Propose changes as a diff, or apply them when the run succeeded [default: patch-first].
    #[arg(long, value_name = "LANE")]
    pub(crate) lane: Option<LaneArg>,
    /// Take only files that match this glob; wins over .gitignore.
    #[arg(long, value_name = "GLOB")]
    pub(crate) include: Vec<String>,
    /// Leave out files that match this glob.
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
    /// Take files that .gitignore hides, too.
    #[arg(long)]
    pub(crate) no_gitignore: bool,
    /// Work on a copy of the source as it is now, even where the live source could be shown under an overlay
    #[arg(long)]
    pub(crate) snapshot: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Requirements and policy")]
pub(crate) struct GovernanceArgs {
    /// A capability the backend must have, e.g. `streaming:native` [levels: native, emulated, any].
    #[arg(long, value_name = "CAP[:LEVEL]")]
    pub(crate) require: Vec<String>,
    /// A policy profile: a configured name, or a file (JSON). Adds to the default protections.
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) policy: Option<String>,
    /// Drop the default protections (secrets unread, repositories unharmed).
    #[arg(long)]
    pub(crate) no_default_policy: bool,
    /// Approve a tool (glob) that the policy wants approval for.
    #[arg(long, value_name = "TOOL")]
    pub(crate) approve: Vec<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Stop after this long: seconds, or a duration like `90s` or `5m`.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<std::time::Duration>,
    /// Stop when the run costs more; needs a price for the model.
    #[arg(long, value_name = "USD")]
    pub(crate) max_budget_usd: Option<f64>,
    /// Stop after this many messages of the agent.
    #[arg(long, value_name = "N")]
    pub(crate) max_turns: Option<u32>,
    /// Prices by model (JSON): {"MODEL": {"input_usd_per_mtok": 3.0, …}}; `*` is any model.
    #[arg(long, value_name = "FILE")]
    pub(crate) prices: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct HostArgs {
    /// Register a scripted mock backend from this file (JSON).
    #[arg(long = "mock-script", value_name = "FILE")]
    pub(crate) mock_scripts: Vec<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  abp sessions --limit 100")]
pub(crate) struct SessionsArgs {
    /// How many runs are looked at, newest first.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: u32,
}

#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    #[command(subcommand)]
    pub(crate) command: RunsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// List runs, newest first.
    #[command(
        after_help = "Examples:\n  abp runs list --limit 5\n  abp runs list --undecided --all"
    )]
    List {
        /// The runs of all projects; otherwise those of the project around this directory.
        #[arg(long)]
        all: bool,
        /// How many.
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: u32,
        /// Only runs whose changes wait for `abp apply` or `abp discard`.
        #[arg(long)]
        undecided: bool,
    },
    /// Show one run.
    #[command(after_help = "Example:\n  abp runs show last --events")]
    Show {
        /// The run: its id, the beginning of it, or `last`; or the id of an exchange.
        run: String,
        /// Print its events instead, however many there are.
        #[arg(long)]
        events: bool,
    },
    /// Delete the events, order, changes and files of a run that has ended; its receipt stays.
    #[command(after_help = "Example:\n  abp runs delete last")]
    Delete {
        /// The run: its id, the beginning of it, or `last`.
        run: String,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  abp diff last\n  abp apply last\n  abp discard last")]
pub(crate) struct StageArgs {
    /// The run: its id, the beginning of it, or `last`.
    pub(crate) run: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  abp apply last\n  abp apply last abp-hello.md")]
pub(crate) struct ApplyArgs {
    /// The run: its id, the beginning of it, or `last`.
    pub(crate) run: String,
    /// Apply only these files and directories.
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Also write files that run code or steer tools on this machine, such as hooks and CI files.
    #[arg(long)]
    pub(crate) allow_host_files: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Report everything that is wrong with the configuration.
    #[command(after_help = "Example:\n  abp config check --strict")]
    Check {
        /// Take what has no effect for an error, too.
        #[arg(long)]
        strict: bool,
    },
    /// Show the effective configuration.
    #[command(after_help = "Example:\n  abp config show --origin")]
    Show {
        /// Say for each value where it comes from.
        #[arg(long)]
        origin: bool,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  abp init --user")]
pub(crate) struct InitArgs {
    /// Make the user's own file instead of one for this project.
    #[arg(long)]
    pub(crate) user: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  abp backends --json\n  abp backends --probe")]
pub(crate) struct BackendsArgs {
    /// Open every backend to see whether it works and what it really can do.
    #[arg(long)]
    pub(crate) probe: bool,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  abp models --json")]
pub(crate) struct ModelsArgs {}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  abp validate order.json\n  abp validate --kind transcript session.jsonl"
)]
pub(crate) struct ValidateArgs {
    /// The file; `-` reads standard input.
    pub(crate) file: PathBuf,
    /// What the file is; recognised by its content when omitted.
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<DocumentKind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DocumentKind {
    WorkOrder,
    Receipt,
    Policy,
    /// Messages between host and sidecar, one per line.
    Transcript,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  abp schema work-order")]
pub(crate) struct SchemaArgs {
    /// Which schema; lists them when omitted.
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  abp inspect RECEIPT\n  abp inspect RECEIPT --diff | git apply\n  \
abp inspect RECEIPT --only tool_call --only permission_resolved"
)]
pub(crate) struct InspectArgs {
    /// The receipt; `-` reads standard input.
    #[arg(value_name = "RECEIPT")]
    pub(crate) file: PathBuf,
    /// Print the diff and nothing else.
    #[arg(long, conflicts_with = "only")]
    pub(crate) diff: bool,
    /// Print only events of this kind; may be repeated. `problem` is every warning, error and denial.
    #[arg(long, value_name = "KIND")]
    pub(crate) only: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ReceiptArgs {
    #[command(subcommand)]
    pub(crate) command: ReceiptCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReceiptCommand {
    /// Say whether receipts are proven, consistent with themselves only, or wrong; or check the log.
    #[command(
        after_help = "A receipt is proven by the log of the state directory, or by an exported proof \
and --key.\nExit status: 0 all are proven, 9 one is consistent with itself only and nothing proves \
it, 7 one is wrong.\n\nExamples:\n  abp receipt verify RECEIPT\n  \
abp receipt verify --log --checkpoint kept-elsewhere.txt"
    )]
    Verify(VerifyArgs),
    /// List receipts, newest first.
    #[command(after_help = "Example:\n  abp receipt list --limit 5")]
    List {
        /// How many.
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: u32,
    },
    /// Show how two receipts differ, field by field.
    #[command(after_help = "Example:\n  abp receipt diff OLD NEW")]
    Diff {
        /// The one.
        old: PathBuf,
        /// The other.
        new: PathBuf,
    },
    /// Print a receipt with everything that proves it: signature, place in the log, checkpoint.
    #[command(after_help = "Example:\n  abp receipt export last > proof.json")]
    Export {
        /// The run: its id, the beginning of it, or `last`.
        run: String,
    },
    /// Print the public key of the log, or replace the key by a new one.
    #[command(after_help = "Example:\n  abp receipt key > abp.pub")]
    Key {
        /// Make a new key; the old one signs the change, and old checkpoints stay valid.
        #[arg(long)]
        rotate: bool,
    },
    /// Print the newest signed checkpoint of the log, to be kept elsewhere.
    #[command(after_help = "Example:\n  abp receipt checkpoint > kept-elsewhere.txt")]
    Checkpoint,
    /// Print a page that verifies receipts in a browser, without a server.
    #[command(after_help = "Example:\n  abp receipt verifier > verify.html")]
    Verifier,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The receipts, or exported ones; `-` reads standard input.
    #[arg(value_name = "RECEIPT", required_unless_present = "log")]
    pub(crate) files: Vec<PathBuf>,
    /// Check the whole log of the state directory, and everything stored against it.
    #[arg(long)]
    pub(crate) log: bool,
    /// A checkpoint that was kept elsewhere: shows truncation and rewriting. May be repeated.
    #[arg(long, value_name = "FILE", requires = "log")]
    pub(crate) checkpoint: Vec<PathBuf>,
    /// The public key to trust: for a log instead of its own, and for exported receipts.
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  abp explain CAPABILITY_UNSUPPORTED")]
pub(crate) struct ExplainArgs {
    /// The error code; lists all when omitted.
    pub(crate) code: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  abp doctor --json\n  abp doctor --apparmor-profile > abp.profile"
)]
pub(crate) struct DoctorArgs {
    /// Print the AppArmor profile that lets abp make sandboxes where AppArmor restricts user namespaces.
    #[arg(long)]
    pub(crate) apparmor_profile: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  abp completion bash > abp.bash")]
pub(crate) struct CompletionArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  abp man run > abp-run.1")]
pub(crate) struct ManArgs {
    /// The command, e.g. `run` or `receipt verify`; `abp` itself when omitted.
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum WorkspaceModeArg {
    Staged,
    PassThrough,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum LaneArg {
    PatchFirst,
    WorkspaceFirst,
}

impl From<LaneArg> for ExecutionLane {
    fn from(lane: LaneArg) -> Self {
        match lane {
            LaneArg::PatchFirst => Self::PatchFirst,
            LaneArg::WorkspaceFirst => Self::WorkspaceFirst,
        }
    }
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

fn idempotency_key(text: &str) -> Result<String, String> {
    const MAX_BYTES: usize = 255;
    let fits = (1..=MAX_BYTES).contains(&text.len());
    if fits && !text.chars().any(char::is_control) {
        Ok(text.to_owned())
    } else {
        Err(format!("expected 1 to {MAX_BYTES} bytes of text"))
    }
}

fn duration(text: &str) -> Result<std::time::Duration, String> {
    let seconds = match text.parse::<f64>() {
        Ok(seconds) => seconds,
        Err(_) => {
            let parsed: jiff::SignedDuration = text
                .parse()
                .map_err(|error: jiff::Error| error.to_string())?;
            parsed.as_secs_f64()
        }
    };
    match std::time::Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("expected a time above zero".to_owned()),
    }
}
