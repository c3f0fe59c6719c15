//! The sidecar's standard error: always read, its end kept, some of it logged.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::task::JoinHandle;

/// How much is kept.
const KEPT: usize = 64 * 1024;
/// How much is logged at most in a second.
const LOGGED_PER_SECOND: usize = 16 * 1024;
/// How long to wait for the rest after the process ended.
const REST: Duration = Duration::from_millis(500);
/// What stands where a secret was.
const MASK: &str = "[redacted]";

/// The end of what a sidecar wrote to its standard error.
#[derive(Debug)]
pub(crate) struct Stderr {
    kept: Arc<Mutex<VecDeque<u8>>>,
    secrets: Secrets,
    reader: JoinHandle<()>,
}

/// What is neither kept nor logged.
type Secrets = Arc<Mutex<Vec<String>>>;

impl Stderr {
    pub(crate) fn read(stream: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let kept = Arc::new(Mutex::new(VecDeque::new()));
        let secrets = Secrets::default();
        let reader = tokio::spawn(drain(stream, Arc::clone(&kept), Arc::clone(&secrets)));
        Self {
            kept,
            secrets,
            reader,
        }
    }

    /// Neither keeps nor logs this from now on.
    pub(crate) fn hide(&self, secret: &str) {
        let mut secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        secrets.push(secret.to_owned());
    }

    /// The end of it, once the process ended.
    pub(crate) async fn tail(&mut self) -> String {
        // Whoever still holds it open has been killed; what is in the pipe is read quickly.
        drop(tokio::time::timeout(REST, &mut self.reader).await);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(kept.make_contiguous()).into_owned()
    }
}

impl Drop for Stderr {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn drain(
    mut stream: impl AsyncRead + Unpin + Send + 'static,
    kept: Arc<Mutex<VecDeque<u8>>>,
    secrets: Secrets,
) {
    let mut log = Log::new();
    let mut piece = vec![0; KEPT];
    while let Ok(read @ 1..) = stream.read(&mut piece).await {
        let piece = without(&secrets, piece.get(..read).unwrap_or_default());
        log.write(&piece);
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(piece.iter());
        let beyond = kept.len().saturating_sub(KEPT);
        kept.drain(..beyond);
    }
}

/// A piece without secrets. One that a line carries comes in one piece: lines are written at once.
fn without<'p>(secrets: &Secrets, piece: &'p [u8]) -> Cow<'p, [u8]> {
    let secrets = secrets.lock().unwrap_or_else(PoisonError::into_inner);
    let text = String::from_utf8_lossy(piece);
    if !secrets.iter().any(|secret| text.contains(secret)) {
        return Cow::Borrowed(piece);
    }
    let masked = secrets
        .iter()
        .fold(text.into_owned(), |text, secret| text.replace(secret, MASK));
    Cow::Owned(masked.into_bytes())
}

/// Logs at a rate that nobody can flood.
struct Log {
    second: Instant,
    left: usize,
    dropped: usize,
}

impl Log {
    fn new() -> Self {
        Self {
            second: Instant::now(),
            left: LOGGED_PER_SECOND,
            dropped: 0,
        }
    }

    fn write(&mut self, piece: &[u8]) {
        if self.second.elapsed() >= Duration::from_secs(1) {
            if self.dropped > 0 {
                tracing::warn!(target: "abp.sidecar.stderr", bytes = self.dropped, "not logged: too much");
            }
            *self = Self::new();
        }
        if piece.len() > self.left {
            self.dropped += piece.len();
            return;
        }
        self.left -= piece.len();
        for line in String::from_utf8_lossy(piece).lines() {
            tracing::info!(target: "abp.sidecar.stderr", "{}", line.escape_debug());
        }
    }
}
