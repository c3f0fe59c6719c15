//! Bodies on their way through: counted, timed and, where a credential was put in, filtered.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::task::JoinHandle;
use tokio::time::{Sleep, sleep};

use crate::event::{ByteCounts, EgressOutcome, EventDraft};
use crate::head_scan::HeadWatch;

/// Fails a body of which nothing comes for too long.
#[derive(Debug)]
struct IdleTimer {
    limit: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl IdleTimer {
    const fn new(limit: Duration) -> Self {
        Self { limit, sleep: None }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let limit = self.limit;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep(limit)));
        sleep.as_mut().poll(context)
    }

    fn reset(&mut self) {
        self.sleep = None;
    }
}

/// The body of a request, towards the target.
#[derive(Debug)]
pub(crate) struct UploadBody {
    inner: Incoming,
    bytes: Arc<ByteCounts>,
    timer: IdleTimer,
    has_ended: Arc<AtomicBool>,
}

impl UploadBody {
    pub(crate) fn new(inner: Incoming, bytes: Arc<ByteCounts>, idle_time: Duration) -> Self {
        let has_ended = Arc::new(AtomicBool::new(inner.is_end_stream()));
        Self {
            inner,
            bytes,
            timer: IdleTimer::new(idle_time),
            has_ended,
        }
    }

    /// True once the whole body was read.
    pub(crate) fn has_ended(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.has_ended)
    }
}

impl Body for UploadBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        let Poll::Ready(next) = Pin::new(&mut this.inner).poll_frame(context) else {
            ready!(this.timer.poll(context));
            return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
        };
        this.timer.reset();
        if this.inner.is_end_stream() || next.is_none() {
            this.has_ended.store(true, Ordering::Release);
        }
        if let Some(Ok(frame)) = &next {
            let length = frame.data_ref().map_or(0, Bytes::len);
            let length = u64::try_from(length).unwrap_or_default();
            this.bytes.up.fetch_add(length, Ordering::Relaxed);
        }
        Poll::Ready(next.map(|frame| frame.map_err(io::Error::other)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Ends a task when it is dropped.
#[derive(Debug)]
pub(crate) struct AbortOnDrop(pub(crate) JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The body of a response, towards the sandbox. With it end the event, and the connection to the
/// target where that belongs to this response alone.
#[derive(Debug)]
pub(crate) struct DownloadBody {
    inner: Incoming,
    filter: Option<SecretFilter>,
    timer: IdleTimer,
    draft: EventDraft,
    bytes: Arc<ByteCounts>,
    failure: Option<EgressOutcome>,
    /// The end of the body was read, and nothing is held back.
    is_over: bool,
    upload_has_ended: Arc<AtomicBool>,
    watch: Arc<HeadWatch>,
    _driver: Option<AbortOnDrop>,
}

/// The things that live as long as a response.
#[derive(Debug)]
pub(crate) struct Download {
    pub(crate) draft: EventDraft,
    pub(crate) watch: Arc<HeadWatch>,
    pub(crate) upload_has_ended: Arc<AtomicBool>,
    pub(crate) driver: Option<AbortOnDrop>,
    pub(crate) filter: Option<SecretFilter>,
    pub(crate) idle_time: Duration,
}

impl DownloadBody {
    pub(crate) fn new(inner: Incoming, download: Download) -> Self {
        Self {
            inner,
            filter: download.filter,
            timer: IdleTimer::new(download.idle_time),
            bytes: download.draft.bytes(),
            draft: download.draft,
            failure: None,
            is_over: false,
            upload_has_ended: download.upload_has_ended,
            watch: download.watch,
            _driver: download.driver,
        }
    }

    fn fail(&mut self, outcome: EgressOutcome) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.failure = Some(outcome);
        let kind = match outcome {
            EgressOutcome::TimedOut => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::ConnectionAborted,
        };
        Poll::Ready(Some(Err(kind.into())))
    }

    fn pass(&mut self, data: Bytes) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let length = u64::try_from(data.len()).unwrap_or_default();
        self.bytes.down.fetch_add(length, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(data))))
    }
}

