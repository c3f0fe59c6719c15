//! How a server behaves, and how that follows from the configuration.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use abp_config::Config;
use abp_plan::OnLoss;

/// How the server behaves.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Names it is known under besides the local ones.
    pub allowed_hosts: Vec<String>,
    /// Pages that may use it.
    pub allowed_origins: Vec<String>,
    /// The longest body it takes.
    pub max_body: usize,
    /// How many connections it has at once.
    pub max_connections: usize,
    /// The longest a head may take.
    pub header_timeout: Duration,
    /// The longest a body may take.
    pub body_timeout: Duration,
    /// The longest a connection may do nothing.
    pub idle_timeout: Duration,
    /// The longest that running exchanges are waited for when it ends.
    pub drain_timeout: Duration,
    /// How long answers and reasoning are kept for later turns.
    pub keep: Duration,
    /// Its certificate and key.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Listen for other machines without a certificate.
    pub insecure_bind: bool,
    /// What is done with a loss where the request does not say.
    pub on_loss: OnLoss,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8088)),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            max_body: 32 << 20,
            max_connections: 10_000,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(90),
            drain_timeout: Duration::from_secs(30),
            keep: Duration::from_secs(30 * 86_400),
            tls: None,
            insecure_bind: false,
            on_loss: OnLoss::Default,
        }
    }
}

impl ServerOptions {
    /// The options of a configuration; `listen` replaces the configured address.
    #[must_use]
    pub fn from_config(config: &Config, listen: Option<SocketAddr>) -> Self {
        let server = &config.server;
        let seconds = |count: u32| Duration::from_secs(count.into());
        Self {
            listen: listen.unwrap_or_else(|| SocketAddr::new(config.bind_address, config.port)),
            allowed_hosts: server.allowed_hosts.clone(),
            allowed_origins: server.allowed_origins.clone(),
            max_body: (server.max_body_mb as usize) << 20,
            max_connections: server.max_connections as usize,
            header_timeout: seconds(server.header_timeout_secs),
            body_timeout: seconds(server.body_timeout_secs),
            idle_timeout: seconds(server.idle_timeout_secs),
            drain_timeout: seconds(server.drain_timeout_secs),
            keep: seconds(server.keep_days.saturating_mul(86_400)),
            tls: server.tls_cert.clone().zip(server.tls_key.clone()),
            insecure_bind: false,
            on_loss: OnLoss::Default,
        }
    }
}
