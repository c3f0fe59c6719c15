//! Whether the gateway could serve: its address, its key, and the vendors behind it.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;

use abp_backend_core::{ModelCall, ModelOperation, OtherCall, Upstream as _};
use abp_backend_http::HttpUpstream;
use abp_config::{Config, UpstreamAuthKind, UpstreamConfig};
use abp_control::{http_upstream, operator_key, operator_key_file, store_location};
use abp_dialect::{Dialect, WireFamily};
use abp_error::AbpError;
use abp_store::StoreError;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use tokio::net::TcpListener;

use super::{Check, Status};
use crate::args::listen_address;
use crate::gateway::{is_at, reachable};

/// The longest a vendor may take to answer.
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
    let address = listened.and_then(|text| listen_address(&text).ok());
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
const LONGEST_ANSWER: usize = 1 << 20;

/// Asks a vendor the two cheapest things there are: which models it has, and an answer to an empty request,
/// which costs nothing. The list is public at some vendors, so that only the second tells what it thinks of
/// the key; others look at the request before the key, so that only the first does.
async fn vendor(name: String, mut config: UpstreamConfig) -> Check {
    config.first_byte_timeout_secs = config.first_byte_timeout_secs.min(LONGEST_ANSWER_SECS);
    let (status, detail) = match ask_both(&name, &config).await {
        Err(error) => (
            Status::Failed,
            format!("{}: {}", config.base_url, error.message()),
        ),
        Ok((listed, answered)) => judged(&config, listed, &answered),
    };
    Check::new(format!("upstream {name}"), status, detail)
}

/// A vendor's answer: its status and the beginning of its words.
type VendorAnswer = (StatusCode, String);

fn judged(
    config: &UpstreamConfig,
    listed: Option<VendorAnswer>,
    answered: &VendorAnswer,
) -> (Status, String) {
    let key = key_source(config);
    let place = &config.base_url;
    let is_key_refused = |(status, told): &VendorAnswer| match *status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => true,
        // Google has no status of its own for that.
        StatusCode::BAD_REQUEST => told.contains("API_KEY_INVALID"),
        _ => false,
    };
    // A list that is not for everybody is no reason to fail, where the rest is.
    let list_refused = listed
        .as_ref()
        .is_some_and(|one| is_key_refused(one) && one.0 != StatusCode::FORBIDDEN);
    if list_refused || is_key_refused(answered) {
        return (Status::Failed, format!("{place} does not take {key}"));
    }
    let models = listed.and_then(|(status, told)| status.is_success().then_some(told));
    let models = models.and_then(|told| count_models(&told));
    let (status, _) = answered;
    match *status {
        // Gemini's address names a model, which is not there either.
        StatusCode::NOT_FOUND
            if config.dialect.family() != WireFamily::GenerateContent && models.is_none() =>
        {
            let detail = format!("{place} answers 404: is it the right address?");
            (Status::Warning, detail)
        }
        status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
            (Status::Warning, format!("{place} answers {status}"))
        }
        _ if is_open(config) => {
            let detail = format!("{place} answers, with {key}, which others can read");
            (Status::Warning, detail)
        }
        _ => {
            let models =
                models.map_or_else(String::new, |count| format!("; it lists {count} models"));
            (Status::Ok, format!("{place} answers, with {key}{models}"))
        }
    }
}

/// The source of the key of an upstream, in words.
fn key_source(config: &UpstreamConfig) -> String {
    match (
        &config.api_key_env,
        &config.api_key_file,
        config.api_key_command.first(),
    ) {
        (Some(variable), _, _) => format!("the key in {variable}"),
        (None, Some(file), _) => format!("the key in {}", file.display()),
        (None, None, Some(program)) => format!("the key that {program} prints"),
        (None, None, None) if config.auth == UpstreamAuthKind::Bedrock => {
            "the key in AWS_ACCESS_KEY_ID".to_owned()
        }
        (None, None, None) => "no key".to_owned(),
    }
}

/// The number of models in a vendor's list.
fn count_models(told: &str) -> Option<usize> {
    let list: serde_json::Value = serde_json::from_str(told).ok()?;
    let models = list.get("data").or_else(|| list.get("models"))?;
    models.as_array().map(Vec::len)
}

/// Whether the file of a vendor's key is for others than its owner, too.
fn is_open(config: &UpstreamConfig) -> bool {
    let file = config.api_key_file.as_ref();
    let metadata = file.and_then(|file| std::fs::metadata(file).ok());
    metadata.is_some_and(|found| found.permissions().mode() & 0o077 != 0)
}

/// The vendor's list of models, where it may have one, and its answer to an empty request.
async fn ask_both(
    name: &str,
    config: &UpstreamConfig,
) -> Result<(Option<VendorAnswer>, VendorAnswer), AbpError> {
    let upstream = http_upstream(name, config)?;
    let path = match config.dialect.family() {
        WireFamily::GenerateContent => "/v1beta/models",
        _ => "/models",
    };
    let list = ModelOperation::Other(OtherCall {
        method: Method::GET,
        path: path.to_owned(),
        content_type: None,
    });
    // Vertex AI has no such address, and Bedrock signs for others.
    let listed = ask(&upstream, config.dialect, list, Bytes::new()).await;
    let listed = listed.ok();
    let generate = ModelOperation::Generate { stream: false };
    let empty = Bytes::from_static(b"{}");
    let answered = ask(&upstream, config.dialect, generate, empty).await?;
    Ok((listed, answered))
}

async fn ask(
    upstream: &HttpUpstream,
    dialect: Dialect,
    operation: ModelOperation,
    body: Bytes,
) -> Result<VendorAnswer, AbpError> {
    let call = ModelCall {
        dialect,
        operation,
        model: "none".to_owned(),
        query: None,
        headers: HeaderMap::new(),
        body,
    };
    let reply = upstream.send(call).await?;
    let told = reply.body.collect(LONGEST_ANSWER).await?;
    Ok((reply.status, String::from_utf8_lossy(&told).into_owned()))
}
