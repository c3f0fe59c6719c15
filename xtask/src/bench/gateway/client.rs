//! A caller: one connection that asks and reads the answer, with as little as possible of its own.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::decode::Decoder;

/// How much of an answer is read at once.
const BUFFER: usize = 16 * 1024;

/// Where to ask, and what.
#[derive(Debug, Clone)]
pub(in crate::bench) struct Target {
    pub(in crate::bench) address: SocketAddr,
    pub(in crate::bench) request: Bytes,
}

impl Target {
    pub(in crate::bench) async fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection {
            stream,
            decoder: Decoder::new(),
            buffer: Vec::with_capacity(BUFFER),
        })
    }
}

/// A connection that is kept between requests.
#[derive(Debug)]
pub(in crate::bench) struct Connection {
    stream: TcpStream,
    decoder: Decoder,
    buffer: Vec<u8>,
}

impl Connection {
    /// Asks, and hands over the body as it comes; the status of the answer.
    pub(in crate::bench) async fn ask(
        &mut self,
        request: &[u8],
        mut body: impl FnMut(&[u8]),
    ) -> Result<u16> {
        self.stream.write_all(request).await?;
        loop {
            self.buffer.clear();
            let read = self.stream.read_buf(&mut self.buffer).await?;
            ensure!(read > 0, "the connection was closed");
            if let Some(status) = self.decoder.feed(&self.buffer, &mut body)? {
                return Ok(status);
            }
        }
    }

    /// Asks, and fails where the answer is none.
    pub(in crate::bench) async fn ask_well(&mut self, request: &[u8]) -> Result<()> {
        let status = self.ask(request, |_| {}).await?;
        ensure!(status == 200, "it answers {status}");
        Ok(())
    }
}

/// Fails where something takes longer than it can.
pub(in crate::bench) async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => anyhow::bail!("nothing more came within {} s", limit.as_secs()),
    }
}
