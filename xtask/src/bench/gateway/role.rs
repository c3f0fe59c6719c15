//! This program in another role: a server for the benchmark, started as a process of its own so that
//! its processor time is its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};

use super::{proxy, upstream};
use crate::output::{complain, say};

/// As first argument: be one of the servers.
const ROLE: &str = "__bench-gateway";

/// A server that this program can be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Role {
    Upstream,
    /// In front of that upstream.
    Proxy(SocketAddr),
}

impl Role {
    /// The command that starts this program in the role.
    pub(super) fn command(self) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(ROLE);
        match self {
            Self::Upstream => command.arg("upstream"),
            Self::Proxy(upstream) => command.args(["proxy", &upstream.to_string()]),
        };
        Ok(command)
    }

    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        match arguments.next().as_deref() {
            Some("upstream") => Ok(Self::Upstream),
            Some("proxy") => {
                let upstream = arguments.next().context("no address")?;
                Ok(Self::Proxy(upstream.parse()?))
            }
            other => bail!("no role is named {other:?}"),
        }
    }

    fn play(self) -> Result<()> {
        match self {
            Self::Upstream => upstream::serve(),
            Self::Proxy(upstream) => proxy::serve(upstream),
        }
    }
}

/// Plays a role where this process was started for one.
pub(crate) fn run_if_role() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next()? != ROLE {
        return None;
    }
    Some(match Role::parse(arguments).and_then(Role::play) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    })
}

/// Listens on a free port, says which, and serves every connection in a task of its own.
pub(super) async fn accept<F>(serve: impl Fn(TcpStream) -> F) -> Result<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    say(Value::from(listener.local_addr()?.to_string()));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                stream.set_nodelay(true)?;
                tokio::spawn(serve(stream));
            }
            // Out of descriptors, most likely: what is open has to end first.
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}
