//! A daemon on a port of its own, and the gateway in it.

use std::collections::BTreeMap;
use std::process::Command;

use abp_config::Config;
use abp_control::{ControlPlane, new_key};
use abp_gateway::{Gateway, key_hash};
use abp_gateway_http::{Server, ServerOptions};
use secrecy::ExposeSecret as _;
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinHandle;

/// A running daemon. It stops when it is dropped.
pub(crate) struct Daemon {
    pub(crate) gateway: Gateway,
    pub(crate) url: String,
    pub(crate) key: String,
    serving: JoinHandle<()>,
    _state: TempDir,
}

impl Daemon {
    /// With the mock model for every name.
    pub(crate) async fn start() -> Self {
        Self::run(BTreeMap::new()).await
    }

    /// With one upstream for every name.
    pub(crate) async fn with_upstream(dialect: &str, base_url: &str) -> Self {
        let upstream = json!({ "dialect": dialect, "base_url": base_url });
        let upstream = serde_json::from_value(upstream).expect("an upstream");
        Self::run(BTreeMap::from([("vendor".to_owned(), upstream)])).await
    }

    /// With one upstream that serves one model, and is not there.
    pub(crate) async fn with_model(model: &str) -> Self {
        let upstream = json!({
            "dialect": "openai", "base_url": "http://127.0.0.1:1/v1", "models": [model],
        });
        let upstream = serde_json::from_value(upstream).expect("an upstream");
        Self::run(BTreeMap::from([("vendor".to_owned(), upstream)])).await
    }

    async fn run(upstreams: BTreeMap<String, abp_config::UpstreamConfig>) -> Self {
        let state = TempDir::new().expect("a directory");
        let config = Config {
            state_dir: state.path().join("state"),
            stages_dir: state.path().join("stages"),
            upstreams,
            ..Config::default()
        };
        let options = ServerOptions::from_config(&config, Some(([127, 0, 0, 1], 0).into()));
        let plane = ControlPlane::open(config, &[]).expect("a control plane");
        let gateway = plane.gateway().await.expect("a gateway");
        let key = new_key().expect("a key").expose_secret().to_owned();
        let operator = key_hash(key.as_bytes());
        gateway.reload_keys(Some(operator)).await.expect("keys");
        let server = Server::bind(gateway.clone(), Vec::new(), options)
            .await
            .expect("a port");
        let address = server.local_addr().expect("an address");
        Self {
            gateway,
            url: format!("http://{address}"),
            key,
            serving: tokio::spawn(server.run(operator, std::future::pending(), async {})),
            _state: state,
        }
    }

    /// What an example prints when the environment names this daemon.
    pub(crate) fn run_example(&self, name: &str, base_url: &str, key: &str) -> String {
        // Examples are beside the directory of the test programs.
        let program = std::env::current_exe().expect("a program");
        let programs = program.ancestors().nth(2).expect("a directory");
        let output = Command::new(programs.join("examples").join(name))
            .envs([(base_url, &self.url), (key, &self.key)])
            .output()
            .expect(name);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        assert!(output.status.success(), "{name}: {}", text(output.stderr));
        text(output.stdout)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
