//! What all handlers share.

use std::sync::Arc;

use abp_config::{Config, Loaded};
use abp_control::{ControlPlane, uploads_directory};
use abp_core::Timestamp;
use abp_error::{AbpError, ErrorCode};
use abp_gateway::{Gateway, Refusal, current_time};
use abp_gateway_http::ExtraRoute;
use abp_store::{RunRecord, Store};
use tokio::sync::watch;
use uuid::Uuid;

use crate::api::ConfigView;
use crate::call::no_run;
use crate::caller::Caller;
use crate::codes::OneTimeCodes;
use crate::table::RouteRow;
use crate::uploads::Uploads;
use crate::webhooks::Webhooks;
use crate::{
    approvals, blobs, codes, events, info, keys, openapi, receipts, runs, submit, traffic,
    translate, ws,
};

/// The control plane behind HTTP.
#[derive(Debug)]
pub struct ControlFace {
    face: Arc<Face>,
}

#[derive(Debug)]
pub(crate) struct Face {
    plane: ControlPlane,
    gateway: Gateway,
    config_view: ConfigView,
    uploads: Uploads,
    codes: OneTimeCodes,
    node_id: String,
    started_at: Timestamp,
    /// Turns true when streams have to end.
    closing: watch::Sender<bool>,
}

/// Tells when streams have to end.
#[derive(Debug)]
pub(crate) struct Closing(watch::Receiver<bool>);

impl Closing {
    /// Resolves when streams have to end.
    pub(crate) async fn wait(&mut self) {
        // A face that is gone ends its streams as well.
        drop(self.0.wait_for(|closing| *closing).await);
    }

    /// Whether streams have to end.
    pub(crate) fn is_now(&self) -> bool {
        *self.0.borrow()
    }
}

impl ControlFace {
    /// The face of a control plane. `loaded` is the configuration that the plane was opened with, with the
    /// origin of each value; without it `/config` shows values only.
    #[must_use]
    pub fn new(plane: &ControlPlane, gateway: &Gateway, loaded: Option<&Loaded>) -> Self {
        let config_view = match loaded {
            Some(loaded) => info::config_view(loaded),
            None => info::config_view(&Loaded {
                config: plane.config().clone(),
                origins: std::collections::BTreeMap::new(),
                warnings: Vec::new(),
                files: Vec::new(),
            }),
        };
        let config = plane.config();
        let uploads = Uploads::new(
            uploads_directory(config),
            u64::from(config.server.max_uploads_mb) << 20,
        );
        Self {
            face: Arc::new(Face {
                uploads,
                codes: OneTimeCodes::default(),
                node_id: Uuid::new_v4().to_string(),
                started_at: current_time(),
                plane: plane.clone(),
                gateway: gateway.clone(),
                config_view,
                closing: watch::Sender::new(false),
            }),
        }
    }

    /// The rows for [`Server::bind`](abp_gateway_http::Server::bind): every control route, and the OpenAPI
    /// document made from them.
    #[must_use]
    pub fn routes(&self) -> Vec<ExtraRoute> {
        let rows = rows();
        let document = openapi::document(&rows);
        let page = openapi::docs_page(&document);
        let mut routes: Vec<_> = rows.into_iter().map(|row| row.serve(&self.face)).collect();
        let text = document.to_string();
        routes.push(ExtraRoute::page("/openapi.json", "application/json", text));
        routes.push(ExtraRoute::page("/docs", "text/html; charset=utf-8", page));
        routes
    }

    /// Begins to send the messages of webhooks, where any is configured.
    ///
    /// # Errors
    /// Fails where a webhook's address or secret cannot be used, and where the store cannot be opened.
    pub async fn start(&self) -> Result<(), AbpError> {
        let webhooks = Webhooks::new(self.face.config())?;
        if !webhooks.is_empty() {
            let store = self.face.store().await?.clone();
            tokio::spawn(webhooks.run(store, self.face.closing()));
        }
        Ok(())
    }

    /// Ends every stream and WebSocket. Runs go on.
    pub fn close(&self) {
        self.face.closing.send_replace(true);
    }
}

/// The OpenAPI 3.1 document of the control routes.
#[must_use]
pub fn openapi_document() -> serde_json::Value {
    openapi::document(&rows())
}

/// Every control route.
fn rows() -> Vec<RouteRow> {
    let groups = [
        submit::rows(),
        runs::rows(),
        events::rows(),
        ws::rows(),
        receipts::rows(),
        approvals::rows(),
        keys::rows(),
        blobs::rows(),
        info::rows(),
        traffic::rows(),
        translate::rows(),
        codes::rows(),
    ];
    groups.into_iter().flatten().collect()
}

impl Face {
    pub(crate) fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    pub(crate) fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    pub(crate) fn config(&self) -> &Config {
        self.plane.config()
    }

    pub(crate) fn config_view(&self) -> &ConfigView {
        &self.config_view
    }

    pub(crate) fn node_id(&self) -> &str {
        &self.node_id
    }

    pub(crate) fn started_at(&self) -> Timestamp {
        self.started_at
    }

    pub(crate) fn uploads(&self) -> &Uploads {
        &self.uploads
    }

    pub(crate) fn codes(&self) -> &OneTimeCodes {
        &self.codes
    }

    /// Tells when streams have to end.
    pub(crate) fn closing(&self) -> Closing {
        Closing(self.closing.subscribe())
    }

    pub(crate) async fn store(&self) -> Result<&Store, AbpError> {
        self.plane.store().await
    }

    /// A run that the caller may know of. Any other is as unknown as one that does not exist.
    pub(crate) async fn run_of(&self, caller: &Caller, run_id: Uuid) -> Result<RunRecord, Refusal> {
        let found = self.plane.run(caller.principal(), run_id).await;
        found.map_err(|error| match error.code() {
            ErrorCode::NotFound => no_run(&run_id.to_string()),
            _ => error.into(),
        })
    }

    /// Whether the caller may know of a run.
    pub(crate) async fn sees(&self, caller: &Caller, run_id: Uuid) -> Result<bool, Refusal> {
        if caller.is_admin() {
            return Ok(true);
        }
        match self.plane.run(caller.principal(), run_id).await {
            Ok(_) => Ok(true),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
