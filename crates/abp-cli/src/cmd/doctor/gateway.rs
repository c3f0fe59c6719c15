//! Whether the gateway could serve: its address, its key, and the vendors behind it.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;

use abp_backend_core::{ModelCall, ModelOperation, Upstream as _};
use abp_config::{Config, UpstreamConfig};
use abp_control::{http_upstream, operator_key, operator_key_file, store_location};
use abp_dialect::WireFamily;
use abp_error::AbpError;
use abp_store::StoreError;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::net::TcpListener;

use super::{Check, Status};
use crate::gateway::{is_at, reachable};

/// The longest a vendor may take to answer an empty request.
const LONGEST_ANSWER_SECS: u32 = 10;

/// All of it; the vendors are asked at the same time.
pub(super) async fn checks(config: &Config) -> Vec<Check> {
    let asked: Vec<_> = config
        .upstreams
        .iter()
        .map(|(name, upstream)| tokio::spawn(vendor(name.clone(), upstream.clone())))
        .collect();
    let mut checks = vec![address(config).await, key_file(config)];
    checks.extend(crashes(config).await);
    for check in asked {
        // A check that panicked has told so on standard error.
        checks.extend(check.await);
    }
    checks
}

async fn address(config: &Config) -> Check {
    let configured = SocketAddr::new(config.bind_address, config.port);
    let listened = std::env::var("ABP_LISTEN").ok();
    let address = listened.and_then(|text| text.parse().ok());
    let address: SocketAddr = address.unwrap_or(configured);
    let open = !address.ip().is_loopback() && config.server.tls_cert.is_none();
    let bound = TcpListener::bind(address).await;
    let (status, detail) = match bound {
        Ok(_) if open => (
            Status::Warning,
            format!("{address} is for other machines, too, and there is no certificate"),
        ),
        Ok(_) => (Status::Ok, format!("{address} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if is_at(&reachable(address).to_string()).await {
                (Status::Ok, format!("a gateway listens on {address}"))
            } else {
                let detail = format!("something else listens on {address}; see --listen");
                (Status::Warning, detail)
            }
        }
        Err(error) => (
            Status::Warning,
            format!("{address} cannot be listened on: {error}"),
        ),
    };
    Check::new("gateway", status, detail)
}

fn key_file(config: &Config) -> Check {
    let file = operator_key_file(config);
    let shown = file.display();
    let (status, detail) = if file.symlink_metadata().is_err() {
        (Status::Ok, format!("{shown} will be made"))
    } else {
        match operator_key(&file) {
            Ok(_) => (Status::Ok, format!("{shown} is for its owner alone")),
            Err(error) => (Status::Failed, error.message().to_owned()),
        }
    };
    Check::new("gateway key", status, detail)
}

/// Servers that ended without closing the store, as far as there is one. Each is noticed by the next
/// process that opens the store; looking here notices nothing new and changes nothing.
async fn crashes(config: &Config) -> Option<Check> {
    let location = match store_location(config) {
        Ok(location) => location,
        Err(error) => {
            let detail = error.message().to_owned();
            return Some(Check::new("gateway crashes", Status::Failed, detail));
        }
    };
    let counted = async {
        let Some(store) = location.open_reader().await? else {
            return Ok(None);
        };
        let crashes = store.exchange_crashes().await;
        store.close().await;
        crashes.map(Some)
    };
    let (status, detail) = match counted.await {
        Ok(None) => return None,
        Ok(Some(0)) => (Status::Ok, "no server has crashed".to_owned()),
        Ok(Some(crashes)) => {
            let servers = if crashes == 1 { "server" } else { "servers" };
            let detail = format!("{crashes} {servers} crashed; the last records may be lost");
            (Status::Warning, detail)
        }
        Err(error) => {
            let error: StoreError = error;
            (Status::Failed, format!("the store cannot be read: {error}"))
        }
    };
    Some(Check::new("gateway crashes", status, detail))
}

/// The most that is read of what a vendor says.
const LONGEST_ERROR: usize = 1 << 20;

/// Asks a vendor nothing, the way it is asked everything: whoever answers, whatever it says, can be
/// reached, and says what it thinks of the key.
async fn vendor(name: String, mut config: UpstreamConfig) -> Check {
    config.first_byte_timeout_secs = config.first_byte_timeout_secs.min(LONGEST_ANSWER_SECS);
    let asked = ask(&name, &config).await;
    let key = match (&config.api_key_env, &config.api_key_file) {
        (Some(variable), _) => format!("the key in {variable}"),
        (None, Some(file)) => format!("the key in {}", file.display()),
        (None, None) => "no key".to_owned(),
    };
    let place = &config.base_url;
    let (status, detail) = match asked {
        Err(error) => (Status::Failed, format!("{place}: {}", error.message())),
        Ok((StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _)) => {
            (Status::Failed, format!("{place} does not take {key}"))
        }
        // Google has no status of its own for that.
        Ok((StatusCode::BAD_REQUEST, told)) if told.contains("API_KEY_INVALID") => {
            (Status::Failed, format!("{place} does not take {key}"))
        }
        // Gemini's address names a model, which is not there either.
        Ok((StatusCode::NOT_FOUND, _))
            if config.dialect.family() != WireFamily::GenerateContent =>
        {
            let detail = format!("{place} answers 404: is it the right address?");
            (Status::Warning, detail)
        }
        Ok((status, _)) if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
            (Status::Warning, format!("{place} answers {status}"))
        }
        Ok(_) if is_open(&config) => {
            let detail = format!("{place} answers, with {key}, which others can read");
            (Status::Warning, detail)
        }
        Ok(_) => (Status::Ok, format!("{place} answers, with {key}")),
    };
    Check::new(format!("upstream {name}"), status, detail)
}

/// Whether the file of a vendor's key is for others than its owner, too.
fn is_open(config: &UpstreamConfig) -> bool {
    let file = config.api_key_file.as_ref();
    let metadata = file.and_then(|file| std::fs::metadata(file).ok());
    metadata.is_some_and(|found| found.permissions().mode() & 0o077 != 0)
}

async fn ask(name: &str, config: &UpstreamConfig) -> Result<(StatusCode, String), AbpError> {
    let call = ModelCall {
        dialect: config.dialect,
        operation: ModelOperation::Generate { stream: false },
        model: "none".to_owned(),
        query: None,
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"{}"),
    };
    let reply = http_upstream(name, config)?.send(call).await?;
    let told = reply.body.collect(LONGEST_ERROR).await?;
    Ok((reply.status, String::from_utf8_lossy(&told).into_owned()))
}
