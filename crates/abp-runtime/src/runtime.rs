//! Accepting runs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use abp_backend_core::cancellation;
use abp_core::{
    Attestation, CancelReason, MicroUsd, PriceTable, Receipt, WorkOrder, read_document,
};
use abp_emulation::EmulationConfig;
use abp_error::{AbpError, ErrorCode};
use abp_integrations::BackendRegistry;
use abp_plan::{Candidate, PlanError, PlanSettings, RunPlan, plan};
use abp_policy::PolicyEngine;
use abp_store::{
    Acceptance, CancelRecord, Decider, Lease, NewRun, Store, StoreError, StoreLocation,
    StoreOptions,
};
use abp_telemetry::{MetricsCollector, RunMetrics, TelemetrySpan};
use abp_workspace::{ChangeSet, WorkspaceManager};
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::application::{
    Applied, ApplyRequest, DecisionState, Undecided, decided_paths, decision_state, discard_stage,
    policy_of, recover_applications,
};
use crate::entry::{journal_entry, named_request, request_hash};
use crate::execute::{Accepted, Attempt, supervise};
use crate::follow::{EventHub, EventStream};
use crate::handle::{ReceiptHandle, RunHandle, StartedRun};
use crate::lease::{CancelSlot, LeaseKeeper};
use crate::mcp::McpGrant;
use crate::meter::Meter;
use crate::mortality::may_die;
use crate::options::RunOptions;
use crate::recover::{end, missing_copies, recover};
use crate::run_trace::RunTrace;
use crate::running::{Cancellation, RunPlace, RunningRuns};
use crate::stage::workspace_error;
use crate::store::{receipt_path, save_document};
use crate::trash::TrashSweeper;
use crate::{McpServers, RuntimeError};

/// How long the lease of a run lasts unless it is renewed.
const LEASE: Duration = Duration::from_secs(15);
/// How often it is looked whether another process ended a run.
const POLL: Duration = Duration::from_millis(100);

/// What the operator configured, for all runs.
#[derive(Debug, Clone)]
pub struct RuntimeOptions {
    /// The directory of receipts, and the store unless it is [elsewhere](Runtime::with_store).
    pub state_dir: PathBuf,
    /// Where stages live; never below the state directory.
    pub stages_dir: PathBuf,
    /// Emulation strategies that replace the defaults.
    pub emulation: EmulationConfig,
    /// Names of ignored directories that are lent to staged runs, such as `node_modules`.
    pub lend: Vec<String>,
    /// How many runs go on at once; each may be several processes.
    pub max_running: usize,
    /// How many runs may wait for a person without counting among those that go on.
    pub max_parked: usize,
}

impl RuntimeOptions {
    /// The directories of the host that no workspace may contain and no application writes to.
    pub(crate) fn own_dirs(&self) -> Vec<PathBuf> {
        vec![self.state_dir.clone(), self.stages_dir.clone()]
    }

    /// The directories that no process of a run may see.
    pub(crate) fn hidden_dirs(&self) -> Vec<PathBuf> {
        let mut hidden = self.own_dirs();
        // The stages of the user's other state directories lie beside these.
        let others = self.stages_dir.parent();
        hidden.extend(
            others
                .filter(|all| all.ends_with("stages"))
                .map(Path::to_owned),
        );
        hidden
    }
}

/// A run that this process claimed, to be carried out.
#[derive(Debug)]
pub struct BegunRun {
    /// The right to write for it.
    pub lease: Lease,
    /// How long the lease lasts unless it is renewed, which is done every second.
    pub duration: Duration,
    /// How often it was begun, this time included.
    pub attempt: u32,
    /// Whether it is given back to the queue, and not ended, when this process has to stop.
    pub may_retry: bool,
    /// The number of its next event.
    pub next_event: u64,
    /// The request to cancel it, where there is one.
    pub cancel: Option<CancelRecord>,
    /// Its place among the runs that go on at once.
    pub place: Arc<RunPlace>,
}

