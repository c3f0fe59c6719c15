//! The configured MCP servers behind one.

use std::time::Duration;

use abp_config::{Config, EnvValue, McpEmulateConfig, McpEra, McpServerConfig};
use abp_error::{AbpError, ErrorCode};
use abp_gateway::Gateway;
use abp_glob::GlobList;
use abp_host::Launcher;
use abp_mcp::{
    ClientTimeouts, Emulations, GatewayServer, HttpServer, Implementation, McpGateway,
    PreparedAnswers, Profile, ProgramServer, ProtocolVersion, RunningPrograms, Sampler,
    SamplingRules, ServerAddress, SubscribeRules, VersionSpan,
};
use abp_runtime::McpServers;
use secrecy::SecretString;

use super::{mcp_offer, sampling};

/// How a model uses it best.
pub const GATEWAY_INSTRUCTIONS: &str = "Several MCP servers as one. A tool that two of them have \
carries the name of its server and two underscores in front.";
/// How long a server may take to say whether it needs a handshake.
const PROBE: Duration = Duration::from_secs(5);

/// The configured MCP servers as one. Where servers may sample, they ask these models.
///
/// # Errors
/// Fails where none is configured, and where one cannot be used.
pub fn mcp_gateway(config: &Config, models: Option<&Gateway>) -> Result<McpGateway, AbpError> {
    if config.mcp.servers.is_empty() {
        let message = "no MCP server is configured; name one under [mcp.servers]";
        return Err(AbpError::new(ErrorCode::ConfigInvalid, message));
    }
    let rules = config.mcp.emulate.sampling.as_ref();
    let sampler = models.zip(rules);
    let sampler = sampler.map(|(models, rules)| sampling::sampler(models, &rules.key));
    let emulations = mcp_emulations(&config.mcp.emulate);
    gateway_of(config, |_| true, emulations, sampler)
}

/// What is filled in between MCP clients and servers.
#[must_use]
pub fn mcp_emulations(config: &McpEmulateConfig) -> Emulations {
    let seconds = |count: u32| Duration::from_secs(count.into());
    Emulations {
        sampling: config.sampling.as_ref().map(|rules| SamplingRules {
            models: rules.models.clone(),
            max_tokens: rules.max_tokens.into(),
            max_per_call: rules.max_per_call,
        }),
        roots: config.roots.clone(),
        elicitation: config.elicitation.as_ref().map(|prepared| PreparedAnswers {
            everywhere: prepared.answers.clone(),
            by_server: prepared.servers.clone(),
        }),
        list_changed: config.list_changed_secs.map(seconds),
        subscribe: config.subscribe_secs.map(|count| SubscribeRules {
            interval: seconds(count),
            max_resources: config.max_subscriptions as usize,
        }),
    }
}

/// The MCP servers for runs, each of which gets a gateway of its own.
pub(crate) fn run_servers(config: &Config) -> McpServers {
    let names = config.mcp.servers.keys().cloned();
    let offer = mcp_offer(Profile::Compat, GATEWAY_INSTRUCTIONS);
    let config = config.clone();
    McpServers::new(names, offer, move |names| {
        let mut emulations = mcp_emulations(&config.mcp.emulate);
        // Servers of a run work where it does, which its scope says; it has no models to lend.
        emulations.roots.get_or_insert_default();
        let is_wanted = |name: &str| names.iter().any(|one| one == name);
        gateway_of(&config, is_wanted, emulations, None)
    })
}

fn gateway_of(
    config: &Config,
    is_wanted: impl Fn(&str) -> bool,
    emulations: Emulations,
    sampler: Option<Sampler>,
) -> Result<McpGateway, AbpError> {
    let servers = config.mcp.servers.iter();
    let servers = servers.filter(|(name, _)| is_wanted(name));
    let servers: Result<Vec<_>, _> = servers.map(|(name, one)| server(name, one)).collect();
    let info = Implementation::new("abp", env!("CARGO_PKG_VERSION"));
    Ok(McpGateway::emulating(servers?, info, emulations, sampler))
}

fn server(name: &str, config: &McpServerConfig) -> Result<GatewayServer, AbpError> {
    let invalid = |problem: String| {
        let message = format!("mcp.servers.{name}: {problem}");
        AbpError::new(ErrorCode::ConfigInvalid, message)
    };
    let globs =
        |patterns: &[String]| GlobList::new(patterns).map_err(|error| invalid(error.to_string()));
    let span = match config.era {
        McpEra::Auto => VersionSpan::ALL,
        McpEra::Legacy => VersionSpan::LEGACY,
        McpEra::Modern => VersionSpan::MODERN,
    };
    let versions = ProtocolVersion::ALL.into_iter();
    let open_timeout = Duration::from_secs(config.open_timeout_secs.into());
    Ok(GatewayServer {
        name: name.to_owned(),
        address: address(config).map_err(invalid)?,
        versions: versions.filter(|one| span.contains(*one)).collect(),
        timeouts: ClientTimeouts {
            probe: PROBE.min(open_timeout / 2),
            initialize: open_timeout,
            request: Duration::from_secs(config.timeout_secs.into()),
        },
        open_timeout,
        allow_tools: globs(&config.allow_tools)?,
        deny_tools: globs(&config.deny_tools)?,
    })
}

fn address(config: &McpServerConfig) -> Result<ServerAddress, String> {
    if let Some(command) = &config.command {
        let directory = std::env::current_dir().map_err(|error| error.to_string())?;
        return Ok(ServerAddress::Program(ProgramServer {
            command: command.clone(),
            args: config.args.clone(),
            env: EnvValue::exposed(&config.env),
            directory,
            // A server is the operator's choice, and works on stages whose place is not known yet.
            hidden: Vec::new(),
            launcher: Launcher::this_program(),
            running: RunningPrograms::default(),
        }));
    }
    let url = config.url.clone().ok_or("it has no address")?;
    let bearer = match &config.token_env {
        Some(variable) => {
            let token = std::env::var(variable);
            let token = token.map_err(|_| format!("{variable} holds no token"))?;
            Some(SecretString::from(token))
        }
        None => None,
    };
    Ok(ServerAddress::Http(HttpServer { url, bearer }))
}
