//! Standard output: one message to a line, whole, and at once.

use std::io::{self, Write as _};
use std::sync::{Mutex, PoisonError};

use abp_protocol::{Envelope, JsonlCodec};
use sidecar_kit::Frame;

/// Writes messages, from whichever thread. The host reads slowly at times; writing waits then.
#[derive(Debug, Default)]
pub(crate) struct Output {
    lock: Mutex<()>,
}

impl Output {
    pub(crate) fn envelope(&self, envelope: &Envelope) -> io::Result<()> {
        self.line(&JsonlCodec::encode(envelope).map_err(io::Error::other)?)
    }

    pub(crate) fn frame(&self, frame: &Frame) -> io::Result<()> {
        self.line(&frame.to_line()?)
    }

    fn line(&self, line: &str) -> io::Result<()> {
        let _one_at_a_time = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stdout = io::stdout().lock();
        stdout.write_all(line.as_bytes())?;
        stdout.flush()
    }
}
