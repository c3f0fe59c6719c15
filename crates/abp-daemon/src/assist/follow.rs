//! Following a run for its sender, to the end of either.

use std::time::Duration;

use abp_control::ControlPlane;
use abp_core::{AgentEvent, AgentEventKind, CancelReason, Receipt};
use abp_error::AbpError;
use abp_runtime::{Audience, Decider, RunHandle};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::writer::Writer;

/// Writes what a run says for its sender.
pub(super) struct Follower {
    pub(super) audience: Audience,
    pub(super) writer: Writer,
    pub(super) parts: mpsc::Sender<Bytes>,
    /// What the sender has to know, once the run has begun.
    pub(super) notes: Vec<String>,
    pub(super) keep_alive: Duration,
    /// When the sender heard something last.
    pub(super) last_sign: Instant,
    pub(super) plane: ControlPlane,
}

/// The sender is gone.
struct Gone;

impl Follower {
    /// Follows the run to its end; where its sender leaves before, the run is cancelled.
    pub(super) async fn follow(mut self, handle: RunHandle) {
        let run_id = handle.run_id;
        let cancel = handle.cancel_handle();
        let mut events = handle.events;
        let stays = loop {
            // What happens need not be heard: it is the last word to the sender that counts.
            let quiet = self.last_sign + self.keep_alive;
            let next = tokio::select! {
                biased;
                () = self.parts.closed() => break false,
                event = events.next() => event,
                () = sleep_until(quiet) => {
                    self.last_sign = Instant::now();
                    if self.send(self.writer.keep_alive()).await.is_err() {
                        break false;
                    }
                    continue;
                }
            };
            let next = next.unwrap_or_else(|error| {
                tracing::error!(target: "abp.daemon", %run_id, %error, "the run cannot be followed");
                None
            });
            let Some(followed) = next else { break true };
            if self.show(&followed.event).await.is_err() {
                break false;
            }
        };
        if !stays {
            cancel.cancel(CancelReason::Disconnect);
        }
        drop(events);
        let receipt = handle.receipt.await.map_err(AbpError::from);
        if stays {
            // Who left meanwhile has missed the end only.
            drop(self.end(&receipt).await);
        }
        drop(self.parts);
        if let Ok(receipt) = receipt {
            discard(&self.plane, run_id, &receipt).await;
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

/// What the agent left in its directory is in the receipt; nobody decides about it later.
async fn discard(plane: &ControlPlane, run_id: Uuid, receipt: &Receipt) {
    if receipt.artifacts.iter().all(|one| one.kind != "stage") {
        return;
    }
    if let Err(error) = plane.discard(run_id, assist()).await {
        tracing::warn!(target: "abp.daemon", %run_id, %error, "a workspace was not removed");
    }
}

/// Who discards the workspace of a run that was only to be listened to.
fn assist() -> Decider {
    Decider {
        by: "assist".to_owned(),
        via: "http".to_owned(),
    }
}
