//! Bytes in both directions, counted, until both sides are done or both are silent.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::sleep;

use crate::event::{ByteCounts, EgressOutcome};

/// The buffer of each direction at first, and once reads have filled it. Most tunnels carry little, and
/// making a large buffer costs them more than the copying.
const FIRST_BUFFER_BYTES: usize = 8 * 1024;
const LARGE_BUFFER_BYTES: usize = 64 * 1024;

/// Relays until both sides have ended. The end of one direction is passed on, and the other direction
/// goes on: a client may close its half after the request and still get the answer.
pub(crate) async fn relay(
    client: &mut TcpStream,
    server: &mut TcpStream,
    bytes: &ByteCounts,
    idle_time: Duration,
) -> EgressOutcome {
    let (client_reader, client_writer) = client.split();
    let (server_reader, server_writer) = server.split();
    let both = async {
        tokio::try_join!(
            copy(client_reader, server_writer, &bytes.up),
            copy(server_reader, client_writer, &bytes.down),
        )
    };
    tokio::select! {
        ended = both => match ended {
            Ok(_) => EgressOutcome::Complete,
            Err(_) => EgressOutcome::Broken,
        },
        () = until_silent(bytes, idle_time) => EgressOutcome::TimedOut,
    }
}

async fn copy(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, count: &AtomicU64) -> io::Result<()> {
    let mut buffer = vec![0; FIRST_BUFFER_BYTES];
    loop {
        let length = from.read(&mut buffer).await?;
        let Some(read) = buffer.get(..length).filter(|read| !read.is_empty()) else {
            return to.shutdown().await;
        };
        to.write_all(read).await?;
        let moved = u64::try_from(length).unwrap_or_default();
        count.fetch_add(moved, Ordering::Relaxed);
        if length == buffer.len() && length < LARGE_BUFFER_BYTES {
            buffer = vec![0; LARGE_BUFFER_BYTES];
        }
    }
}

/// Returns once nothing was counted for a whole interval.
pub(crate) async fn until_silent(bytes: &ByteCounts, idle_time: Duration) {
    let mut before = bytes.total();
    loop {
        sleep(idle_time).await;
        let now = bytes.total();
        if now == before {
            return;
        }
        before = now;
    }
}