/// Takes work orders and runs them.
#[derive(Debug, Clone)]
pub struct Runtime {
    registry: BackendRegistry,
    options: Arc<RuntimeOptions>,
    location: StoreLocation,
    store: Arc<OnceCell<Store>>,
    mcp: Option<McpServers>,
    metrics: Option<Arc<MetricsCollector>>,
    running: RunningRuns,
    hub: EventHub,
    trash: TrashSweeper,
}

impl Runtime {
    /// As a backend's name: whichever fits best.
    pub const AUTO: &'static str = "auto";

    /// A runtime over these backends.
    #[must_use]
    pub fn new(registry: BackendRegistry, options: RuntimeOptions) -> Self {
        Self {
            registry,
            running: RunningRuns::new(options.max_running, options.max_parked),
            location: StoreLocation::Directory(options.state_dir.clone()),
            options: Arc::new(options),
            store: Arc::new(OnceCell::new()),
            mcp: None,
            metrics: None,
            hub: EventHub::default(),
            trash: TrashSweeper::default(),
        }
    }

    /// Keeps runs, events and receipts there and not in a file of the state directory.
    #[must_use]
    pub fn with_store(mut self, location: StoreLocation) -> Self {
        self.location = location;
        self
    }

    /// Gives runs that ask for them these MCP servers.
    #[must_use]
    pub fn with_mcp(mut self, servers: McpServers) -> Self {
        self.mcp = Some(servers);
        self
    }

    /// Counts runs here as they end.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Arc<MetricsCollector>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// The store of runs, events and receipts. The first call opens it, gives every run that a crash
    /// interrupted its terminal receipt, and sweeps stages that nobody owns any more.
    ///
    /// # Errors
    /// Fails where the store cannot be opened or recovered.
    pub async fn store(&self) -> Result<&Store, RuntimeError> {
        self.store.get_or_try_init(|| self.open_store()).await
    }

    /// Closes the store, where it was opened.
    pub async fn close(&self) {
        if let Some(store) = self.store.get() {
            store.clone().close().await;
        }
    }

    /// The store, where there is one already: reading creates nothing.
    ///
    /// # Errors
    /// As [`Self::store`].
    pub async fn existing_store(&self) -> Result<Option<&Store>, RuntimeError> {
        if self.store.get().is_none() {
            let found = self.location.open_existing(StoreOptions::default()).await?;
            let Some(store) = found else {
                return Ok(None);
            };
            self.store.get_or_try_init(|| self.recovered(store)).await?;
        }
        Ok(self.store.get())
    }

    async fn open_store(&self) -> Result<Store, RuntimeError> {
        let store = self.location.open(StoreOptions::default()).await?;
        self.recovered(store).await
    }

    /// Finishes what processes that are gone left half done. Applications first: whether a run's changes
    /// are in its source is part of its receipt.
    async fn recovered(&self, store: Store) -> Result<Store, RuntimeError> {
        let manager = self.workspaces();
        recover_applications(&store, &manager).await?;
        recover(&store).await?;
        self.write_missing_copies(&store).await?;
        let keep = store.undecided().await?;
        // A stage that cannot be moved now is moved later; it stands in nobody's way.
        blocking(move || {
            if let Err(error) = manager.sweep(&keep) {
                tracing::warn!(target: "abp.workspace", %error, "stages could not be swept");
            }
            Ok(())
        })
        .await?;
        self.trash.sweep(self.workspaces());
        Ok(store)
    }

    /// The state of the decision about the changes of a run.
    ///
    /// # Errors
    /// Fails where the store cannot be read, or holds other changes than the receipt names.
    pub async fn decision_state(&self, run_id: Uuid) -> Result<DecisionState, AbpError> {
        decision_state(self.store().await?, run_id).await
    }