impl Body for DownloadBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        if this.is_over {
            return Poll::Ready(None);
        }
        loop {
            let Poll::Ready(next) = Pin::new(&mut this.inner).poll_frame(context) else {
                ready!(this.timer.poll(context));
                return this.fail(EgressOutcome::TimedOut);
            };
            this.timer.reset();
            let data = match next {
                // Trailers are headers of this connection.
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
                Some(Err(_)) => return this.fail(EgressOutcome::Broken),
                None => {
                    this.is_over = true;
                    let held = this.filter.take().map(SecretFilter::finish);
                    return match held.filter(|held| !held.is_empty()) {
                        Some(held) => this.pass(held),
                        None => Poll::Ready(None),
                    };
                }
            };
            let data = match &mut this.filter {
                None => data,
                Some(filter) => match filter.push(data) {
                    Some(data) => data,
                    None => return this.fail(EgressOutcome::Withheld),
                },
            };
            if !data.is_empty() {
                return this.pass(data);
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || (self.filter.is_none() && self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match self.filter {
            None => self.inner.size_hint(),
            Some(_) => SizeHint::default(),
        }
    }
}

impl Drop for DownloadBody {
    fn drop(&mut self) {
        // Responses without a body are never read to their end.
        let is_complete = self.is_over || self.inner.is_end_stream();
        let outcome = match self.failure {
            Some(failure) => failure,
            None if is_complete => EgressOutcome::Complete,
            None => EgressOutcome::Aborted,
        };
        self.draft.end(outcome);
        if outcome == EgressOutcome::Complete && self.upload_has_ended.load(Ordering::Acquire) {
            self.watch.await_head();
        }
    }
}

/// Finds a secret in a body that comes in pieces. A possible beginning of the secret is held back until
/// it is clear that it is not one.
#[derive(Debug)]
pub(crate) struct SecretFilter {
    secret: SecretString,
    held: Bytes,
}

impl SecretFilter {
    pub(crate) const fn new(secret: SecretString) -> Self {
        Self {
            secret,
            held: Bytes::new(),
        }
    }

    /// The bytes that may be passed on, or nothing where the secret was found.
    fn push(&mut self, data: Bytes) -> Option<Bytes> {
        let secret = self.secret.expose_secret().as_bytes();
        let mut all = if self.held.is_empty() {
            data
        } else {
            let mut joined = BytesMut::with_capacity(self.held.len() + data.len());
            joined.extend_from_slice(&self.held);
            joined.extend_from_slice(&data);
            joined.freeze()
        };
        if memchr::memmem::find(&all, secret).is_some() {
            return None;
        }
        let longest = secret.len().saturating_sub(1).min(all.len());
        let held = (0..=longest).rev().find(|length| {
            let tail = all.get(all.len() - length..);
            tail == secret.get(..*length)
        });
        self.held = all.split_off(all.len() - held.unwrap_or_default());
        Some(all)
    }

    fn finish(self) -> Bytes {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However a body is cut, it passes unchanged exactly if it does not contain the secret.
        #[test]
        fn a_secret_is_found_however_the_body_is_cut(
            body in "[ab]{0,40}", secret in "[ab]{2,6}", size in 1_usize..8,
        ) {
            let mut filter = SecretFilter::new(secret.clone().into());
            let mut passed = Vec::new();
            let mut is_found = false;
            for piece in body.as_bytes().chunks(size) {
                match filter.push(Bytes::copy_from_slice(piece)) {
                    Some(data) => passed.extend_from_slice(&data),
                    None => { is_found = true; break }
                }
            }
            prop_assert_eq!(is_found, body.contains(&secret));
            if is_found {
                prop_assert!(!String::from_utf8_lossy(&passed).contains(&secret));
            } else {
                passed.extend_from_slice(&filter.finish());
                prop_assert_eq!(passed, body.into_bytes());
            }
        }
    }
}
