//! The gateway of runs: a key for each, and the exchanges that it paid for.
//!
//! One gateway of this process listens on a free port of the loopback interface from the first run of an agent
//! on. Each run gets a key of its own, which is revoked when the run ends; the gateway tells of every exchange
//! of that key when it ends.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

use abp_backend_core::{BoxFuture, MeasuredExchange, ModelGateway, ModelGrant, RunModels};
use abp_core::{ExchangeFidelity, MicroUsd, RunExchange, UsageNormalized};
use abp_error::{AbpError, ErrorCode};
use abp_gateway::{EndedExchange, Gateway, current_time, key_hash};
use abp_gateway_http::{Server, ServerOptions, harden};
use abp_plan::OnLoss;
use abp_store::{KeyScope, NewApiKey};
use secrecy::ExposeSecret as _;
use tokio::sync::{Mutex, OnceCell, mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use crate::keys::new_key;
use crate::plane::WeakPlane;

/// The time in which the last exchanges of a run may end once its key is revoked.
const DRAIN: Duration = Duration::from_secs(2);

/// Lends keys of the process's gateway to runs.
#[derive(Default)]
pub(crate) struct RunGateway {
    plane: OnceLock<WeakPlane>,
    listening: OnceCell<Listening>,
}

struct Listening {
    gateway: Gateway,
    url: String,
    /// Ends the server when it is sent or dropped.
    stop: Mutex<Option<oneshot::Sender<()>>>,
    serving: Mutex<Option<JoinHandle<()>>>,
    /// One task for each run that has a key, which revokes it in the end.
    runs: Mutex<JoinSet<()>>,
}

impl fmt::Debug for RunGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.listening.get().map(|listening| &listening.url);
        f.debug_struct("RunGateway").field("url", &url).finish()
    }
}

impl RunGateway {
    /// Says whose upstreams and store it is in front of.
    pub(crate) fn attach(&self, plane: WeakPlane) {
        drop(self.plane.set(plane));
    }

    /// Ends the server, where it was started.
    pub(crate) async fn close(&self) {
        let Some(listening) = self.listening.get() else {
            return;
        };
        let mut runs = std::mem::take(&mut *listening.runs.lock().await);
        let revoked = async { while runs.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, revoked).await.is_err() {
            tracing::warn!(target: "abp.gateway", "keys of runs expire instead of being revoked");
        }
        drop(listening.stop.lock().await.take());
        let serving = listening.serving.lock().await.take();
        if let Some(serving) = serving
            && let Err(error) = serving.await
        {
            tracing::error!(target: "abp.gateway", %error, "the gateway of runs did not end in order");
        }
    }

    async fn listen(&self) -> Result<Listening, AbpError> {
        let plane = self.plane.get().and_then(WeakPlane::upgrade);
        let plane = plane.ok_or_else(|| internal("the control plane is gone"))?;
        harden();
        let gateway = plane.gateway().await?;
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut options = ServerOptions::from_config(plane.config(), Some(free));
        options.tls = None;
        options.drain_timeout = DRAIN;
        // An agent cannot be asked whether a loss matters; the receipt of its run names each.
        options.on_loss = OnLoss::Label;
        let server = Server::bind(gateway.clone(), Vec::new(), options).await?;
        let address = server
            .local_addr()
            .map_err(|error| internal(&error.to_string()))?;
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async {
            // Sent or dropped: both mean the end.
            drop(stopped.await);
        };
        // Runs are its only callers: nothing has this key.
        let nobody = key_hash(new_key()?.expose_secret().as_bytes());
        let serving = tokio::spawn(server.run(nobody, shutdown, async {}));
        Ok(Listening {
            gateway,
            url: format!("http://{address}"),
            stop: Mutex::new(Some(stop)),
            serving: Mutex::new(Some(serving)),
            runs: Mutex::default(),
        })
    }

