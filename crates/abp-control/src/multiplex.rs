//! Following several runs at once, on one stream.

use abp_error::AbpError;
use abp_runtime::{EventStream, FollowedEvent};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::{ControlPlane, Principal};

/// How many events of all runs wait for the reader. A reader that is slow holds no run back: what does not
/// wait here is read from the store later.
const WAITING: usize = 64;

/// An event of one of several runs.
#[derive(Debug, Clone)]
pub struct MultiplexedEvent {
    /// The run.
    pub run_id: Uuid,
    /// Its event; `None` once it has ended and every event was given.
    pub event: Option<FollowedEvent>,
}

/// The events of several runs: each run's in order and without a gap, in whichever order they come.
#[derive(Debug)]
pub struct MultiplexedStream {
    events: mpsc::Receiver<Result<MultiplexedEvent, AbpError>>,
    /// Ends with the stream.
    _followers: JoinSet<()>,
}

impl MultiplexedStream {
    /// The next event; `None` once all runs have ended and every event was given.
    ///
    /// # Errors
    /// Fails where a run cannot be followed any more; the others can.
    pub async fn next(&mut self) -> Result<Option<MultiplexedEvent>, AbpError> {
        self.events.recv().await.transpose()
    }
}

impl ControlPlane {
    /// Follows several runs, each from the event after the number that is given with it on.
    ///
    /// # Errors
    /// As [`Self::follow`], for the first run of which it is true.
    pub async fn follow_many(
        &self,
        principal: &Principal,
        runs: &[(Uuid, Option<u64>)],
    ) -> Result<MultiplexedStream, AbpError> {
        let (sender, events) = mpsc::channel(WAITING);
        let mut followers = JoinSet::new();
        for (run_id, after) in runs {
            let stream = self.follow(principal, *run_id, *after).await?;
            followers.spawn(forward(stream, sender.clone()));
        }
        Ok(MultiplexedStream {
            events,
            _followers: followers,
        })
    }
}

async fn forward(
    mut stream: EventStream,
    sender: mpsc::Sender<Result<MultiplexedEvent, AbpError>>,
) {
    let run_id = stream.run_id();
    loop {
        let next = stream.next().await;
        let is_last = !matches!(next, Ok(Some(_)));
        let next = next.map(|event| MultiplexedEvent { run_id, event });
        // Nobody reads any more, or nothing more comes.
        if sender.send(next.map_err(AbpError::from)).await.is_err() || is_last {
            return;
        }
    }
}
