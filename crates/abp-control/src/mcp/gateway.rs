//! The configured MCP servers behind one.

use std::path::Path;
use std::time::Duration;

use abp_config::{Config, McpEmulateConfig, McpEra, McpServerConfig};
use abp_error::{AbpError, ErrorCode};
use abp_gateway::Gateway;
use abp_glob::GlobList;
use abp_mcp::{
    ClientTimeouts, Emulations, GatewayServer, HttpServer, Implementation, McpGateway,
    PreparedAnswers, Profile, ProgramServer, ProtocolVersion, Sampler, SamplingRules,
    ServerAddress, SubscribeRules, VersionSpan,
};
use abp_runtime::McpServers;
use secrecy::SecretString;

use super::program::{ProgramConfig, ServerPrograms};
use super::{mcp_offer, sampling};

/// How a model uses it best.
pub const GATEWAY_INSTRUCTIONS: &str = "Several MCP servers as one. A tool that two of them have \
carries the name of its server and two underscores in front.";
/// How long a server may take to say whether it needs a handshake.
const PROBE: Duration = Duration::from_secs(5);

/// The configured MCP servers as one. Where servers may sample, they ask these models. Programs work in
/// `directory` where the operator sets no other, or else in directories of their own.
///
/// # Errors
/// Fails where none is configured, and where one cannot be used.
pub fn mcp_gateway(
    config: &Config,
    models: Option<&Gateway>,
    directory: Option<&Path>,
) -> Result<McpGateway, AbpError> {
    if config.mcp.servers.is_empty() {
        let message = "no MCP server is configured; name one under [mcp.servers]";
        return Err(AbpError::new(ErrorCode::ConfigInvalid, message));
    }
    let rules = config.mcp.emulate.sampling.as_ref();
    let sampler = models.zip(rules);
    let sampler = sampler.map(|(models, rules)| sampling::sampler(models, &rules.key));
    let emulations = mcp_emulations(&config.mcp.emulate);
    let servers = ServerPrograms::new(config);
    gateway_of(config, |_| true, emulations, sampler, &|server| {
        servers.outside_runs(server, directory)
    })
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
    let programs = ServerPrograms::new(&config);
    let unconfined = programs.unconfined(&config.mcp.servers);
    let servers = McpServers::new(names, offer, move |names, place| {
        let mut emulations = mcp_emulations(&config.mcp.emulate);
        // Servers of a run work where it does, which its scope says; it has no models to lend.
        emulations.roots.get_or_insert_default();
        let is_wanted = |name: &str| names.iter().any(|one| one == name);
        gateway_of(
            &config,
            is_wanted,
            emulations,
            None,
            &|server| match place {
                Some(place) => programs.in_run(server, place),
                None => programs.unplanned(server),
            },
        )
    });
    servers.with_unconfined(unconfined)
}

/// Makes the program of a server from its settings.
type MakeProgram<'a> = dyn Fn(&ProgramConfig<'_>) -> Result<ProgramServer, AbpError> + 'a;

fn gateway_of(
    config: &Config,
    is_wanted: impl Fn(&str) -> bool,
    emulations: Emulations,
    sampler: Option<Sampler>,
    make: &MakeProgram<'_>,
) -> Result<McpGateway, AbpError> {
    let servers = config.mcp.servers.iter();
    let servers = servers.filter(|(name, _)| is_wanted(name));
    let servers: Result<Vec<_>, _> = servers.map(|(name, one)| server(name, one, make)).collect();
    let info = Implementation::new("abp", env!("CARGO_PKG_VERSION"));
    Ok(McpGateway::emulating(servers?, info, emulations, sampler))
}