    /// The paths of a run that were applied, in the form of [`abp_store::path_text`].
    ///
    /// # Errors
    /// Fails where the store cannot be read.
    pub async fn applied_paths(&self, run_id: Uuid) -> Result<BTreeSet<String>, AbpError> {
        Ok(decided_paths(self.store().await?, run_id).await?)
    }

    /// The changes of a run as a patch, from its stage and the stored images.
    ///
    /// # Errors
    /// Fails where the stage is gone or was written after the end of the run.
    pub async fn diff(&self, run_id: Uuid, changes: ChangeSet) -> Result<String, AbpError> {
        let (store, handle) = (self.store().await?.clone(), Handle::current());
        let manager = self.workspaces();
        let written = tokio::task::spawn_blocking(move || {
            let stage = manager.claim(run_id)?;
            let image = |sha256: &[u8; 32]| {
                let read = handle.block_on(store.before_image(run_id, *sha256));
                read.ok().flatten()
            };
            changes.git_diff(stage.tree(), image)
        });
        match written.await {
            Ok(written) => written.map_err(|error| workspace_error(&error)),
            Err(error) => Err(AbpError::new(ErrorCode::Internal, error.to_string())),
        }
    }

    /// Applies changes of a run to its source: all that the request names, or nothing.
    ///
    /// # Errors
    /// Says what stands in the way; the source is as it was then.
    pub async fn apply(
        &self,
        run_id: Uuid,
        changes: ChangeSet,
        request: &ApplyRequest,
    ) -> Result<Applied, AbpError> {
        let store = self.store().await?;
        let run = store.run(run_id).await?;
        let run = run.ok_or(StoreError::UnknownRun(run_id))?;
        let policy = policy_of(&run.order_json)?;
        let manager = self.workspaces();
        let claimed = tokio::task::spawn_blocking(move || manager.claim(run_id)).await;
        let claimed = match claimed {
            Ok(claimed) => claimed.map_err(|error| workspace_error(&error))?,
            Err(error) => return Err(AbpError::new(ErrorCode::Internal, error.to_string())),
        };
        let undecided = Undecided {
            run_id,
            changes,
            tree: claimed.tree(),
            policy: &policy,
            own: self.options.own_dirs(),
        };
        let applied = undecided.apply(store, request).await?;
        drop(claimed);
        if applied.remaining == 0 {
            discard_stage(self.workspaces(), run_id).await;
            self.trash.sweep(self.workspaces());
        }
        Ok(applied)
    }

    /// Throws the changes of a run away.
    ///
    /// # Errors
    /// Fails where they were decided before, or are being applied.
    pub async fn discard(&self, run_id: Uuid, decider: Decider) -> Result<(), AbpError> {
        let store = self.store().await?;
        store.discard_change_set(run_id, decider).await?;
        discard_stage(self.workspaces(), run_id).await;
        self.trash.sweep(self.workspaces());
        Ok(())
    }

    /// Removes changes that were undecided for too long, with their stage.
    ///
    /// # Errors
    /// Fails where they were decided before, or are being applied.
    pub async fn expire(&self, run_id: Uuid, decider: Decider) -> Result<(), AbpError> {
        let store = self.store().await?;
        store.expire_change_set(run_id, decider).await?;
        discard_stage(self.workspaces(), run_id).await;
        Ok(())
    }

    async fn write_missing_copies(&self, store: &Store) -> Result<(), RuntimeError> {
        let state_dir = self.options.state_dir.clone();
        let unwritten = missing_copies(store, &state_dir).await?;
        blocking(move || {
            for (run_id, document) in unwritten {
                save_document(&state_dir, run_id, &document)?;
            }
            Ok(())
        })
        .await
    }

    /// The workspaces of this runtime's runs.
    #[must_use]
    pub fn workspaces(&self) -> WorkspaceManager {
        WorkspaceManager::new(&self.options.stages_dir)
    }

