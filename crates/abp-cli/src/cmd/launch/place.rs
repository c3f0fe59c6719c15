//! The gateway of a launch: one that runs already, or one that runs along.

use std::net::{Ipv4Addr, SocketAddr};

use abp_config::Config;
use abp_control::{ControlPlane, operator_key, operator_key_file};
use abp_error::{AbpError, ErrorCode};
use abp_gateway::{current_time, key_hash};
use abp_gateway_http::{Server, ServerOptions, harden};
use secrecy::ExposeSecret as _;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use url::Url;

use crate::args::LaunchArgs;
use crate::gateway::{is_at, reachable, takes};

/// A gateway for the time of a launch.
pub(super) enum Place {
    /// One that runs already.
    Running { base: String },
    /// One of this process.
    Embedded {
        base: String,
        stop: oneshot::Sender<()>,
        serving: JoinHandle<()>,
    },
}

impl Place {
    /// The gateway that was named; or the one of this configuration, where it runs and takes the key;
    /// or one of this process.
    pub(super) async fn find(
        args: &LaunchArgs,
        plane: &ControlPlane,
        key: &str,
    ) -> Result<Self, AbpError> {
        let config = plane.config();
        if let Some(base) = &args.base_url {
            return named(base, args, config, key).await;
        }
        let address = configured(args, config);
        if !encrypts(config) && is_at(&address).await && takes(&address, key).await {
            let base = format!("http://{address}");
            return Ok(Self::Running { base });
        }
        embedded(args, plane, key).await
    }

    pub(super) fn base(&self) -> &str {
        match self {
            Self::Running { base } | Self::Embedded { base, .. } => base,
        }
    }

    /// Ends what was begun for this launch.
    pub(super) async fn leave(self) {
        let Self::Embedded { stop, serving, .. } = self else {
            return;
        };
        // It may have ended by itself.
        let _ = stop.send(());
        if let Err(error) = serving.await {
            tracing::error!(target: "abp.launch", %error, "the gateway did not end in order");
        }
    }
}

/// Where a launch would go.
pub(super) struct Expected {
    pub(super) base: String,
    runs: bool,
}

/// Finds out where a launch would go, as far as that can be told without a key.
pub(super) async fn expected(args: &LaunchArgs, config: &Config) -> Expected {
    let address = configured(args, config);
    match &args.base_url {
        Some(base) => Expected {
            base: base.trim_end_matches('/').to_owned(),
            runs: true,
        },
        None if !encrypts(config) && is_at(&address).await => Expected {
            base: format!("http://{address}"),
            runs: true,
        },
        None => Expected {
            base: "http://127.0.0.1:PORT".to_owned(),
            runs: false,
        },
    }
}

impl Expected {
    pub(super) const fn kind(&self) -> &'static str {
        if self.runs { "running" } else { "embedded" }
    }

    pub(super) const fn describe(&self) -> &'static str {
        if self.runs {
            "a gateway that runs already"
        } else {
            "a gateway that runs along with the agent, on a free port"
        }
    }
}

fn configured(args: &LaunchArgs, config: &Config) -> String {
    let configured = SocketAddr::new(config.bind_address, config.port);
    reachable(args.listen.unwrap_or(configured)).to_string()
}

/// Whether the gateway of this configuration has a certificate. Agents would have to trust it first, so
/// it has to be named to be used.
fn encrypts(config: &Config) -> bool {
    config.server.tls_cert.is_some()
}

/// The gateway at an address that the user named.
async fn named(
    base: &str,
    args: &LaunchArgs,
    config: &Config,
    key: &str,
) -> Result<Place, AbpError> {
    let invalid = |problem: &str| {
        let message = format!("--base-url {base:?} {problem}");
        AbpError::new(ErrorCode::ConfigInvalid, message)
    };
    let url = Url::parse(base).map_err(|_| invalid("is no URL"))?;
    let place = Place::Running {
        base: base.trim_end_matches('/').to_owned(),
    };
    let Some((host, port)) = url.host_str().zip(url.port_or_known_default()) else {
        return Err(invalid("names no host"));
    };
    if args.key_file.is_some() {
        return Ok(place);
    }
    if url.scheme() != "http" {
        return Err(invalid(
            "is not looked into; say with --key-file whose key it takes",
        ));
    }
    let address = format!("{host}:{port}");
    if !is_at(&address).await {
        let message = format!("no gateway answers at {base}");
        return Err(AbpError::new(ErrorCode::BackendUnavailable, message));
    }
    if !takes(&address, key).await {
        let message = format!(
            "the gateway at {base} does not know the keys in {}: say with --state-dir where its keys \
             are, or with --key-file which one to use",
            config.state_dir.display()
        );
        return Err(AbpError::new(ErrorCode::Unauthenticated, message));
    }
    Ok(place)
}

/// A gateway of this process, for this machine alone.
async fn embedded(args: &LaunchArgs, plane: &ControlPlane, key: &str) -> Result<Place, AbpError> {
    let given = key;
    harden();
    let config = plane.config();
    let gateway = plane.gateway().await?;
    let key = operator_key(&operator_key_file(config))?;
    let operator = key_hash(key.expose_secret().as_bytes());
    gateway.reload_keys(Some(operator)).await?;
    if let Some(file) = &args.key_file
        && gateway
            .keys()
            .find(given.as_bytes(), current_time())
            .is_err()
    {
        let message = format!(
            "no gateway that runs at {} takes the key in {}, and the keys in {} do not include it",
            configured(args, config),
            file.display(),
            config.state_dir.display()
        );
        return Err(AbpError::new(ErrorCode::Unauthenticated, message));
    }
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut options = ServerOptions::from_config(config, Some(free));
    options.tls = None;
    let server = Server::bind(gateway, Vec::new(), options).await?;
    let address = server
        .local_addr()
        .map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))?;
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async {
        // Sent, or dropped together with the launch: both mean the end.
        drop(stopped.await);
    };
    let serving = tokio::spawn(server.run(operator, shutdown, async {}));
    Ok(Place::Embedded {
        base: format!("http://{address}"),
        stop,
        serving,
    })
}
