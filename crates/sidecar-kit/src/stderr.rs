//! The sidecar's standard error: always read, its end kept, some of it logged.

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

/// The end of what a sidecar wrote to its standard error.
#[derive(Debug)]
pub(crate) struct Stderr {
    kept: Arc<Mutex<VecDeque<u8>>>,
    reader: JoinHandle<()>,
}

impl Stderr {
    pub(crate) fn read(stream: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let kept = Arc::new(Mutex::new(VecDeque::new()));
        let reader = tokio::spawn(drain(stream, Arc::clone(&kept)));
        Self { kept, reader }
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
) {
    let mut log = Log::new();
    let mut piece = vec![0; KEPT];
    while let Ok(read @ 1..) = stream.read(&mut piece).await {
        let piece = piece.get(..read).unwrap_or_default();
        log.write(piece);
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(piece);
        let beyond = kept.len().saturating_sub(KEPT);
        kept.drain(..beyond);
    }
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
