//! Starting a sidecar and reading its hello.

use abp_core::{
    BackendIdentity, CONTRACT_VERSION, CapabilityManifest, ExecutionMode, StateAccess, WorkOrder,
};
use abp_protocol::is_compatible_version;
use abp_sandbox::{Concealment, ContainedProcess, Containment, ProcessSpec, SpawnError};
use secrecy::{ExposeSecret as _, SecretString};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sidecar_kit::{Connection, Fault, Frame, Settings};
use uuid::Uuid;

use crate::environment::environment;
use crate::records::Record;
use crate::{Egress, HostError, SidecarFailure, SidecarRun, SidecarSpec};

/// A sidecar that said hello. Dropping it ends the sidecar.
#[derive(Debug)]
pub struct SidecarClient {
    client: sidecar_kit::SidecarClient,
    greeting: Greeting,
    record: Record,
    egress: Option<Egress>,
}

/// What a sidecar says of itself.
#[derive(Debug)]
struct Greeting {
    identity: BackendIdentity,
    manifest: CapabilityManifest,
    mode: ExecutionMode,
}

impl SidecarClient {
    /// Starts a sidecar, waits for its hello and checks it.
    ///
    /// # Errors
    /// Says why there is no sidecar that could be given work.
    pub async fn spawn(spec: SidecarSpec) -> Result<Self, SidecarFailure> {
        let id = Uuid::new_v4().to_string();
        let (env, marks) = environment(std::env::vars_os(), &spec.env, &id);
        let process = ProcessSpec {
            program: spec.command.into(),
            args: spec.args.into_iter().map(Into::into).collect(),
            env,
            marks,
            directory: spec.directory,
            confinement: spec.confinement,
            launcher: spec.launcher,
            limits: spec.limits,
        };
        let mut connection = Connection::spawn(&process)
            .await
            .map_err(|error| failed(error.into()))?;
        let egress = connection.take_egress();
        let egress = egress.map(|listener| Egress::start(listener, spec.egress));
        let egress = egress.transpose().map_err(|error| {
            let problem = format!("the way out of its sandbox cannot be served: {error}");
            failed(SpawnError::Program(problem).into())
        })?;
        let exposed = spec.secrets.iter().map(SecretString::expose_secret);
        let connection = connection.hiding(exposed.map(ToOwned::to_owned));
        if let Some(Concealment::Exposed(reason)) =
            connection.process().map(ContainedProcess::concealment)
        {
            tracing::warn!(target: "abp.sidecar", reason, "the sidecar can reach the host's state");
        }
        let launcher = connection
            .process()
            .and_then(ContainedProcess::launcher_pid);
        let record = Record::write(spec.records.as_deref(), id, launcher);
        let settings = Settings {
            timing: spec.timing,
            max_line: spec.max_line,
        };
        let client = match sidecar_kit::SidecarClient::connect(connection, &settings).await {
            Ok(client) => client,
            Err(report) => {
                record.settle(report.exit);
                return Err((*report).into());
            }
        };
        match Greeting::read(client.hello()) {
            Ok(greeting) => Ok(Self {
                client,
                greeting,
                record,
                egress,
            }),
            Err(error) => {
                let report = client.close().await;
                record.settle(report.exit);
                Err(SidecarFailure::of(report, error))
            }
        }
    }

    /// Who it is.
    #[must_use]
    pub fn identity(&self) -> &BackendIdentity {
        &self.greeting.identity
    }

    /// What it says it can do.
    #[must_use]
    pub fn manifest(&self) -> &CapabilityManifest {
        &self.greeting.manifest
    }

    /// How it takes requests.
    #[must_use]
    pub fn mode(&self) -> ExecutionMode {
        self.greeting.mode
    }

    /// What keeps its descendants from getting away.
    #[must_use]
    pub fn containment(&self) -> Option<Containment> {
        self.client.process().map(ContainedProcess::containment)
    }

    /// Whether its processes can reach the directories that were to be hidden from them.
    #[must_use]
    pub fn state_access(&self) -> Option<StateAccess> {
        let process = self.client.process()?;
        Some(match process.concealment() {
            Concealment::Concealed => StateAccess::Hidden,
            Concealment::Exposed(_) => StateAccess::Reachable,
        })
    }

    /// Why its processes can reach the directories that were to be hidden, where they can.
    #[must_use]
    pub fn exposure(&self) -> Option<&str> {
        match self.client.process()?.concealment() {
            Concealment::Concealed => None,
            Concealment::Exposed(reason) => Some(reason),
        }
    }

    /// The way out of its sandbox, where that has one.
    pub fn take_egress(&mut self) -> Option<Egress> {
        self.egress.take()
    }

    /// Keeps this out of the log and of what is kept of its standard error.
    pub fn hide(&self, secret: &str) {
        self.client.hide(secret);
    }

    /// Gives it its one run.
    ///
    /// # Errors
    /// Fails where the order cannot be serialised.
    pub fn run(self, run_id: Uuid, order: &WorkOrder) -> Result<SidecarRun, serde_json::Error> {
        Ok(self.run_json(run_id, serde_json::to_value(order)?))
    }

    /// Gives it its one run, with an order that need not be one this version knows all of.
    #[must_use]
    pub fn run_json(self, run_id: Uuid, order: Value) -> SidecarRun {
        SidecarRun::new(self.client.run(run_id.to_string(), order), self.record)
    }

    /// Pings it before its run; whether it answered is told with the run.
    pub fn ping(&mut self) {
        self.client.ping();
    }

    /// Sends it a message of the caller's own before its run.
    pub fn send_frame(&self, frame: &Frame) {
        self.client.send(frame);
    }

    /// Lets it go without a run.
    ///
    /// # Errors
    /// Says what it did instead of exiting.
    pub async fn close(self) -> Result<(), SidecarFailure> {
        let report = self.client.close().await;
        self.record.settle(report.exit);
        match report.result {
            Ok(_) => Ok(()),
            Err(_) => Err(report.into()),
        }
    }
}

fn failed(fault: Fault) -> SidecarFailure {
    SidecarFailure {
        error: fault.into(),
        exit: None,
        stderr_tail: String::new(),
    }
}

impl Greeting {
    fn read(hello: &sidecar_kit::HelloFrame) -> Result<Self, HostError> {
        if !is_compatible_version(&hello.contract_version, CONTRACT_VERSION) {
            return Err(HostError::Version {
                theirs: hello.contract_version.clone(),
            });
        }
        let identity: BackendIdentity = member("backend", Some(&hello.backend))?;
        if identity.id.is_empty() {
            return Err(HostError::InvalidHello("backend.id is empty".to_owned()));
        }
        let capabilities = Some(&hello.capabilities).filter(|value| !value.is_null());
        let manifest = match capabilities {
            Some(capabilities) => member("capabilities", Some(capabilities))?,
            None => CapabilityManifest::new(),
        };
        let mode = match &hello.mode {
            Some(mode) => member("mode", Some(mode))?,
            None => ExecutionMode::default(),
        };
        Ok(Self {
            identity,
            manifest,
            mode,
        })
    }
}

fn member<T: DeserializeOwned>(name: &str, value: Option<&Value>) -> Result<T, HostError> {
    serde_json::from_value(value.cloned().unwrap_or_default())
        .map_err(|error| HostError::InvalidHello(format!("{name}: {error}")))
}
