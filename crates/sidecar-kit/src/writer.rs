//! The sidecar's standard input: written apart, so that a sidecar that does not read cannot keep us
//! from reading it.

use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::Frame;

/// How many messages may wait. A sidecar that lets more wait does not read at all.
const QUEUE: usize = 16;

/// Writes messages.
#[derive(Debug)]
pub(crate) struct Writer {
    lines: Option<mpsc::Sender<String>>,
    task: JoinHandle<Result<(), Blocked>>,
    finished: bool,
}

/// The sidecar does not read.
#[derive(Debug)]
pub(crate) struct Blocked;

impl Writer {
    pub(crate) fn new(
        stream: impl AsyncWrite + Unpin + Send + 'static,
        deadline: Duration,
    ) -> Self {
        let (lines, receiver) = mpsc::channel(QUEUE);
        Self {
            lines: Some(lines),
            task: tokio::spawn(write(stream, receiver, deadline)),
            finished: false,
        }
    }

    /// Hands a message over. One that finds no room is lost: whoever waits for the answer notices.
    pub(crate) fn send(&self, frame: &Frame) {
        let line = frame.to_line().unwrap_or_default();
        if let Some(lines) = &self.lines {
            drop(lines.try_send(line));
        }
    }

    /// Closes the sidecar's input once everything is written.
    pub(crate) fn close(&mut self) {
        self.lines = None;
    }

    /// Waits until the sidecar does not read; for ever where it does, or is gone.
    pub(crate) async fn blocked(&mut self) {
        if !self.finished {
            let ended = (&mut self.task).await;
            self.finished = true;
            if let Ok(Err(Blocked)) = ended {
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn write(
    mut stream: impl AsyncWrite + Unpin + Send + 'static,
    mut lines: mpsc::Receiver<String>,
    deadline: Duration,
) -> Result<(), Blocked> {
    while let Some(line) = lines.recv().await {
        let written = async {
            stream.write_all(line.as_bytes()).await?;
            stream.flush().await
        };
        match tokio::time::timeout(deadline, written).await {
            Ok(Ok(())) => {}
            // It closed its input; whether that matters shows in what it says next.
            Ok(Err(_)) => return Ok(()),
            Err(_) => return Err(Blocked),
        }
    }
    Ok(())
}