    /// The backends.
    #[must_use]
    pub fn registry(&self) -> &BackendRegistry {
        &self.registry
    }

    /// Where the receipt of a run is, or will be.
    #[must_use]
    pub fn receipt_path(&self, run_id: Uuid) -> PathBuf {
        receipt_path(&self.options.state_dir, run_id)
    }

    /// Plans a run without starting it.
    ///
    /// # Errors
    /// Says why the order cannot be carried out by that backend, or by any (`auto`).
    pub fn plan(
        &self,
        backend_name: &str,
        order: WorkOrder,
        options: &RunOptions,
    ) -> Result<RunPlan, RuntimeError> {
        let candidates = self.candidates(backend_name, &order)?;
        let settings = PlanSettings {
            emulation: self.options.emulation.clone(),
            models: options.models.clone(),
        };
        let plan = plan(order, &candidates, &settings)?;
        // Servers that are not there are missed before anything is started.
        self.mcp_grant(plan.order())?;
        Ok(plan)
    }

    /// Starts a run with nothing approved in advance and no time limit.
    ///
    /// # Errors
    /// As [`Self::run_with`].
    pub async fn run_streaming(
        &self,
        backend_name: &str,
        work_order: WorkOrder,
    ) -> Result<RunHandle, RuntimeError> {
        self.run_with(backend_name, work_order, RunOptions::default())
            .await
    }

    /// Starts a run. Its start is durable before anything of it happens.
    ///
    /// # Errors
    /// Fails, before anything happened, where the run cannot be planned, its policy not compiled or
    /// its budget not enforced. Once this returns a handle, the run ends in exactly one receipt.
    pub async fn run_with(
        &self,
        backend_name: &str,
        work_order: WorkOrder,
        options: RunOptions,
    ) -> Result<RunHandle, RuntimeError> {
        let accepted = self.admit(backend_name, work_order, options).await?;
        let entry = journal_entry(&accepted.plan, accepted.run_id, backend_name)?;
        accepted.store.accept(entry).await?;
        Ok(self.start(accepted, LEASE))
    }

    /// Starts a run for a principal, unless the same request was sent with the same key before: then it is
    /// that run, whichever process carried it out.
    ///
    /// # Errors
    /// As [`Self::run_with`]; also where the key belongs to another request.
    pub async fn run_once(
        &self,
        backend_name: &str,
        work_order: WorkOrder,
        options: RunOptions,
        principal: Option<String>,
        key: Option<&str>,
    ) -> Result<StartedRun, RuntimeError> {
        let request = key.map(|_| request_hash(backend_name, work_order.clone()));
        let idempotency_key = named_request(key, request.transpose()?);
        let accepted = self.admit(backend_name, work_order, options).await?;
        let entry = NewRun {
            idempotency_key,
            principal,
            ..journal_entry(&accepted.plan, accepted.run_id, backend_name)?
        };
        Ok(match accepted.store.accept(entry).await? {
            Acceptance::New => StartedRun::Started(self.start(accepted, LEASE)),
            Acceptance::Existing(run_id) => StartedRun::Existing(run_id),
        })
    }

    /// What is to be stored of a run that any process may carry out, once it is planned here: whatever
    /// makes it impossible is refused before it is accepted.
    ///
    /// # Errors
    /// As [`Self::run_with`].
    pub fn queue_entry(
        &self,
        backend_name: &str,
        work_order: WorkOrder,
        options: &RunOptions,
        key: Option<&str>,
    ) -> Result<NewRun, RuntimeError> {
        let request = key.map(|_| request_hash(backend_name, work_order.clone()));
        let request = request.transpose()?;
        let plan = self.plan(backend_name, work_order, options)?;
        PolicyEngine::new(&plan.order().policy)?;
        self.meter(&plan, options)?;
        let idempotency_key = named_request(key, request);
        Ok(NewRun {
            idempotency_key,
            ..journal_entry(&plan, Uuid::now_v7(), backend_name)?
        })
    }

