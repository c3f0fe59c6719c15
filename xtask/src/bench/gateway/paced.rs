//! Paced streams at low load: how much later than it was sent each piece arrives.
//!
//! A piece says for how long the upstream held it back. What it took besides, from the request on, was
//! the way; so neither the upstream's timers nor two clocks come into the figure.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::task::JoinSet;

use super::client::{Target, within};
use super::dialogue::{CHUNKS, held_in};
use super::figures::percentile;

/// How many streams are open at once, each beginning a little after the one before.
const STREAMS: u32 = 8;
const APART: Duration = Duration::from_micros(700);

/// How long pieces were on their way.
#[derive(Debug, Clone)]
pub(super) struct OnTheWay {
    /// The first piece of a stream, request included: the median of the streams.
    pub(super) first: Duration,
    /// All but one in a hundred of all pieces took no longer.
    pub(super) most: Duration,
    /// The slowest piece of all streams.
    pub(super) slowest: Duration,
    /// Every piece of every stream, in order.
    pub(super) each: Vec<Duration>,
}

/// Follows a few paced streams.
pub(super) async fn follow(target: &Target) -> Result<OnTheWay> {
    within(Duration::from_secs(20), async {
        let mut streams = JoinSet::new();
        for number in 0..STREAMS {
            let target = target.clone();
            streams.spawn(async move {
                tokio::time::sleep(APART * number).await;
                Ok::<_, anyhow::Error>((number, pieces(&target).await?))
            });
        }
        let all = streams.join_all().await;
        let mut all: Vec<_> = all.into_iter().collect::<Result<_>>()?;
        all.sort_by_key(|(number, _)| *number);
        let mut firsts: Vec<_> = all
            .iter()
            .filter_map(|(_, all)| all.first().copied())
            .collect();
        let each: Vec<_> = all.into_iter().flat_map(|(_, pieces)| pieces).collect();
        Ok(OnTheWay {
            first: percentile(&mut firsts, 0.5),
            most: percentile(&mut each.clone(), 0.99),
            slowest: each.iter().max().copied().unwrap_or_default(),
            each,
        })
    })
    .await
}

/// How long each piece of a stream was on its way.
async fn pieces(target: &Target) -> Result<Vec<Duration>> {
    let mut connection = target.connect().await?;
    let mut pieces = Vec::with_capacity(CHUNKS);
    let mut unread = Vec::new();
    let asked = Instant::now();
    let status = connection
        .ask(&target.request, |bytes| {
            let since = asked.elapsed();
            unread.extend_from_slice(bytes);
            // An event counts when it is complete.
            let Some(end) = memchr::memmem::rfind(&unread, b"\n\n") else {
                return;
            };
            let events: Vec<u8> = unread.drain(..end + 2).collect();
            pieces.extend(held_in(&events).map(|held| since.saturating_sub(held)));
        })
        .await?;
    ensure!(status == 200, "it answers {status}");
    ensure!(pieces.len() == CHUNKS, "{} pieces came", pieces.len());
    Ok(pieces)
}
