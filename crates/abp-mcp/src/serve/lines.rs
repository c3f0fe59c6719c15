//! A connection over two streams, one message per line.

use std::io;
use std::time::Duration;

use sidecar_kit::Decoder;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::connection::Received;
use super::{McpConnection, Outgoing};
use crate::message::{self, MESSAGE_LIMITS};
use crate::refusal::code;

/// How many messages may wait for a client that reads slowly.
const QUEUE: usize = 256;
/// How long requests may take that are not answered when the client has closed its end.
const GRACE: Duration = Duration::from_secs(5);
const GRACE_STEP: Duration = Duration::from_millis(10);

/// Serves a connection until the client closes its end.
///
/// # Errors
/// Fails where a stream does.
pub async fn serve_lines(
    connection: McpConnection,
    mut reader: impl AsyncRead + Unpin,
    writer: impl AsyncWrite + Send + Unpin + 'static,
) -> io::Result<()> {
    let (outlet, outbox) = mpsc::channel(QUEUE);
    connection.set_general(outlet.clone());
    let writing = tokio::spawn(write_lines(outbox, writer));
    let read = read_lines(&connection, &mut reader, &outlet).await;
    let mut waited = Duration::ZERO;
    while connection.is_serving() && waited < GRACE && !outlet.is_closed() {
        tokio::time::sleep(GRACE_STEP).await;
        waited += GRACE_STEP;
    }
    connection.close();
    drop(outlet);
    // Tasks that were just ended may hold on to the queue for a moment.
    match tokio::time::timeout(GRACE, writing).await {
        Ok(Ok(written)) => read.and(written),
        _ => read,
    }
}

async fn read_lines(
    connection: &McpConnection,
    reader: &mut (impl AsyncRead + Unpin),
    outlet: &mpsc::Sender<Outgoing>,
) -> io::Result<()> {
    let mut decoder = Decoder::new(MESSAGE_LIMITS.max_bytes);
    loop {
        let size = reader.read_buf(decoder.buffer()).await?;
        loop {
            match decoder.take() {
                Ok(Some(lines)) => {
                    for (_, line) in lines.iter() {
                        for received in connection.receive(line.as_bytes(), outlet).await {
                            if let Received::Reply(outgoing) = received {
                                drop(outlet.send(outgoing).await);
                            }
                        }
                    }
                }
                Ok(None) => break,
                // Nothing after it can be trusted to be in step.
                Err(error) => {
                    let why = error.to_string();
                    let text = message::error(None, None, code::PARSE_ERROR, &why, None);
                    drop(outlet.send(Outgoing::told(text)).await);
                    return Ok(());
                }
            }
        }
        if size == 0 || outlet.is_closed() {
            return Ok(());
        }
    }
}

async fn write_lines(
    mut outbox: mpsc::Receiver<Outgoing>,
    mut writer: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    while let Some(outgoing) = outbox.recv().await {
        writer.write_all(outgoing.text.as_bytes()).await?;
        writer.write_all(b"\n").await?;
        writer.flush().await?;
    }
    Ok(())
}
