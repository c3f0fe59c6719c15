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
/// What stands where a secret was.
const MASK: &str = "[redacted]";

/// The end of what a sidecar wrote to its standard error.
#[derive(Debug)]
pub struct Stderr {
    kept: Arc<Mutex<VecDeque<u8>>>,
    secrets: Secrets,
    reader: JoinHandle<()>,
}

/// Values that are neither kept nor logged, longer ones first: one may be a part of another.
type Secrets = Arc<Mutex<Vec<Vec<u8>>>>;

impl Stderr {
    /// Reads a stream to its end. What is in `hidden` is neither kept nor logged.
    pub fn read(stream: impl AsyncRead + Unpin + Send + 'static, hidden: &[String]) -> Self {
        let kept = Arc::new(Mutex::new(VecDeque::new()));
        let secrets = Secrets::default();
        for secret in hidden {
            add_secret(&secrets, secret);
        }
        let reader = tokio::spawn(drain(stream, Arc::clone(&kept), Arc::clone(&secrets)));
        Self {
            kept,
            secrets,
            reader,
        }
    }

    /// Neither keeps nor logs this from now on.
    pub fn hide(&self, secret: &str) {
        add_secret(&self.secrets, secret);
    }

    /// The end of it, once the process ended.
    pub async fn tail(&mut self) -> String {
        // Every process that holds it open has been killed; the rest of the pipe is read quickly.
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

fn add_secret(secrets: &Secrets, secret: &str) {
    if secret.is_empty() {
        return;
    }
    let mut secrets = secrets.lock().unwrap_or_else(PoisonError::into_inner);
    secrets.push(secret.as_bytes().to_owned());
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
}

async fn drain(
    mut stream: impl AsyncRead + Unpin + Send + 'static,
    kept: Arc<Mutex<VecDeque<u8>>>,
    secrets: Secrets,
) {
    let mut log = Log::new();
    let mut piece = vec![0; KEPT];
    let mut masked = Masked::default();
    loop {
        let read = stream.read(&mut piece).await.unwrap_or(0);
        masked.push(piece.get(..read).unwrap_or_default());
        let clean = {
            let secrets = secrets.lock().unwrap_or_else(PoisonError::into_inner);
            masked.take(&secrets, read == 0)
        };
        log.write(&clean);
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(&clean);
        let beyond = kept.len().saturating_sub(KEPT);
        kept.drain(..beyond);
        if read == 0 {
            return;
        }
    }
}

/// Bytes without secrets, also where one comes in several pieces: an end that may be the beginning
/// of a secret is held back until the next piece shows whether it is.
#[derive(Default)]
struct Masked {
    pending: Vec<u8>,
}

impl Masked {
    fn push(&mut self, piece: &[u8]) {
        self.pending.extend_from_slice(piece);
    }

    /// The bytes that are certain by now; all of them at the end of the stream.
    fn take(&mut self, secrets: &[Vec<u8>], is_end: bool) -> Vec<u8> {
        let mut clean = Vec::with_capacity(self.pending.len());
        let mut rest = self.pending.as_slice();
        while !rest.is_empty() {
            let is_begun = |secret: &Vec<u8>| secret.len() > rest.len() && secret.starts_with(rest);
            if !is_end && secrets.iter().any(is_begun) {
                break;
            }
            if let Some(after) = secrets
                .iter()
                .find_map(|secret| rest.strip_prefix(&**secret))
            {
                clean.extend_from_slice(MASK.as_bytes());
                rest = after;
            } else {
                // Up to the next byte that a secret could begin with.
                let begins = |byte: &u8| secrets.iter().any(|secret| secret.first() == Some(byte));
                let ordinary = rest.iter().skip(1).position(begins);
                let (before, after) = rest.split_at(ordinary.map_or(rest.len(), |at| at + 1));
                clean.extend_from_slice(before);
                rest = after;
            }
        }
        let held_back = rest.to_owned();
        self.pending = held_back;
        clean
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_masked_however_it_is_cut() {
        let secrets: Secrets = Arc::default();
        for secret in ["hunter2", "hunter2-and-more", "naan", "\u{e9}t\u{e9}s"] {
            add_secret(&secrets, secret);
        }
        let secrets = secrets.lock().unwrap().clone();
        let text =
            "a hunter2 b hunter2-and-more c hunter1 nanaan d \u{e9}t\u{e9}s hunter".as_bytes();
        let wanted = "a [redacted] b [redacted] c hunter1 na[redacted] d [redacted] hunter";
        for size in 1..=text.len() {
            let mut masked = Masked::default();
            let mut clean = Vec::new();
            for piece in text.chunks(size) {
                masked.push(piece);
                clean.extend(masked.take(&secrets, false));
            }
            clean.extend(masked.take(&secrets, true));
            assert_eq!(
                String::from_utf8(clean).unwrap(),
                wanted,
                "in pieces of {size}"
            );
        }
    }

    #[tokio::test]
    async fn the_end_is_kept_without_secrets() {
        let (mut write, read) = tokio::io::duplex(16);
        let mut stderr = Stderr::read(read, &["canary-1234".to_owned(), String::new()]);
        stderr.hide("later-5678");
        let written = tokio::spawn(async move {
            for byte in b"x canary-1234 y later-5678 z cana" {
                tokio::io::AsyncWriteExt::write_all(&mut write, &[*byte])
                    .await
                    .unwrap();
            }
        });
        written.await.unwrap();
        assert_eq!(stderr.tail().await, "x [redacted] y [redacted] z cana");
    }
}
