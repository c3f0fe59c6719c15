//! The secrets that the operator configured, so that they can be taken out of what agents print.

use abp_config::{BackendConfig, Config};
use abp_stream::names_a_secret;
use secrecy::SecretString;

use crate::upstream_spec::upstream_key;

/// Every secret of a configuration that a run could come across: keys of upstreams, and variables of
/// sidecars and MCP servers that are named like secrets. A key that cannot be read now is no secret yet.
pub(crate) fn configured_secrets(config: &Config) -> Vec<SecretString> {
    let upstreams = config.upstreams.iter();
    let keys = upstreams.filter_map(|(name, upstream)| upstream_key(name, upstream).ok().flatten());
    let sidecars = config
        .backends
        .values()
        .filter_map(|backend| match backend {
            BackendConfig::Sidecar { env, .. } | BackendConfig::Acp { env, .. } => Some(env),
            BackendConfig::Mock { .. } => None,
        });
    let servers = config.mcp.servers.values();
    let environments = sidecars.chain(servers.clone().map(|server| &server.env));
    let values = environments.flat_map(|env| {
        let exposed = abp_config::EnvValue::exposed(env);
        exposed
            .into_iter()
            .filter(|(name, _)| names_a_secret(name))
            .map(|(_, value)| SecretString::from(value))
    });
    let tokens = servers.filter_map(|server| std::env::var(server.token_env.as_ref()?).ok());
    let database = config.store.url.as_ref();
    let database = database.map(|url| SecretString::from(url.expose().to_owned()));
    keys.chain(values)
        .chain(database)
        .chain(tokens.map(SecretString::from))
        .collect()
}