    async fn lend(&self, grant: ModelGrant) -> Result<RunModels, AbpError> {
        let listening = self.listening.get_or_try_init(|| self.listen()).await?;
        let key = new_key()?;
        let id = format!("run_{}", grant.run_id.simple());
        let lifetime = u64::try_from(grant.lifetime.as_millis()).unwrap_or(u64::MAX);
        let store = listening.gateway.store();
        store
            .add_key(NewApiKey {
                id: id.clone(),
                name: format!("run {}", grant.run_id),
                sha256: key_hash(key.expose_secret().as_bytes()),
                models: Vec::new(),
                requests_per_minute: None,
                tokens_per_minute: None,
                budget: grant.budget,
                token_budget: None,
                max_output_tokens: None,
                max_concurrent: None,
                max_sessions: None,
                // A run's key asks models and nothing else: no run can start or answer another.
                scopes: vec![KeyScope::Models],
                expires_at: Some(current_time().plus_millis(lifetime)),
            })
            .await?;
        listening.gateway.reload_keys(None).await?;
        let ended = listening.gateway.watch(&id);
        let (sender, exchanges) = mpsc::unbounded_channel();
        let (revoke, revoked) = oneshot::channel();
        let following = follow(listening.gateway.clone(), id, ended, sender, revoked);
        let mut runs = listening.runs.lock().await;
        // Those that ended are forgotten; a server has runs without end.
        while runs.try_join_next().is_some() {}
        runs.spawn(following);
        drop(runs);
        Ok(RunModels {
            url: listening.url.clone(),
            key,
            exchanges,
            revoke,
        })
    }
}

impl ModelGateway for RunGateway {
    fn open(&self, grant: ModelGrant) -> BoxFuture<'_, Result<RunModels, AbpError>> {
        Box::pin(self.lend(grant))
    }
}

/// Passes exchanges on until the run is over; then the key is revoked.
async fn follow(
    gateway: Gateway,
    id: String,
    mut ended: mpsc::UnboundedReceiver<EndedExchange>,
    run: mpsc::UnboundedSender<MeasuredExchange>,
    revoked: oneshot::Receiver<()>,
) {
    let mut revoked = std::pin::pin!(revoked);
    loop {
        tokio::select! {
            biased;
            Some(exchange) = ended.recv() => drop(run.send(measured(&exchange))),
            _ = &mut revoked => break,
        }
    }
    let revoked = match gateway.store().revoke_key(&id).await {
        Ok(_) => gateway.reload_keys(None).await,
        Err(error) => Err(error.into()),
    };
    if let Err(error) = revoked {
        tracing::warn!(target: "abp.gateway", %error, key = id, "the key of a run was not revoked");
    }
    gateway.unwatch(&id);
    while let Some(exchange) = ended.recv().await {
        drop(run.send(measured(&exchange)));
    }
}

fn measured(ended: &EndedExchange) -> MeasuredExchange {
    let record = &ended.record;
    let is_whole = record.error_code.is_none() && !record.client_closed;
    MeasuredExchange {
        exchange: RunExchange {
            id: Some(record.run_id),
            upstream: record.upstream.clone(),
            model: Some(record.model_sent.clone()).filter(|model| !model.is_empty()),
            request_sha256: hex(&record.request_sha256),
            response_sha256: is_whole.then(|| hex(&record.received_sha256)),
            status: Some(record.status).filter(|status| *status != 0),
            fidelity: Some(ExchangeFidelity {
                caller_dialect: record.caller_dialect.clone(),
                upstream_dialect: record.upstream_dialect.clone(),
                level: ended.fidelity.to_string(),
                losses: ended.losses as u64,
            }),
        },
        usage: UsageNormalized {
            input_tokens: record.usage.input_tokens,
            output_tokens: record.usage.output_tokens,
            cache_read_tokens: record.usage.cache_read_tokens,
            cache_write_tokens: record.usage.cache_write_tokens,
            request_units: record.usage.request_units,
            estimated_cost_usd: record.cost.map(MicroUsd::dollars),
        },
        error_code: record.error_code.clone(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn internal(problem: &str) -> AbpError {
    AbpError::new(ErrorCode::Internal, problem)
}
