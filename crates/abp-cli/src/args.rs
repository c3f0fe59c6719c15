//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Agent Backplane: any client drives any agent or model, and you see exactly what was kept,
/// emulated, adapted or refused on the way.
#[derive(Debug, Parser)]
#[command(name = "abp", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Example:\n  abp run --task \"say hello\"\n\n\
Exit status: 0 ok, 1 run failed, 2 usage or input, 3 capability unsupported, 4 policy denied,\n\
5 budget exceeded, 6 backend unavailable or timed out, 7 verification failed,\n\
8 workspace conflict, 130 cancelled.")]
pub(crate) struct Cli {
    /// Log what happens inside to standard error (or set RUST_LOG=abp=debug).
    #[arg(long, global = true)]
    pub(crate) debug: bool,
    /// Print one JSON object instead of text.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a task on a backend.
    Run(Box<RunArgs>),
    /// List the backends and what they can do.
    Backends(BackendsArgs),
    /// Check a work order, receipt, policy or sidecar transcript.
    Validate(ValidateArgs),
    /// Print a JSON schema.
    Schema(SchemaArgs),
    /// Show what a receipt says.
    Inspect(InspectArgs),
    /// Work with receipts.
    Receipt(ReceiptArgs),
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
abp run --task \"fix the tests\" --backend auto --policy policy.json --dry-run")]
pub(crate) struct RunArgs {
    /// What is to be done.
    #[arg(long, value_name = "TEXT", required_unless_present = "order")]
    pub(crate) task: Option<String>,
    /// A work order to start from; `-` reads standard input. Other flags override it.
    #[arg(long, value_name = "FILE")]
    pub(crate) order: Option<PathBuf>,
    /// The backend, or `auto` for whichever fits best.
    #[arg(long, value_name = "NAME", default_value = "mock")]
    pub(crate) backend: String,
    /// The model; the backend's default when omitted.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// A file of the workspace that matters for the task.
    #[arg(long = "context", value_name = "PATH")]
    pub(crate) context: Vec<String>,
    /// A vendor setting, e.g. `abp.mode=passthrough`; the value is JSON, or else a string.
    #[arg(long = "param", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) params: Vec<(String, String)>,
    /// An environment variable for the agent.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = key_value)]
    pub(crate) env: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// Show the plan and stop: nothing is opened, copied or written.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print each event as a line of JSON, then the summary.
    #[arg(long, conflicts_with = "json")]
    pub(crate) jsonl: bool,
    /// Also write the receipt to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
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
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Requirements and policy")]
pub(crate) struct GovernanceArgs {
    /// A capability the backend must have, e.g. `streaming:native` [levels: native, emulated, any].
    #[arg(long, value_name = "CAP[:LEVEL]")]
    pub(crate) require: Vec<String>,
    /// A policy profile (JSON).
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
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
    /// Where stages and receipts are kept.
    #[arg(
        long,
        value_name = "DIR",
        env = "ABP_HOME",
        default_value = ".agent-backplane"
    )]
    pub(crate) state_dir: PathBuf,
    /// Register a scripted mock backend from this file (JSON).
    #[arg(long = "mock-script", value_name = "FILE")]
    pub(crate) mock_scripts: Vec<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  abp backends --json")]
pub(crate) struct BackendsArgs {
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

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
    /// Check that receipts are what they were when they were made.
    #[command(after_help = "Example:\n  abp receipt verify .agent-backplane/receipts/*.json")]
    Verify {
        /// The receipts; `-` reads standard input.
        #[arg(value_name = "RECEIPT", required = true)]
        files: Vec<PathBuf>,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  abp explain CAPABILITY_UNSUPPORTED")]
pub(crate) struct ExplainArgs {
    /// The error code; lists all when omitted.
    pub(crate) code: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  abp doctor --json")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  abp completion bash > ~/.local/share/bash-completion/completions/abp"
)]
pub(crate) struct CompletionArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  abp man run | man --local-file -")]
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

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
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
