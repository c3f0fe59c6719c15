//! Standard input, read by a thread of its own.

use std::io::{self, Read as _};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use abp_core::WorkOrder;
use abp_error::ErrorCode;
use abp_protocol::{Envelope, FatalError};
use sidecar_kit::{DEFAULT_MAX_LINE, Decoded, Decoder, Frame, decode};

use crate::output::Output;
use crate::run::{CancelState, Run};

/// How much is read at a time.
const READ_SIZE: usize = 64 * 1024;

/// Reads messages, answers what needs no thought, and passes runs on.
pub(crate) struct Input {
    pub(crate) runs: Sender<Run>,
    pub(crate) output: Arc<Output>,
    pub(crate) current: Arc<Current>,
}

/// The run under way.
#[derive(Debug, Default)]
pub(crate) struct Current(Mutex<Option<(String, Arc<CancelState>)>>);

impl Current {
    /// Makes it this one; `None` where there is one already.
    fn begin(&self, id: &str) -> Option<Arc<CancelState>> {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if current.is_some() {
            return None;
        }
        let cancel = Arc::new(CancelState::default());
        *current = Some((id.to_owned(), Arc::clone(&cancel)));
        Some(cancel)
    }

    pub(crate) fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Cancels it, where it is the one of that id, or whichever it is.
    fn cancel(&self, id: Option<&str>, reason: String) {
        let current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((running, cancel)) = current.as_ref()
            && id.is_none_or(|id| id == running)
        {
            cancel.cancel(reason);
        }
    }
}

impl Input {
    /// Reads to the end. After it nobody is left to work for.
    pub(crate) fn read(self) {
        let end = match self.read_lines() {
            Ok(()) => "the host closed the input".to_owned(),
            Err(error) => error.to_string(),
        };
        self.current.cancel(None, end);
    }

    fn read_lines(&self) -> io::Result<()> {
        let mut decoder = Decoder::new(DEFAULT_MAX_LINE);
        let mut piece = vec![0; READ_SIZE];
        loop {
            let read = io::stdin().lock().read(&mut piece)?;
            if read == 0 {
                return Ok(());
            }
            let bytes = piece.get(..read).unwrap_or_default();
            decoder.buffer().extend_from_slice(bytes);
            while let Some(lines) = decoder.take().map_err(io::Error::other)? {
                for (_, line) in lines.iter() {
                    self.take(line)?;
                }
            }
        }
    }

    fn take(&self, line: &str) -> io::Result<()> {
        match decode(line) {
            Ok(Decoded::Frame(Frame::Run { id, work_order })) => self.begin(id, work_order),
            Ok(Decoded::Frame(Frame::Ping { seq })) => self.output.frame(&Frame::Pong { seq }),
            Ok(Decoded::Frame(Frame::Cancel { ref_id, reason })) => {
                self.current
                    .cancel(Some(&ref_id), reason.unwrap_or_default());
                Ok(())
            }
            // A newer host may say more than we know.
            Ok(Decoded::Event(_) | Decoded::Frame(_)) => Ok(()),
            Err(error) => self.refuse(None, ErrorCode::ProtocolInvalidEnvelope, error.to_string()),
        }
    }

    fn begin(&self, id: String, work_order: serde_json::Value) -> io::Result<()> {
        let order: WorkOrder = match serde_json::from_value(work_order) {
            Ok(order) => order,
            Err(error) => {
                let message = format!("the work order is not valid: {error}");
                return self.refuse(Some(id), ErrorCode::ProtocolInvalidEnvelope, message);
            }
        };
        let Some(cancel) = self.current.begin(&id) else {
            let message = "one run at a time".to_owned();
            return self.refuse(Some(id), ErrorCode::ProtocolUnexpectedMessage, message);
        };
        let run = Run::new(id, order, cancel, Arc::clone(&self.output));
        // The main thread takes runs until it ends the process.
        drop(self.runs.send(run));
        Ok(())
    }

    fn refuse(&self, ref_id: Option<String>, code: ErrorCode, message: String) -> io::Result<()> {
        let error = FatalError {
            message,
            code: Some(code),
        };
        self.output.envelope(&Envelope::Fatal { ref_id, error })
    }
}