fn server(
    name: &str,
    config: &McpServerConfig,
    make: &MakeProgram<'_>,
) -> Result<GatewayServer, AbpError> {
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
        address: match &config.command {
            Some(command) => {
                let program = ProgramConfig {
                    name,
                    command,
                    server: config,
                };
                ServerAddress::Program(Box::new(make(&program)?))
            }
            None => ServerAddress::Http(address(config).map_err(invalid)?),
        },
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

fn address(config: &McpServerConfig) -> Result<HttpServer, String> {
    let url = config.url.clone().ok_or("it has no address")?;
    let bearer = match &config.token_env {
        Some(variable) => {
            let token = std::env::var(variable);
            let token = token.map_err(|_| format!("{variable} holds no token"))?;
            Some(SecretString::from(token))
        }
        None => None,
    };
    Ok(HttpServer { url, bearer })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn configured(value: Value) -> McpServerConfig {
        serde_json::from_value(value).unwrap()
    }

    fn made(config: &McpServerConfig) -> Result<GatewayServer, AbpError> {
        let programs = ServerPrograms::new(&Config::default());
        server("s", config, &|program| programs.unplanned(program))
    }

    #[test]
    fn a_server_is_what_is_configured() {
        let cases = [
            ("auto", VersionSpan::ALL),
            ("legacy", VersionSpan::LEGACY),
            ("modern", VersionSpan::MODERN),
        ];
        for (era, span) in cases {
            let config = configured(json!({
                "url": "http://127.0.0.1:9/mcp", "era": era, "timeout_secs": 7, "open_timeout_secs": 4,
                "allow_tools": ["a*"], "deny_tools": ["ab"],
            }));
            let made = made(&config).unwrap();
            let expected: Vec<_> = ProtocolVersion::ALL
                .into_iter()
                .filter(|version| span.contains(*version))
                .collect();
            assert_eq!(
                (made.name.as_str(), made.versions),
                ("s", expected),
                "{era}"
            );
            assert_eq!(made.timeouts.request, Duration::from_secs(7));
            assert_eq!(made.timeouts.initialize, Duration::from_secs(4));
            assert_eq!(made.timeouts.probe, Duration::from_secs(2));
            assert_eq!(made.open_timeout, Duration::from_secs(4));
        }
        let slow = configured(json!({"url": "http://127.0.0.1:9", "open_timeout_secs": 60}));
        assert_eq!(made(&slow).unwrap().timeouts.probe, PROBE);
        let program = configured(json!({"command": "c", "args": ["x"], "env": {"A": "b"}}));
        let ServerAddress::Program(program) = made(&program).unwrap().address else {
            panic!("it is a program");
        };
        assert_eq!(
            (program.command.as_str(), program.args),
            ("c", vec!["x".to_owned()])
        );
        assert_eq!(program.env.get("A").map(String::as_str), Some("b"));
    }

    #[test]
    fn a_server_that_cannot_be_used_is_refused() {
        let cases = [
            (json!({}), "mcp.servers.s: it has no address"),
            (
                json!({"url": "http://h", "token_env": "ABP_TEST_NO_SUCH_TOKEN"}),
                "holds no token",
            ),
            (
                json!({"url": "http://h", "allow_tools": ["["]}),
                "mcp.servers.s",
            ),
            (
                json!({"url": "http://h", "deny_tools": ["["]}),
                "mcp.servers.s",
            ),
        ];
        for (config, expected) in cases {
            let refused = made(&configured(config.clone())).err();
            let message = refused.map(|error| error.message().to_owned());
            let message = message.unwrap_or_else(|| panic!("{config} was taken"));
            assert!(message.contains(expected), "{config}: {message}");
        }
        assert!(
            mcp_gateway(&Config::default(), None, None).is_err(),
            "none is configured"
        );
    }

    #[test]
    fn what_is_filled_in_is_what_is_configured() {
        let nothing = serde_json::from_value(json!({})).unwrap();
        assert_eq!(mcp_emulations(&nothing), Emulations::default());
        let config = serde_json::from_value(json!({
            "roots": ["/srv"], "list_changed_secs": 3, "subscribe_secs": 4, "max_subscriptions": 5,
            "sampling": {"key": "k", "models": ["m"], "max_tokens": 6, "max_per_call": 7},
        }));
        let found = mcp_emulations(&config.unwrap());
        assert_eq!(found.roots, Some(vec!["/srv".into()]));
        assert_eq!(found.list_changed, Some(Duration::from_secs(3)));
        let subscribe = found.subscribe.unwrap();
        assert_eq!(
            (subscribe.interval, subscribe.max_resources),
            (Duration::from_secs(4), 5)
        );
        let sampling = found.sampling.unwrap();
        assert_eq!(
            (sampling.models, sampling.max_tokens, sampling.max_per_call),
            (vec!["m".to_owned()], 6, 7)
        );
    }
}