    /// Waits for a place among the runs that go on at once.
    pub async fn wait_for_place(&self) -> Arc<RunPlace> {
        self.running.wait_for_place().await
    }

    /// Carries out a run that this process claimed. Where it cannot even be planned, it ends with a receipt
    /// that says why.
    ///
    /// # Errors
    /// Fails where the store does; the run is interrupted then.
    pub async fn begin(
        &self,
        claim: BegunRun,
        backend_name: &str,
        work_order: WorkOrder,
        options: RunOptions,
    ) -> Result<Option<RunHandle>, RuntimeError> {
        let (lease, duration) = (claim.lease, claim.duration);
        if let Some(cancel) = &claim.cancel {
            tracing::debug!(target: "abp.runtime", run_id = %lease.run_id, by = cancel.by, "cancelled before it began");
            self.end_unbegun(lease, None).await?;
            return Ok(None);
        }
        match self.prepare(claim, backend_name, work_order, options).await {
            Ok(accepted) => Ok(Some(self.start(accepted, duration))),
            Err(RuntimeError::Store(error)) => Err(error.into()),
            Err(error) => {
                self.end_unbegun(lease, Some(error.into())).await?;
                Ok(None)
            }
        }
    }

    /// Ends a run that this process holds and does not carry out: with that error, or because somebody
    /// cancelled it.
    ///
    /// # Errors
    /// Fails where the store does.
    pub async fn end_unbegun(
        &self,
        lease: Lease,
        error: Option<AbpError>,
    ) -> Result<(), RuntimeError> {
        let store = self.store().await?.with_lease(lease);
        let unfinished = store.unfinished_run(lease.run_id).await?;
        let unfinished = unfinished.ok_or(StoreError::RunOver(lease.run_id))?;
        end(&store, &unfinished, error).await?;
        self.write_missing_copies(&store).await
    }

    /// Looks after runs whose processes are gone or lost their leases; how many there were.
    ///
    /// # Errors
    /// Fails where the store does.
    pub async fn recover(&self) -> Result<usize, RuntimeError> {
        let store = self.store().await?;
        let recovered = recover(store).await?;
        if recovered > 0 {
            self.write_missing_copies(store).await?;
        }
        Ok(recovered)
    }

    /// The runs of this process that go on.
    #[must_use]
    pub fn running(&self) -> Vec<Uuid> {
        self.running.ids()
    }

    /// Cancels a run of this process; whether it was one that goes on.
    pub fn cancel(&self, run_id: Uuid, reason: CancelReason) -> bool {
        self.running.cancel(run_id, reason)
    }

    /// Cancels a run of this process because of a request; whether it was one that goes on.
    pub fn cancel_by(&self, run_id: Uuid, request: &CancelRecord) -> bool {
        self.running.cancel_by(run_id, request)
    }

    /// Cancels every run of this process and waits until all have ended, or until `grace` is over.
    /// Returns how many still go on.
    pub async fn finish(&self, reason: CancelReason, grace: Duration) -> usize {
        self.running.finish(reason, grace).await
    }

    /// Follows a run of any process from the event with the number `from` on.
    ///
    /// # Errors
    /// Fails where the store cannot be opened.
    pub async fn follow(&self, run_id: Uuid, from: u64) -> Result<EventStream, RuntimeError> {
        let store = self.store().await?.clone();
        let following = self.metrics.as_ref().map(MetricsCollector::follow);
        let events = EventStream::new(store, self.hub.clone(), run_id, from);
        Ok(events.counted(following))
    }

