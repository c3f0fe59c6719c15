//! Credentials that are made on demand and used for a while: by a command that prints one, or by Google
//! for a service account.
//!
//! One is made at a time; requests that come meanwhile wait for it. One that could not be made is not
//! tried again for a moment, so that a broken command is not started by every request.

use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use abp_backend_core::UpstreamError;
use jiff::Timestamp;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::credential::Credential;
use crate::service_account::ServiceAccount;

/// The longest a command or Google may take.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// The longest credential that a command may print.
const LONGEST_OUTPUT: u64 = 64 * 1024;
/// A credential is made anew so long before it expires.
const MARGIN: Duration = Duration::from_secs(60);
/// No credential is used for longer, whatever is said about it.
const LONGEST_LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// The time that nothing is tried after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// A program that prints a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyCommand {
    /// The program: a name on the search path, or a path.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// The time that a credential is used where it does not say when it expires.
    pub lifetime: Duration,
}

impl KeyCommand {
    /// The first line of what it prints; all of it where it is JSON.
    async fn run(&self) -> Result<String, String> {
        let failed = |problem: String| format!("the command {} {problem}", self.program);
        let mut child = Command::new(&self.program)
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // It may hold the credential, too.
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(format!("cannot be started: {error}")))?;
        let mut printed = Vec::new();
        if let Some(output) = child.stdout.take() {
            let mut output = output.take(LONGEST_OUTPUT + 1);
            let read = output.read_to_end(&mut printed).await;
            read.map_err(|error| failed(format!("cannot be read: {error}")))?;
        }
        if printed.len() as u64 > LONGEST_OUTPUT {
            return Err(failed(format!("printed more than {LONGEST_OUTPUT} bytes")));
        }
        let ended = child.wait().await;
        let ended = ended.map_err(|error| failed(format!("was lost: {error}")))?;
        if !ended.success() {
            return Err(failed(format!("ended with {ended}")));
        }
        let printed = String::from_utf8(printed).map_err(|_| failed("printed no text".into()))?;
        let printed = printed.trim();
        let credential = match printed.starts_with('{') {
            true => printed,
            false => printed.lines().next().unwrap_or_default().trim(),
        };
        if credential.is_empty() {
            return Err(failed("printed nothing".into()));
        }
        Ok(credential.to_owned())
    }
}

/// The way a credential is made.
pub(crate) enum CredentialMaker {
    Command {
        command: KeyCommand,
        /// Reads what the command printed.
        read: fn(&str) -> Result<Credential, String>,
    },
    ServiceAccount(Box<ServiceAccount>),
}

impl CredentialMaker {
    /// A new credential, and how long it can be used.
    async fn make(&self) -> Result<(Credential, Duration), String> {
        match self {
            Self::Command { command, read } => {
                let credential = read(&command.run().await?)?;
                Ok((credential, command.lifetime))
            }
            Self::ServiceAccount(account) => account.fetch_token().await,
        }
    }
}

/// The credential of the moment.
pub(crate) struct CredentialCache {
    maker: CredentialMaker,
    state: Mutex<CacheState>,
    making: Semaphore,
}

#[derive(Default)]
struct CacheState {
    /// The last one, and until when it is used.
    current: Option<(Arc<Credential>, Instant)>,
    /// The one before. Answers to it may still come, and must not show it.
    previous: Option<Arc<Credential>>,
    /// Why there is none, and since when.
    failed: Option<(String, Instant)>,
}

impl CredentialCache {
    pub(crate) fn new(maker: CredentialMaker) -> Self {
        Self {
            maker,
            state: Mutex::default(),
            making: Semaphore::new(1),
        }
    }

    /// The credential that is used now; made where there is none, or none any more.
    ///
    /// # Errors
    /// Fails where none can be made.
    pub(crate) async fn get(&self) -> Result<Arc<Credential>, UpstreamError> {
        if let Some(known) = self.known() {
            return known;
        }
        let _making = self.making.acquire().await;
        // Whoever waited finds what was made meanwhile.
        if let Some(known) = self.known() {
            return known;
        }
        let made = timeout(LONGEST_WAIT, self.maker.make()).await;
        let made = made.unwrap_or_else(|_| {
            let limit = LONGEST_WAIT.as_secs();
            Err(format!("it was not made within {limit} s"))
        });
        match made {
            Ok((credential, lifetime)) => {
                let until = Instant::now() + usable_for(&credential, lifetime);
                let credential = Arc::new(credential);
                let mut state = self.state();
                let replaced = state.current.replace((Arc::clone(&credential), until));
                state.previous = replaced.map(|(previous, _)| previous);
                state.failed = None;
                Ok(credential)
            }
            Err(problem) => {
                self.state().failed = Some((problem.clone(), Instant::now()));
                Err(unavailable(&problem))
            }
        }
    }

    /// Lets go of a credential that the vendor did not take, so that the next request has another.
    pub(crate) fn forget(&self, refused: &Arc<Credential>) {
        let mut state = self.state();
        if let Some((current, until)) = &mut state.current
            && Arc::ptr_eq(current, refused)
        {
            *until = Instant::now();
        }
    }

    /// The last credentials, whether or not they are still used.
    pub(crate) fn last(&self) -> Vec<Arc<Credential>> {
        let state = self.state();
        let current = state.current.as_ref().map(|(current, _)| current);
        current
            .into_iter()
            .chain(&state.previous)
            .cloned()
            .collect()
    }

    fn known(&self) -> Option<Result<Arc<Credential>, UpstreamError>> {
        let state = self.state();
        if let Some((current, until)) = &state.current
            && Instant::now() < *until
        {
            return Some(Ok(Arc::clone(current)));
        }
        let (problem, since) = state.failed.as_ref()?;
        (since.elapsed() < RETRY_AFTER).then(|| Err(unavailable(problem)))
    }

    fn state(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As long as is said, but no longer than until shortly before it expires.
fn usable_for(credential: &Credential, lifetime: Duration) -> Duration {
    let lifetime = lifetime.min(LONGEST_LIFETIME);
    let Some(expires) = credential.expires else {
        return lifetime;
    };
    let left = expires.duration_since(Timestamp::now());
    let left = Duration::try_from(left).unwrap_or_default();
    lifetime.min(left.saturating_sub(MARGIN))
}

fn unavailable(problem: &str) -> UpstreamError {
    UpstreamError::NotConfigured(format!("the credential cannot be had: {problem}"))
}
