//! From the operator's configuration to a gateway and a server.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use abp_backend_core::Upstream;
use abp_backend_http::{HttpUpstream, HttpUpstreamSpec, Timeouts};
use abp_backend_mock::MockModel;
use abp_config::{Config, UpstreamConfig};
use abp_core::PriceTable;
use abp_error::{AbpError, ErrorCode};
use abp_gateway::{Gateway, GatewaySettings, UpstreamRules};
use abp_store::{Store, StoreOptions};
use rustix::fs::OFlags;
use secrecy::{ExposeSecret as _, SecretString};

use crate::ServerOptions;

/// How much of a key file is read.
const MAX_KEY_FILE: u64 = 4096;
/// The models of the embedded upstream; `mock-error-STATUS` answers with that error.
const MOCK_MODELS: [&str; 2] = ["mock", "mock-*"];

/// A gateway to the configured upstreams, with its store open, and after them the embedded model.
///
/// # Errors
/// Fails where an upstream is not valid, its key cannot be had, or the store cannot be opened.
pub async fn gateway(config: &Config) -> Result<Gateway, AbpError> {
    let store = Store::open(&config.state_dir, StoreOptions::default()).await?;
    let mut upstreams: Vec<(Arc<dyn Upstream>, UpstreamRules)> = Vec::new();
    for (name, upstream) in &config.upstreams {
        upstreams.push((
            Arc::new(http_upstream(name, upstream)?),
            rules(upstream, &config.prices),
        ));
    }
    upstreams.push((Arc::new(MockModel::new()), mock_rules(config)));
    let settings = GatewaySettings {
        max_attempts: config.server.max_attempts as usize,
        max_concurrent: config.server.max_concurrent as usize,
        keep_alive: seconds(config.server.keepalive_secs),
        emulation: config.emulation_config(),
    };
    Gateway::new(upstreams, store, settings)
}

/// A configured upstream, with its key.
///
/// # Errors
/// Fails where it is not valid or its key cannot be had.
pub fn http_upstream(name: &str, config: &UpstreamConfig) -> Result<HttpUpstream, AbpError> {
    HttpUpstream::new(HttpUpstreamSpec {
        name: name.to_owned(),
        dialects: vec![config.dialect],
        base_url: config.base_url.clone(),
        key: upstream_key(name, config)?,
        wire_version: config.wire_version.clone(),
        timeouts: Timeouts {
            connect: Duration::from_millis(config.connect_timeout_ms.into()),
            first_byte: seconds(config.first_byte_timeout_secs),
            idle: seconds(config.idle_timeout_secs),
            total: seconds(config.total_timeout_secs),
        },
        max_answer_bytes: (config.max_answer_mb as usize) << 20,
        ca_file: config.ca_file.clone(),
    })
}

fn upstream_key(name: &str, config: &UpstreamConfig) -> Result<Option<SecretString>, AbpError> {
    let missing = |what: String| {
        let message = format!("the key of upstream {name} cannot be had: {what}");
        AbpError::new(ErrorCode::ConfigInvalid, message)
    };
    let key = match (&config.api_key_env, &config.api_key_file) {
        (Some(variable), _) => std::env::var(variable)
            .map_err(|_| missing(format!("the environment has no {variable}")))?,
        (None, Some(file)) => std::fs::read_to_string(file)
            .map_err(|error| missing(format!("{}: {error}", file.display())))?,
        (None, None) => return Ok(None),
    };
    let key = key.trim();
    if key.is_empty() {
        return Err(missing("it is empty".to_owned()));
    }
    Ok(Some(SecretString::from(key)))
}

fn rules(
    config: &UpstreamConfig,
    prices: &BTreeMap<String, BTreeMap<String, abp_core::ModelPrice>>,
) -> UpstreamRules {
    UpstreamRules {
        models: config.models.clone(),
        aliases: config.aliases.clone(),
        weight: config.weight,
        fallback: config.fallback.clone(),
        prices: config
            .prices
            .as_ref()
            .and_then(|table| prices.get(table))
            .map(table),
        max_concurrent: config.max_concurrent as usize,
    }
}

fn table(prices: &BTreeMap<String, abp_core::ModelPrice>) -> PriceTable {
    let mut table = PriceTable::default();
    for (model, price) in prices {
        table.set(model, *price);
    }
    table
}