    /// The receipt of a run, once it has ended, whichever process carries it out.
    ///
    /// # Errors
    /// Fails where there is no such run, and where the store cannot be read.
    pub async fn receipt(&self, run_id: Uuid) -> Result<Receipt, RuntimeError> {
        let store = self.store().await?;
        loop {
            if let Some(record) = store.receipt(run_id).await? {
                return read_document(&record.document)
                    .map_err(|error| RuntimeError::Lost(error.to_string()));
            }
            if store.run(run_id).await?.is_none() {
                return Err(StoreError::UnknownRun(run_id).into());
            }
            // Its process may have died meanwhile.
            if self.recover().await? == 0 {
                tokio::time::sleep(POLL).await;
            }
        }
    }

    /// Everything a run of this process alone needs, before it is accepted.
    async fn admit(
        &self,
        backend_name: &str,
        work_order: WorkOrder,
        options: RunOptions,
    ) -> Result<Accepted, RuntimeError> {
        let claim = BegunRun {
            lease: Lease {
                run_id: Uuid::now_v7(),
                epoch: 1,
            },
            duration: LEASE,
            attempt: 1,
            may_retry: false,
            next_event: 0,
            cancel: None,
            place: self.running.reserve()?,
        };
        self.prepare(claim, backend_name, work_order, options).await
    }

    /// Everything a run needs.
    async fn prepare(
        &self,
        claim: BegunRun,
        backend_name: &str,
        work_order: WorkOrder,
        options: RunOptions,
    ) -> Result<Accepted, RuntimeError> {
        let plan = self.plan(backend_name, work_order, &options)?;
        let policy = PolicyEngine::new(&plan.order().policy)?;
        let meter = self.meter(&plan, &options)?;
        let mcp = self.mcp_grant(plan.order())?;
        let backends = plan
            .backends()
            .filter_map(|name| self.registry.get(name))
            .map(Arc::clone)
            .collect();
        Ok(Accepted {
            run_id: claim.lease.run_id,
            plan,
            backends,
            policy,
            meter,
            mcp,
            metrics: self.metrics.clone(),
            options,
            runtime: Arc::clone(&self.options),
            store: self.store().await?.with_lease(claim.lease),
            lease: claim.lease,
            place: claim.place,
            staging: Arc::default(),
            attempt: Attempt {
                number: claim.attempt,
                from_seq: claim.next_event,
                may_retry: claim.may_retry,
            },
            cancelled: CancelSlot::default(),
        })
    }

    fn candidates(&self, name: &str, order: &WorkOrder) -> Result<Vec<Candidate>, RuntimeError> {
        let mut candidates = self.registry.candidates(order);
        if name == Self::AUTO {
            return Ok(candidates);
        }
        let known = candidates
            .iter()
            .map(|candidate| candidate.backend.clone())
            .collect();
        candidates.retain(|candidate| candidate.backend == name);
        if candidates.is_empty() {
            return Err(RuntimeError::UnknownBackend {
                name: name.to_owned(),
                known,
            });
        }
        Ok(candidates)
    }

    /// Starts a run; the stage it discards is deleted afterwards, in the background.
    fn start(&self, accepted: Accepted, lease: Duration) -> RunHandle {
        let (trash, workspaces) = (self.trash.clone(), self.workspaces());
        start(
            &self.running,
            &self.hub,
            move || trash.sweep(workspaces),
            accepted,
            lease,
        )
    }

    /// The MCP servers that an order asks for. None is opened.
    fn mcp_grant(&self, order: &WorkOrder) -> Result<Option<McpGrant>, RuntimeError> {
        let ask = order.config.mcp_ask();
        let ask = ask.map_err(|error| PlanError::Invalid(vec![error]))?;
        match (ask, &self.mcp) {
            (None, _) => Ok(None),
            (Some(ask), Some(servers)) => servers.grant(ask).map(Some),
            (Some(_), None) => Err(RuntimeError::NoMcpServers),
        }
    }

