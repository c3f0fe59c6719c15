//! `abp launch`: an agent that asks its models through the gateway.

mod agent;
mod place;

use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use abp_config::Config;
use abp_error::{AbpError, ErrorCode};
use abp_store::{KeyScope, Store};
use rustix::process::{Pid, Signal, kill_process};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value, json};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use self::agent::{OwnFiles, Setup, Target};
use self::place::Place;
use crate::args::{Agent, GlobalArgs, LaunchArgs};
use crate::cmd::keys::{MadeKey, make};
use crate::output::{DIM, Output};
use crate::session::{Session, block_on};
use abp_control::first_configured_model;

/// How long a launch's key is good where nothing is left to revoke it.
const KEY_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) fn run(
    args: &LaunchArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<u8, AbpError> {
    let session = Session::open(global, &[], output)?;
    if args.print {
        let base = block_on(async { Ok(place::expected(args, session.config()).await) })?;
        print(args, &session, &base, output)?;
        return Ok(0);
    }
    let program = on_search_path(args.agent.program()).ok_or_else(|| not_installed(args.agent))?;
    let model = model(args, session.config())?;
    block_on(async {
        let store = session.plane.store().await?;
        let key = Key::of(args, store).await?;
        let ended = with_gateway(args, &session, &key, model, &program).await;
        key.give_back(store).await;
        session.plane.close().await;
        ended
    })
}

async fn with_gateway(
    args: &LaunchArgs,
    session: &Session,
    key: &Key,
    model: Option<&str>,
    program: &Path,
) -> Result<u8, AbpError> {
    let place = Place::find(args, &session.plane, key.secret()).await?;
    let directory = tempfile::Builder::new()
        .prefix("abp-launch-")
        .tempdir()
        .map_err(|error| unusable("a temporary directory", error))?;
    let own = match args.agent {
        Agent::Gemini => OwnFiles::of_gemini(),
        _ => OwnFiles::default(),
    };
    let setup = args.agent.setup(&Target {
        base: place.base(),
        key: key.secret(),
        model,
        own: &own,
        on_loss: args.on_loss,
        directory: directory.path(),
    });
    let ended = match write_files(directory.path(), &setup) {
        Ok(()) => start(program, &setup, args).await,
        Err(error) => Err(unusable("the agent's settings", error)),
    };
    place.leave().await;
    ended
}

/// The model to ask for: the one that was chosen or, for agents that have none of their own, the first
/// that is served by name.
fn model<'a>(args: &'a LaunchArgs, config: &'a Config) -> Result<Option<&'a str>, AbpError> {
    if args.model.is_some() || !args.agent.needs_model() {
        return Ok(args.model.as_deref());
    }
    // What another gateway serves is not known here.
    let served = first_configured_model(config).filter(|_| args.base_url.is_none());
    served.map(Some).ok_or_else(|| {
        let message = format!(
            "{} has no model of its own choice, and none is served by a plain name: say with --model \
             which one to ask for",
            args.agent.program()
        );
        AbpError::new(ErrorCode::ConfigInvalid, message)
    })
}

/// The key that the agent gets.
enum Key {
    /// One that the user has.
    Given(SecretString),
    /// One that was made for this launch.
    Made(MadeKey),
}

impl Key {
    async fn of(args: &LaunchArgs, store: &Store) -> Result<Self, AbpError> {
        let Some(file) = &args.key_file else {
            let name = format!("launch {}", args.agent.program());
            return make(
                store,
                &name,
                Some(KEY_LIFETIME),
                &[KeyScope::Models],
                &args.limits,
            )
            .await
            .map(Self::Made);
        };
        let key = std::fs::read_to_string(file).map_err(|error| {
            let message = format!("--key-file {} cannot be read", file.display());
            AbpError::new(ErrorCode::ConfigInvalid, message).with_source(error)
        })?;
        Ok(Self::Given(SecretString::from(key.trim())))
    }

    fn secret(&self) -> &str {
        match self {
            Self::Given(secret) | Self::Made(MadeKey { secret, .. }) => secret.expose_secret(),
        }
    }

    async fn give_back(&self, store: &Store) {
        if let Self::Made(made) = self
            && let Err(error) = store.revoke_key(&made.id).await
        {
            tracing::warn!(target: "abp.launch", %error, key = made.id, "the key was not revoked");
        }
    }
}

/// The files of a launch hold its key: nobody else may read them.
fn write_files(directory: &Path, setup: &Setup) -> std::io::Result<()> {
    for (name, content) in &setup.files {
        let path = directory.join(name);
        if let Some(parent) = path.parent() {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(parent)?;
        }
        let mut options = std::fs::OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        std::io::Write::write_all(&mut file, content.as_bytes())?;
    }
    Ok(())
}

/// Starts the agent and waits for its end; its exit status is ours.
async fn start(program: &Path, setup: &Setup, args: &LaunchArgs) -> Result<u8, AbpError> {
    let mut command = Command::new(program);
    for variable in setup.unset {
        command.env_remove(variable);
    }
    command
        .envs(setup.set.iter().map(|(name, value)| (name, value)))
        .args(&setup.args)
        .args(&args.args);
    let hear = |kind| signal(kind).map_err(|error| unusable("signals", error));
    // A terminal tells the agent itself of an interrupt; what it does about it is its own affair.
    let mut interrupt = hear(SignalKind::interrupt())?;
    let mut terminate = hear(SignalKind::terminate())?;
    let mut hang_up = hear(SignalKind::hangup())?;
    let mut child = command
        .spawn()
        .map_err(|error| unusable(&program.display().to_string(), error))?;
    loop {
        tokio::select! {
            ended = child.wait() => {
                let status = ended.map_err(|error| unusable("the agent", error))?;
                return Ok(exit_code(status));
            }
            _ = interrupt.recv() => {}
            _ = terminate.recv() => pass_on(&child, Signal::TERM),
            _ = hang_up.recv() => pass_on(&child, Signal::HUP),
        }
    }
}

fn pass_on(child: &Child, signal: Signal) {
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(id) = id.and_then(Pid::from_raw)
        && let Err(error) = kill_process(id, signal)
    {
        tracing::debug!(target: "abp.launch", %error, "the agent was not told");
    }
}

/// As shells tell it: a signal's number is added to 128.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

fn on_search_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let is_program = |file: &PathBuf| {
        std::fs::metadata(file)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(is_program)
}

fn not_installed(agent: Agent) -> AbpError {
    let message = format!(
        "{} is not on the search path; install it with `npm install --global {}`",
        agent.program(),
        agent.package()
    );
    AbpError::new(ErrorCode::BackendUnavailable, message)
}

fn unusable(what: &str, error: std::io::Error) -> AbpError {
    AbpError::new(ErrorCode::Internal, format!("{what} cannot be used")).with_source(error)
}

/// Shows what the agent would be given. There is no key yet, and no directory.
fn print(
    args: &LaunchArgs,
    session: &Session,
    expected: &place::Expected,
    output: &mut Output,
) -> Result<(), AbpError> {
    let setup = args.agent.setup(&Target {
        base: &expected.base,
        key: "KEY",
        model: model(args, session.config())?,
        own: &OwnFiles::default(),
        on_loss: args.on_loss,
        directory: Path::new("DIRECTORY"),
    });
    let mut command = vec![args.agent.program().to_owned()];
    command.extend(setup.args);
    command.extend(
        args.args
            .iter()
            .map(|arg| arg.to_string_lossy().into_owned()),
    );
    if output.is_json() {
        let text = |(name, value): (&str, String)| (name.to_owned(), Value::String(value));
        return output.json(&json!({
            "gateway": expected.kind(),
            "base_url": expected.base,
            "set": setup.set.into_iter().map(text).collect::<Map<_, _>>(),
            "unset": setup.unset,
            "files": setup.files.into_iter().map(text).collect::<Map<_, _>>(),
            "command": command,
        }));
    }
    let note = |text: &str| format!("{DIM}# {text}{DIM:#}");
    output.line(&note(expected.describe()));
    output.line(&note("KEY is made for each launch, and so is DIRECTORY"));
    if args.agent == Agent::Gemini {
        output.line(&note(
            "your own settings, trusted folders and GEMINI.md are copied there, too",
        ));
    }
    for (name, value) in &setup.set {
        output.line(&format!("export {name}={}", for_shell(value)));
    }
    for name in setup.unset {
        output.line(&format!("unset {name}"));
    }
    for (name, content) in &setup.files {
        output.line(&note(&format!("DIRECTORY/{name}:")));
        for line in content.lines() {
            output.line(&note(line));
        }
    }
    let command: Vec<String> = command.iter().map(|word| for_shell(word)).collect();
    output.line(&command.join(" "));
    Ok(())
}

/// A word as a shell reads it back.
fn for_shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
