//! What a command works with: the effective configuration, and what follows from it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use abp_backend_mock::MockScript;
use abp_config::{Config, Loaded, Override, Sources, load, render};
use abp_control::{ControlPlane, RunScope};
use abp_core::PolicyProfile;
use abp_error::{AbpError, ErrorCode};
use abp_remote::recover_applies;
use abp_runtime::PriceTable;
use abp_store::Store;
use abp_workspace::RecoveryOutcome;

use crate::args::GlobalArgs;
use crate::cmd::remote::journals;
use crate::input;
use crate::output::Output;

/// How long a question waits for its answer when nothing else is configured.
const DEFAULT_APPROVAL_TIMEOUT: Duration = Duration::from_secs(300);

/// The effective configuration of a command.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) loaded: Loaded,
    pub(crate) plane: ControlPlane,
}

impl Session {
    /// Loads the configuration; what is odd about it is told on standard error.
    pub(crate) fn open(
        global: &GlobalArgs,
        scripts: &[PathBuf],
        output: &mut Output,
    ) -> Result<Self, AbpError> {
        let mut read = Vec::new();
        for path in scripts {
            let bytes = input::read(path)?;
            read.push(input::document::<MockScript>(path, &bytes)?);
        }
        let mut sources = sources(global);
        sources
            .known_backends
            .extend(read.iter().map(|script| script.name.clone()));
        let loaded = load(&sources)?;
        if !loaded.warnings.is_empty() {
            output.diagnostics(&render(&loaded.warnings, output.is_coloured()));
        }
        let plane = ControlPlane::open(loaded.config.clone(), &read)?;
        finish_applies(&loaded.config, output)?;
        Ok(Self { loaded, plane })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.loaded.config
    }

    /// The runs that commands are about: those of the project around the working directory.
    pub(crate) fn scope(&self) -> RunScope {
        match std::env::current_dir() {
            Ok(directory) => RunScope::of_directory(&directory),
            Err(_) => RunScope::All,
        }
    }

    /// The store, for commands that only make sense where something was run before.
    pub(crate) async fn existing_store(&self) -> Result<&Store, AbpError> {
        let store = self.plane.runtime().existing_store().await?;
        store.ok_or_else(|| {
            let message = format!(
                "nothing was run yet: {} has no store",
                self.config().state_dir.display()
            );
            AbpError::new(ErrorCode::ValidationFailed, message)
        })
    }

    /// A policy by its configured name, or from a file.
    pub(crate) fn policy(&self, name_or_file: &str) -> Result<PolicyProfile, AbpError> {
        match self.config().policies.get(name_or_file) {
            Some(policy) => Ok(policy.clone()),
            None => input::policy(name_or_file.as_ref()),
        }
    }

    /// The prices of a file.
    pub(crate) fn prices(&self, path: &Path) -> Result<PriceTable, AbpError> {
        let prices: PriceTable = input::strict(path, ErrorCode::ConfigInvalid)?;
        if let Some(model) = prices.first_invalid() {
            let message = format!(
                "{}: a price of {model:?} is not a number of dollars, zero or more",
                path.display()
            );
            return Err(AbpError::new(ErrorCode::ConfigInvalid, message));
        }
        Ok(prices)
    }

    pub(crate) fn approval_timeout(&self) -> Duration {
        let configured = self.config().approval_timeout_secs;
        configured.map_or(DEFAULT_APPROVAL_TIMEOUT, |secs| {
            Duration::from_secs(secs.into())
        })
    }
}

/// Where the configuration of this process comes from.
pub(crate) fn sources(global: &GlobalArgs) -> Sources {
    let mut sources = Sources::of_process(global.config.clone());
    sources.known_backends = ControlPlane::known_backends().map(str::to_owned).collect();
    if let Some(state_dir) = &global.state_dir {
        sources.overrides.push(Override {
            key: "state_dir".to_owned(),
            value: state_dir.display().to_string(),
            flag: "--state-dir".to_owned(),
        });
    }
    sources
}

/// Runs a command's async part to its end.
pub(crate) fn block_on<T>(
    future: impl Future<Output = Result<T, AbpError>>,
) -> Result<T, AbpError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| {
            AbpError::new(ErrorCode::Internal, "cannot start the async runtime").with_source(error)
        })?;
    let done = runtime.block_on(future);
    // Work that was given up, such as a copy of a huge tree, is not waited for.
    runtime.shutdown_background();
    done
}

/// Brings applications of remote runs that were interrupted here to their end, before anything else looks at
/// the directories.
fn finish_applies(config: &Config, output: &mut Output) -> Result<(), AbpError> {
    for recovered in recover_applies(&journals(config))? {
        let run_id = recovered.run_id;
        output.warn(&match recovered.outcome {
            RecoveryOutcome::Applied => {
                format!("applying run {run_id} was interrupted; it is applied now")
            }
            RecoveryOutcome::RolledBack { saves } => format!(
                "applying run {run_id} was interrupted, and {} files were saved since; nothing of it is applied",
                saves.len()
            ),
            RecoveryOutcome::NothingWritten => {
                format!("applying run {run_id} was interrupted before anything was written")
            }
        });
    }
    Ok(())
}