    /// A budget that nothing can be held to is refused rather than ignored.
    fn meter(&self, plan: &RunPlan, options: &RunOptions) -> Result<Meter, RuntimeError> {
        let config = &plan.order().config;
        let budget = config.max_budget_usd.and_then(MicroUsd::from_dollars);
        let meter = Meter::new(budget, config.max_turns);
        let selected = &plan.projection().selected_backend;
        if let Some(backend) = self.registry.get(selected) {
            let provenance = match backend.descriptor().measures_usage {
                true => Attestation::Measured,
                false => Attestation::Claimed,
            };
            let model = asked_model(plan, selected);
            let prices = options.prices.of(selected);
            check_budget(&meter, selected, model.as_deref(), prices, provenance)?;
        }
        Ok(meter)
    }
}

/// The model that a run asks for on a backend, as its vendor and its prices name it. Agents choose
/// theirs by the order alone.
pub(crate) fn asked_model(plan: &RunPlan, backend: &str) -> Option<String> {
    let on_backend = plan.model_on(backend);
    on_backend.or_else(|| plan.order().config.model.clone())
}

/// Whether a run can be held to its budget on a backend: its model has a price, and the host itself
/// counts what was used.
pub(crate) fn check_budget(
    meter: &Meter,
    backend: &str,
    model: Option<&str>,
    prices: &PriceTable,
    provenance: Attestation,
) -> Result<(), RuntimeError> {
    if meter.budget().is_none() {
        return Ok(());
    }
    if provenance != Attestation::Measured {
        let backend = backend.to_owned();
        return Err(RuntimeError::UnmeasuredBudget { backend });
    }
    if prices.get(model).is_none() {
        let model = model.map_or_else(
            || "the backend's default model".to_owned(),
            |model| format!("{model:?}"),
        );
        return Err(RuntimeError::NoPrice { model });
    }
    Ok(())
}

/// Starts a run that the journal has.
fn start(
    running: &RunningRuns,
    hub: &EventHub,
    swept: impl FnOnce() + Send + 'static,
    accepted: Accepted,
    lease: Duration,
) -> RunHandle {
    may_die("accepted");
    let run_id = accepted.run_id;
    tracing::debug!(target: "abp.runtime", %run_id, backend = accepted.plan.projection().selected_backend, "accepted");
    let (cancel, signal) = cancellation();
    let cancellation = Cancellation {
        handle: cancel.clone(),
        request: Arc::clone(&accepted.cancelled),
    };
    let listed = running.list(run_id, cancellation, Arc::clone(&accepted.place));
    let keeper = LeaseKeeper::start(
        accepted.store.clone(),
        accepted.lease,
        lease,
        cancel.clone(),
        Arc::clone(&accepted.cancelled),
        accepted.metrics.clone(),
    );
    let publisher = hub.publish(run_id, accepted.attempt.from_seq);
    let events = EventStream::here(accepted.store.clone(), hub.clone(), run_id);
    let staging = Arc::clone(&accepted.staging);
    let metrics = accepted.metrics.clone();
    let trace = RunTrace::begin(run_id, accepted.options.trace);
    let task = tokio::spawn(async move {
        let mut span = TelemetrySpan::start("run");
        span.set("run_id", run_id.to_string());
        let receipt = supervise(accepted, signal, publisher).await;
        drop(keeper);
        if let Ok(receipt) = &receipt {
            span.set("backend", receipt.backend.id.as_str());
            span.set("outcome", serde_json::json!(receipt.outcome));
            if let Some(metrics) = metrics {
                metrics.record(&RunMetrics::from(receipt));
                if let Some(spans) = metrics.spans() {
                    trace.end(receipt, spans);
                }
            }
        }
        drop(listed);
        swept();
        receipt
    });
    RunHandle {
        run_id,
        staging,
        events,
        receipt: ReceiptHandle::new(task, cancel),
    }
}

async fn blocking(
    work: impl FnOnce() -> Result<(), RuntimeError> + Send + 'static,
) -> Result<(), RuntimeError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| RuntimeError::Lost(error.to_string()))?
}
