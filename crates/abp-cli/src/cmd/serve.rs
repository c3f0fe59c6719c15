//! `abp serve`: the gateway, until it is told to stop.

mod reload;

use std::net::SocketAddr;
use std::time::Duration;

use abp_config::Loaded;
use abp_control::{ControlPlane, GatewayReloader, WorkerLimits, operator_key, operator_key_file};
use abp_daemon::Daemon;
use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_gateway::key_hash;
use abp_gateway_http::{Server, ServerOptions, harden};
use secrecy::ExposeSecret as _;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{GlobalArgs, ServeArgs};
use crate::gateway::reachable;
use crate::output::{DIM, Output, STRONG};
use crate::session::{Session, block_on, sources};

/// How long runs may go on after the server was told to stop.
const DRAIN: Duration = Duration::from_secs(5);

pub(crate) fn run(
    args: &ServeArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    harden();
    let Session { loaded, plane } = Session::open(global, &[], output)?;
    block_on(async {
        let served = serve(args, global, &plane, &loaded, output).await;
        // Also where it failed: a store that was not closed counts as a crash.
        plane.close().await;
        served
    })
}

async fn serve(
    args: &ServeArgs,
    global: &GlobalArgs,
    plane: &ControlPlane,
    loaded: &Loaded,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let config = plane.config();
    let port = args
        .port
        .map(|port| SocketAddr::new(config.bind_address, port));
    let mut options = ServerOptions::from_config(config, args.listen.or(port));
    options.insecure_bind = args.insecure_bind;
    let gateway = plane.gateway().await?;
    let key_file = args.key_file.clone();
    let key_file = key_file.unwrap_or_else(|| operator_key_file(config));
    let key = operator_key(&key_file)?;
    let operator = key_hash(key.expose_secret().as_bytes());
    gateway.reload_keys(Some(operator)).await?;
    let upstreams: Vec<String> = gateway.upstreams().into_iter().map(|up| up.name).collect();
    let secure = options.tls.is_some();
    let reloader = GatewayReloader::new(gateway.clone(), config)?;
    let reloads = reload::follow(reloader, sources(global), args.watch)?;
    let daemon = Daemon::new(plane, &gateway, Some(loaded))?;
    let server = Server::bind(gateway, daemon.routes(), options).await?;
    let address = server
        .local_addr()
        .map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))?;
    let shutdown = stop_signal()?;
    daemon.start().await?;
    let workers = plane.start_workers(WorkerLimits::of(config)).await?;
    let started = Started {
        address,
        secure,
        key: key.expose_secret(),
        key_file: &key_file.display().to_string(),
        upstreams: &upstreams,
    };
    started.tell(output)?;
    let reloads = tokio::spawn(reloads);
    let close = async {
        reloads.abort();
        let left = plane.drain(DRAIN).await;
        if left > 0 {
            tracing::warn!(target: "abp.daemon", left, "runs did not end in time");
        }
        workers.ended().await;
        daemon.close().await;
    };
    server.run(operator, shutdown, close).await;
    Ok(ExitStatus::Success)
}

/// Done when the process is told to stop.
pub(crate) fn stop_signal() -> Result<impl Future<Output = ()>, AbpError> {
    let hear = |kind| {
        signal(kind).map_err(|error| {
            AbpError::new(ErrorCode::Internal, "signals cannot be heard").with_source(error)
        })
    };
    let mut terminate = hear(SignalKind::terminate())?;
    let mut interrupt = hear(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// What a person needs to know to use the server.
struct Started<'s> {
    address: SocketAddr,
    secure: bool,
    key: &'s str,
    key_file: &'s str,
    upstreams: &'s [String],
}

impl Started<'_> {
    fn tell(&self, output: &mut Output) -> Result<(), AbpError> {
        let scheme = if self.secure { "https" } else { "http" };
        let base = format!("{scheme}://{}", reachable(self.address));
        if output.is_json() {
            return output.json(&json!({
                "console": format!("{base}/console#key={}", self.key),
                "listening": base,
                "key": self.key,
                "key_file": self.key_file,
                "upstreams": self.upstreams,
            }));
        }
        // A file is kept, and read by others than the operator: the key is not for it.
        let key = match output.is_on_terminal() {
            true => self.key.to_owned(),
            false => "$(abp keys show operator)".to_owned(),
        };
        let lines = [
            format!("{STRONG}console{STRONG:#}    {base}/console#key={key}"),
            format!("{STRONG}listening{STRONG:#}  {base}"),
            format!("{STRONG}upstreams{STRONG:#}  {}", self.upstreams.join(", ")),
            String::new(),
            format!(
                "{DIM}# the key of the operator, in {}{DIM:#}",
                self.key_file
            ),
            format!("export ABP_KEY={key}"),
            format!("{DIM}# OpenAI SDKs{DIM:#}"),
            format!("export OPENAI_BASE_URL={base}/v1 OPENAI_API_KEY=$ABP_KEY"),
            format!("{DIM}# Anthropic SDKs, Claude Code{DIM:#}"),
            format!("export ANTHROPIC_BASE_URL={base} ANTHROPIC_API_KEY=$ABP_KEY"),
            format!("{DIM}# Google Gen AI SDKs, Gemini CLI{DIM:#}"),
            format!("export GOOGLE_GEMINI_BASE_URL={base} GEMINI_API_KEY=$ABP_KEY"),
            format!("{DIM}# or by hand{DIM:#}"),
            format!(
                "curl {base}/v1/chat/completions -H \"authorization: Bearer $ABP_KEY\" \
                 -H 'content-type: application/json' \
                 -d '{{\"model\":\"mock\",\"messages\":[{{\"role\":\"user\",\"content\":\"hello\"}}]}}'"
            ),
        ];
        for line in lines {
            output.line(&line);
        }
        Ok(())
    }
}
