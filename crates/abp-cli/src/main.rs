//! The `abp` command: runs work orders and looks at what came of them.

mod args;
mod cmd;
mod gateway;
mod input;
mod live;
mod order;
mod output;
mod prompt;
mod render;
mod session;
mod text;
mod turns;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use abp_error::{AbpError, ExitStatus};
use clap::Parser as _;

use crate::args::{Cli, Command, GlobalArgs};
use crate::output::Output;

fn main() -> ExitCode {
    // Before anything else: a launcher has one thread and nothing to read.
    if let Some(launched) = abp_host::run_if_launcher() {
        return launched;
    }
    let Cli { global, command } = Cli::parse();
    start_logging(&global, matches!(command, Command::Serve(_)));
    let mut output = Output::new(global.json);
    let status = match dispatch(command, &global, &mut output) {
        Ok(status) => status,
        Err(error) => report(&error, &mut output),
    };
    ExitCode::from(status)
}

fn dispatch(command: Command, global: &GlobalArgs, output: &mut Output) -> Result<u8, AbpError> {
    if global.remote.is_some()
        && let Some(done) = cmd::remote::dispatch(&command, global, output)
    {
        return done.map(ExitStatus::code);
    }
    let status = match command {
        // Its exit status is the agent's.
        Command::Launch(args) => return cmd::launch::run(&args, global, output),
        // As is that of `sandbox run` its program's.
        Command::Sandbox(args) => return cmd::sandbox::run(&args, global, output),
        Command::Run(args) => cmd::run::run(&args, global, output),
        Command::Serve(args) => cmd::serve::run(&args, global, output),
        Command::Upstreams(args) => cmd::upstreams::run(&args, global, output),
        Command::Exchanges(args) => cmd::exchanges::run(&args, global, output),
        Command::Ui(args) => cmd::ui::run(&args, global, output),
        Command::Keys(args) => cmd::keys::run(&args, global, output),
        Command::Models(_) => cmd::models::run(global, output),
        Command::Mcp(args) => cmd::mcp::run(&args, global, output),
        Command::Acp(args) => cmd::acp::run(&args, global, output),
        Command::Agents(args) => cmd::agents::run(&args, global, output),
        Command::Backends(args) => cmd::backends::run(&args, global, output),
        Command::Runs(args) => cmd::runs::run(&args, global, output),
        Command::Sessions(args) => cmd::sessions::run(&args, global, output),
        Command::Logs(args) => cmd::control::logs(&args, global, output),
        Command::Cancel(args) => cmd::control::cancel(&args, global, output),
        Command::Approvals(args) => cmd::control::approvals(&args, global, output),
        Command::Approve(args) => cmd::control::answer(true, &args, global, output),
        Command::Deny(args) => cmd::control::answer(false, &args, global, output),
        Command::Diff(args) => cmd::stage::diff(&args, global, output),
        Command::Apply(args) => cmd::stage::apply(&args, global, output),
        Command::Discard(args) => cmd::stage::discard(&args, global, output),
        Command::Gc(args) => cmd::gc::run(&args, global, output),
        Command::Backup(args) => cmd::backup::run(&args, global, output),
        Command::Restore(args) => cmd::backup::restore(&args, global, output),
        Command::Migrate(args) => cmd::store::migrate(&args, global, output),
        Command::Nodes(_) => cmd::store::nodes(global, output),
        Command::Import(args) => cmd::import::run(&args, global, output),
        Command::Validate(args) => cmd::validate::run(&args, output),
        Command::Translate(args) => cmd::translate::run(&args, output),
        Command::Matrix(args) => cmd::matrix::run(&args, output),
        Command::Present(args) => cmd::present::run(&args, output),
        Command::Sidecar(args) => cmd::sidecar::run(&args, output),
        Command::Schema(args) => cmd::schema::run(&args, output),
        Command::Inspect(args) => cmd::inspect::run(&args, output),
        Command::Receipt(args) => cmd::receipt::run(&args, global, output),
        Command::Config(args) => cmd::config::run(&args, global, output),
        Command::Init(args) => cmd::config::init(&args, output),
        Command::Explain(args) => cmd::explain::run(&args, output),
        Command::Doctor(args) => cmd::doctor::run(&args, global, output),
        Command::Completion(args) => Ok(cmd::shell::completion(&args, output)),
        Command::Man(args) => cmd::shell::man(&args, output),
    };
    status.map(ExitStatus::code)
}

/// Tells of an error in the form asked for; its code decides the exit status.
fn report(error: &AbpError, output: &mut Output) -> u8 {
    output.error(error);
    error.code().exit_status().code()
}

/// `RUST_LOG` wins over `--debug`, which wins over the configuration. A server whose standard error is a file
/// writes a line for each exchange there, unless the configuration names a level.
fn start_logging(global: &GlobalArgs, is_server: bool) {
    let filter = match std::env::var("RUST_LOG") {
        Ok(filter) if !filter.is_empty() => filter,
        _ if global.debug => "abp=debug".to_owned(),
        // A configuration that cannot be read is reported by the command that needs it.
        _ => match abp_config::load(&session::sources(global)) {
            Ok(loaded) if is_server && is_file(&std::io::stderr()) && !names_level(&loaded) => {
                format!("abp={},abp.span=info", loaded.config.log_level.as_str())
            }
            Ok(loaded) => format!("abp={}", loaded.config.log_level.as_str()),
            Err(_) => "abp=warn".to_owned(),
        },
    };
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .with_writer(std::io::stderr)
        // A file is read by programs, too.
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .init();
}

/// Whether the configuration says how much is logged.
fn names_level(loaded: &abp_config::Loaded) -> bool {
    let origin = loaded.origins.get("log_level");
    origin.is_some_and(|origin| !matches!(origin, abp_config::SettingOrigin::Default))
}

/// Whether a stream goes into a plain file.
fn is_file(stream: &impl std::os::fd::AsFd) -> bool {
    let known = rustix::fs::fstat(stream);
    known.is_ok_and(|known| {
        rustix::fs::FileType::from_raw_mode(known.st_mode) == rustix::fs::FileType::RegularFile
    })
}
