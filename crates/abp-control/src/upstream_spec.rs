//! A configured upstream: its address, its credential and the way there.

use std::time::Duration;

use abp_backend_http::{
    HttpUpstream, HttpUpstreamSpec, KeyCommand, ProxyAddress, Timeouts, UpstreamAuth,
};
use abp_config::{EnvValue, UpstreamAuthKind, UpstreamConfig};
use abp_error::{AbpError, ErrorCode};
use http::{HeaderName, HeaderValue};
use secrecy::SecretString;
use serde_json::json;
use url::form_urlencoded;

use crate::models::seconds;

/// The service that requests to Bedrock are signed for.
const BEDROCK: &str = "bedrock";

/// A configured upstream, with its key.
///
/// # Errors
/// Fails where it is not valid or its key cannot be had.
pub fn http_upstream(name: &str, config: &UpstreamConfig) -> Result<HttpUpstream, AbpError> {
    let invalid = |problem: &str| {
        let message = format!("upstream {name}: {problem}");
        AbpError::new(ErrorCode::ConfigInvalid, message)
    };
    HttpUpstream::new(HttpUpstreamSpec {
        name: name.to_owned(),
        dialects: vec![config.dialect],
        base_url: config.base_url.clone(),
        key: upstream_key(name, config)?,
        key_command: key_command(config),
        auth: auth(config).map_err(|problem| invalid(&problem))?,
        headers: headers(config).map_err(|problem| invalid(&problem))?,
        query: query(config),
        proxy: proxy(config).map_err(|error| invalid(error.message()))?,
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

/// The key of an upstream, where it has one that need not be made first.
///
/// # Errors
/// Fails where it is configured and cannot be read.
pub(crate) fn upstream_key(
    name: &str,
    config: &UpstreamConfig,
) -> Result<Option<SecretString>, AbpError> {
    let missing = |what: String| {
        let message = format!("the key of upstream {name} cannot be had: {what}");
        AbpError::new(ErrorCode::ConfigInvalid, message)
    };
    let variable = |variable: &str| {
        std::env::var(variable).map_err(|_| missing(format!("the environment has no {variable}")))
    };
    if let Some(given) = &config.given_key {
        return Ok(Some(SecretString::from(given.expose())));
    }
    let has_source = config.api_key_env.is_some()
        || config.api_key_file.is_some()
        || !config.api_key_command.is_empty();
    if config.auth == UpstreamAuthKind::Bedrock && !has_source {
        return aws_variables(variable).map(Some);
    }
    let key = match (&config.api_key_env, &config.api_key_file) {
        (Some(name), _) => variable(name)?,
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

/// AWS's own variables, in the form that its programs print keys in.
fn aws_variables(
    variable: impl Fn(&str) -> Result<String, AbpError>,
) -> Result<SecretString, AbpError> {
    let session = variable("AWS_SESSION_TOKEN").ok();
    let keys = json!({
        "AccessKeyId": variable("AWS_ACCESS_KEY_ID")?,
        "SecretAccessKey": variable("AWS_SECRET_ACCESS_KEY")?,
        "SessionToken": session.filter(|token| !token.is_empty()),
    });
    Ok(SecretString::from(keys.to_string()))
}

fn key_command(config: &UpstreamConfig) -> Option<KeyCommand> {
    let (program, args) = config.api_key_command.split_first()?;
    Some(KeyCommand {
        program: program.clone(),
        args: args.to_vec(),
        lifetime: seconds(config.api_key_ttl_secs),
    })
}

fn auth(config: &UpstreamConfig) -> Result<UpstreamAuth, String> {
    let named = || {
        let name = config.auth_name.clone();
        name.ok_or_else(|| "its auth needs auth_name".to_owned())
    };
    Ok(match config.auth {
        UpstreamAuthKind::Dialect => UpstreamAuth::Dialect,
        UpstreamAuthKind::Bearer => UpstreamAuth::Bearer,
        UpstreamAuthKind::Header => UpstreamAuth::Header(header_name(&named()?)?),
        UpstreamAuthKind::Query => UpstreamAuth::Query(named()?),
        UpstreamAuthKind::Azure => UpstreamAuth::Header(HeaderName::from_static("api-key")),
        UpstreamAuthKind::Vertex => UpstreamAuth::Vertex,
        UpstreamAuthKind::Bedrock => UpstreamAuth::Bedrock {
            region: config
                .aws_region
                .clone()
                .ok_or_else(|| "its auth needs aws_region".to_owned())?,
            service: config
                .aws_service
                .clone()
                .unwrap_or_else(|| BEDROCK.to_owned()),
        },
    })
}

fn header_name(name: &str) -> Result<HeaderName, String> {
    HeaderName::try_from(name).map_err(|_| format!("{name:?} cannot be the name of a header"))
}

fn headers(config: &UpstreamConfig) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let exposed = EnvValue::exposed(&config.headers).into_iter();
    let headers = exposed.map(|(name, value)| {
        let value = HeaderValue::try_from(value);
        let mut value = value.map_err(|_| format!("the header {name} cannot hold its value"))?;
        value.set_sensitive(true);
        Ok((header_name(&name)?, value))
    });
    headers.collect()
}

fn query(config: &UpstreamConfig) -> Option<String> {
    if config.query.is_empty() {
        return None;
    }
    let mut query = form_urlencoded::Serializer::new(String::new());
    Some(query.extend_pairs(&config.query).finish())
}

fn proxy(config: &UpstreamConfig) -> Result<Option<ProxyAddress>, AbpError> {
    match config.proxy.as_deref() {
        Some("none") => Ok(None),
        Some(address) => ProxyAddress::parse(address).map(Some),
        None => {
            let variable = |name: &str| std::env::var(name).ok();
            ProxyAddress::from_environment(&config.base_url, variable)
        }
    }
}
