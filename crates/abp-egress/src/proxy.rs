//! The proxy: accepts connections within bounds, and ends them all.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::classify::OwnAuthority;
use crate::connection::{ProxyState, serve};
use crate::dial::Dialer;
use crate::event::{EgressEvents, EventSink};
use crate::limits::EgressLimits;
use crate::resolve::Resolver;
use crate::route::{Route, RouteError, Routes};
use crate::rules::EgressRules;

/// The pause after a failed accept, for example because the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Time for aborted tasks to be gone.
const ABORT_TIME: Duration = Duration::from_secs(2);

/// A proxy that cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EgressError {
    /// The listener cannot be used.
    #[error("the listener of the egress proxy cannot be used")]
    Listener(#[from] io::Error),
    /// A route cannot be served.
    #[error(transparent)]
    Route(#[from] RouteError),
}

/// The settings of a proxy.
#[derive(Debug)]
pub struct EgressOptions {
    /// The hosts that may be reached.
    pub rules: EgressRules,
    /// The routes with credentials.
    pub routes: Vec<Route>,
    /// The bounds.
    pub limits: EgressLimits,
    /// The resolver of host names. Routes use the system's.
    pub resolver: Resolver,
    /// The certificates that routes trust; none means the system's.
    pub route_roots: Option<RootCertStore>,
}

impl EgressOptions {
    /// These rules, no routes, and the defaults.
    #[must_use]
    pub fn new(rules: EgressRules) -> Self {
        Self {
            rules,
            routes: Vec::new(),
            limits: EgressLimits::default(),
            resolver: Resolver::system(),
            route_roots: None,
        }
    }
}

/// A running proxy. It ends when it is closed or dropped, and all of its connections with it.
#[derive(Debug)]
pub struct EgressProxy {
    shared: Arc<ProxyState>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    grace: Duration,
}

impl EgressProxy {
    /// Accepts connections from a listener, which may belong to another network namespace. To be called
    /// inside a tokio runtime.
    ///
    /// # Errors
    /// Fails where the listener cannot be used or a route cannot be served.
    pub fn start(
        listener: std::net::TcpListener,
        options: EgressOptions,
    ) -> Result<(Self, EgressEvents), EgressError> {
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let listener = TcpListener::from_std(listener)?;
        let limits = options.limits;
        let routes = Routes::new(options.routes, options.route_roots, &limits)?;
        let (sink, events) = EventSink::new(limits.events);
        let shared = Arc::new(ProxyState {
            dialer: Dialer::new(options.rules, options.resolver, limits),
            routes,
            limits,
            events: sink,
            own: OwnAuthority { port },
        });
        let (stop, stopped) = watch::channel(false);
        let proxy = Self {
            shared: Arc::clone(&shared),
            stop,
            task: tokio::spawn(accept(listener, shared, stopped)),
            grace: limits.close_grace,
        };
        Ok((proxy, events))
    }

    /// Adds a route to a listener of this machine.
    ///
    /// # Errors
    /// Fails where its name is taken or it leads elsewhere.
    pub fn add_route(&self, route: Route) -> Result<(), EgressError> {
        Ok(self.shared.routes.add_local(route)?)
    }

    /// Waits until nothing is accepted any more, for whatever reason.
    pub async fn ended(&mut self) {
        if !self.task.is_finished() {
            // A panic of the task is its end, too.
            drop((&mut self.task).await);
        }
    }

    /// Ends at once. What is inside the sandbox finds no way out from then on.
    pub fn abort(&self) {
        self.task.abort();
    }

    /// Accepts nothing more, lets open connections end within the grace time, and ends the rest. Their
    /// events are in the queue afterwards.
    pub async fn close(mut self) {
        self.stop.send_replace(true);
        let limit = self.grace + 2 * ABORT_TIME;
        if timeout(limit, self.ended()).await.is_err() {
            tracing::warn!(target: "abp.egress", "the proxy did not end in time and is aborted");
        }
    }
}

impl Drop for EgressProxy {
    fn drop(&mut self) {
        self.abort();
    }
}

async fn accept(
    listener: TcpListener,
    shared: Arc<ProxyState>,
    mut stopped: watch::Receiver<bool>,
) {
    let permits = Arc::new(Semaphore::new(shared.limits.connections.max(1)));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = stopped.wait_for(|is_stopped| *is_stopped) => break,
            Some(_) = connections.join_next() => {}
            Some((stream, permit)) = next_connection(&listener, &permits) => {
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    serve(stream, shared).await;
                    drop(permit);
                });
            }
        }
    }
    drop(listener);
    let deadline = Instant::now() + shared.limits.close_grace;
    while let Ok(Some(_)) = timeout_at(deadline, connections.join_next()).await {}
    if timeout(ABORT_TIME, connections.shutdown()).await.is_err() {
        tracing::warn!(target: "abp.egress", "connections did not end in time");
    }
}

/// The next connection, as soon as one more may be open: until then it waits in the backlog.
async fn next_connection(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits).acquire_owned().await.ok()?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return Some((stream, permit)),
            Err(error) => {
                tracing::warn!(target: "abp.egress", %error, "a connection was not accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
