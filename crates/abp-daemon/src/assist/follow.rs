//! Following a run for its sender, to the end of either.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use abp_control::{ControlPlane, EventStream, Principal};
use abp_core::{AgentEvent, AgentEventKind, Receipt};
use abp_error::AbpError;
use abp_runtime::Audience;
use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::writer::Writer;

/// The runs that senders listen to, and how many listen to each.
#[derive(Debug, Default)]
pub(super) struct Attachments {
    counts: Mutex<HashMap<Uuid, usize>>,
}

impl Attachments {
    fn attach(&self, run_id: Uuid) {
        *self.lock().entry(run_id).or_default() += 1;
    }

    fn detach(&self, run_id: Uuid) {
        let mut counts = self.lock();
        let left = counts
            .get(&run_id)
            .map_or(0, |count| count.saturating_sub(1));
        match left {
            0 => drop(counts.remove(&run_id)),
            left => drop(counts.insert(run_id, left)),
        }
    }

    fn has(&self, run_id: Uuid) -> bool {
        self.lock().contains_key(&run_id)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, usize>> {
        // Counts are never half changed.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes what a run says for its sender.
pub(super) struct Follower {
    pub(super) run_id: Uuid,
    pub(super) events: EventStream,
    pub(super) audience: Audience,
    pub(super) writer: Writer,
    pub(super) parts: mpsc::Sender<Bytes>,
    /// What the sender has to know, once the run has begun.
    pub(super) notes: Vec<String>,
    pub(super) keep_alive: Duration,
    /// When the sender heard something last.
    pub(super) last_sign: Instant,
    pub(super) plane: ControlPlane,
    pub(super) principal: Principal,
    pub(super) attachments: Arc<Attachments>,
    pub(super) closing: watch::Receiver<bool>,
}

/// The sender is gone.
struct Gone;

/// The end of following a run.
enum FollowEnd {
    RunEnded,
    SenderLeft,
    /// The server stops; the run may go on after it.
    ServerStops,
}

impl Follower {
    /// Follows the run to its end. A run whose sender left goes on for a while, so that the sender can come
    /// back; then it is cancelled.
    pub(super) async fn follow(mut self) {
        let run_id = self.run_id;
        self.attachments.attach(run_id);
        let ended = self.write_all().await;
        self.attachments.detach(run_id);
        match ended {
            FollowEnd::RunEnded => {
                let receipt = self.plane.receipt(run_id).await;
                // Who left meanwhile has missed the end only.
                drop(self.end(&receipt).await);
            }
            FollowEnd::SenderLeft => self.wait_for_return().await,
            FollowEnd::ServerStops => {}
        }
    }

    async fn write_all(&mut self) -> FollowEnd {
        let run_id = self.run_id;
        let mut stops = false;
        loop {
            // What happens need not be heard: it is the last word to the sender that counts.
            let quiet = self.last_sign + self.keep_alive;
            let next = tokio::select! {
                biased;
                () = self.parts.closed() => return FollowEnd::SenderLeft,
                event = self.events.next() => event,
                () = closed(&mut self.closing), if !stops => {
                    stops = true;
                    // The last events of a run that has ended are still told.
                    let run = self.plane.run(&self.principal, run_id).await;
                    match run.is_ok_and(|run| run.state.is_final()) {
                        true => continue,
                        false => return FollowEnd::ServerStops,
                    }
                }
                () = sleep_until(quiet) => {
                    self.last_sign = Instant::now();
                    if self.send(self.writer.keep_alive()).await.is_err() {
                        return FollowEnd::SenderLeft;
                    }
                    continue;
                }
            };
            let next = next.unwrap_or_else(|error| {
                tracing::error!(target: "abp.daemon", %run_id, %error, "the run cannot be followed");
                None
            });
            let Some(followed) = next else {
                return FollowEnd::RunEnded;
            };
            if self.show(&followed.event).await.is_err() {
                return FollowEnd::SenderLeft;
            }
        }
    }

    /// Cancels the run unless a sender listens to it in time.
    async fn wait_for_return(mut self) {
        let run_id = self.run_id;
        let time = self.plane.config().control.assist_reattach_secs;
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(time.into())) => {}
            // A server that stops gives its runs back or ends them itself.
            () = closed(&mut self.closing) => return,
        }
        if self.attachments.has(run_id) {
            return;
        }
        let cancelled = self.plane.cancel_abandoned(&self.principal, run_id).await;
        if let Err(error) = cancelled {
            tracing::warn!(target: "abp.daemon", %run_id, %error, "an abandoned run goes on");
        }
    }

    /// Shows an event as the sender can take it.
    async fn show(&mut self, event: &AgentEvent) -> Result<(), Gone> {
        let shown: Vec<_> = self.audience.present(event).await.events().collect();
        for shown in shown {
            let pieces = self.writer.event(&shown);
            self.send_all(pieces).await?;
        }
        for message in std::mem::take(&mut self.notes) {
            let note = AgentEvent::new(event.ts, AgentEventKind::Warning { message });
            let pieces = self.writer.event(&note);
            self.send_all(pieces).await?;
        }
        Ok(())
    }

    async fn end(&mut self, receipt: &Result<Receipt, AbpError>) -> Result<(), Gone> {
        for held in self.audience.finish() {
            let pieces = self.writer.event(&held);
            self.send_all(pieces).await?;
        }
        let pieces = self.writer.end(receipt);
        self.send_all(pieces).await
    }

    async fn send_all(&mut self, pieces: Vec<Bytes>) -> Result<(), Gone> {
        for piece in pieces {
            self.send(piece).await?;
        }
        Ok(())
    }

    async fn send(&mut self, piece: Bytes) -> Result<(), Gone> {
        if piece.is_empty() {
            return Ok(());
        }
        self.last_sign = Instant::now();
        self.parts.send(piece).await.map_err(|_| Gone)
    }
}

/// Resolves when the server stops.
async fn closed(closing: &mut watch::Receiver<bool>) {
    drop(closing.wait_for(|closing| *closing).await);
}