/// The embedded model answers to its own name, and to every other one while nothing is configured, so
/// that any client can be tried without a key.
fn mock_rules(config: &Config) -> UpstreamRules {
    let models: &[&str] = if config.upstreams.is_empty() {
        &["mock", "*"]
    } else {
        &MOCK_MODELS
    };
    UpstreamRules {
        models: models.iter().map(ToString::to_string).collect(),
        max_concurrent: 1 << 16,
        prices: Some(free()),
        ..UpstreamRules::default()
    }
}

/// What costs a little, so that budgets can be tried with it.
fn free() -> PriceTable {
    let mut table = PriceTable::default();
    let price = abp_core::ModelPrice {
        input_usd_per_mtok: 1.0,
        output_usd_per_mtok: 1.0,
        ..abp_core::ModelPrice::default()
    };
    table.set("*", price);
    table
}

/// The server's options; `listen` replaces the configured address.
#[must_use]
pub fn server_options(config: &Config, listen: Option<SocketAddr>) -> ServerOptions {
    let server = &config.server;
    let tls = server.tls_cert.clone().zip(server.tls_key.clone());
    ServerOptions {
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
        tls,
        insecure_bind: false,
    }
}

fn seconds(count: u32) -> Duration {
    Duration::from_secs(count.into())
}

/// The operator's key: read from its file, which is made, for its owner alone, where there is none.
///
/// # Errors
/// Fails where the file cannot be made or read, and where others than its owner can read it.
pub fn operator_key(file: &Path) -> Result<SecretString, AbpError> {
    match create_key(file) {
        Ok(key) => Ok(key),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => read_key(file),
        Err(error) => Err(key_problem(file, &error)),
    }
}

/// Where the operator's key is when nothing else is said.
#[must_use]
pub fn operator_key_file(config: &Config) -> PathBuf {
    config.state_dir.join("gateway.key")
}

/// A new key.
///
/// # Errors
/// Fails where the system has no randomness.
pub fn new_key() -> Result<SecretString, AbpError> {
    let mut random = [0_u8; 24];
    getrandom::fill(&mut random)
        .map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))?;
    let text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(SecretString::from(format!("abp_{text}")))
}

fn create_key(file: &Path) -> std::io::Result<SecretString> {
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let mut made = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)?;
    let key = new_key().map_err(|error| std::io::Error::other(error.to_string()))?;
    made.write_all(key.expose_secret().as_bytes())?;
    made.write_all(b"\n")?;
    made.sync_all()?;
    Ok(key)
}

fn read_key(file: &Path) -> Result<SecretString, AbpError> {
    let problem = |problem: &dyn std::fmt::Display| key_problem(file, problem);
    // Everything is asked of the file that was opened: its name may mean another one by then.
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
        .open(file)
        .map_err(|error| problem(&error))?;
    let known = opened.metadata().map_err(|error| problem(&error))?;
    if !known.is_file() {
        return Err(problem(&"it is not a plain file"));
    }
    if known.uid() != rustix::process::geteuid().as_raw() {
        return Err(problem(&"somebody else owns it"));
    }
    if known.mode() & 0o077 != 0 {
        return Err(problem(&"others than its owner can read it; chmod 600"));
    }
    let mut text = String::new();
    let read = opened.take(MAX_KEY_FILE).read_to_string(&mut text);
    read.map_err(|error| problem(&error))?;
    let key = text.trim();
    if key.len() < 16 {
        return Err(problem(&"it has fewer than 16 characters"));
    }
    Ok(SecretString::from(key))
}

fn key_problem(file: &Path, problem: &dyn std::fmt::Display) -> AbpError {
    let message = format!("the key file {}: {problem}", file.display());
    AbpError::new(ErrorCode::ConfigInvalid, message)
}

/// Keeps what this process holds in memory away from others of the same user: it cannot be traced, and
/// leaves no core file.
pub fn harden() {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    if let Err(error) = setrlimit(Resource::Core, none) {
        tracing::warn!(target: "abp.daemon", %error, "core files are not forbidden");
    }
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(target: "abp.daemon", %error, "memory is not kept from other processes");
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{DumpableBehavior, Resource, dumpable_behavior, getrlimit};

    #[test]
    fn a13_memory_is_kept_from_others() {
        super::harden();
        assert_eq!(getrlimit(Resource::Core).maximum, Some(0));
        assert_eq!(dumpable_behavior(), Ok(DumpableBehavior::NotDumpable));
    }
}
