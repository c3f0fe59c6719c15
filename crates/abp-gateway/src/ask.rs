//! What a caller asks for, and what it gets.

use std::fmt;
use std::sync::Arc;

use abp_backend_core::ModelOperation;
use abp_dialect::Dialect;
use abp_plan::{Asked, OnLoss};
use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderMap, StatusCode};

use crate::Principal;
use crate::admission::Admission;
use crate::stream::BrokenOff;

/// A request, as its vendor's route received it.
#[derive(Clone)]
pub struct Ask {
    /// The caller, and what its request took to be let in.
    pub admitted: Arc<Admission>,
    /// The dialect of the route.
    pub dialect: Dialect,
    /// What the route is for. Whether an answer is streamed is read from the body where the dialect
    /// says it there.
    pub operation: ModelOperation,
    /// The model, where the route names it.
    pub model: Option<String>,
    /// The query of the address, without credentials.
    pub query: Option<String>,
    /// The headers. Only what is on a list goes further.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// What to do where something would be lost.
    pub on_loss: OnLoss,
}

impl Ask {
    /// The caller.
    pub(crate) fn principal(&self) -> &Arc<Principal> {
        self.admitted.principal()
    }

    /// The request as a plan takes it.
    pub(crate) fn asked(&self) -> Asked<'_> {
        Asked {
            dialect: self.dialect,
            request: &self.body,
            stream: self.operation == ModelOperation::Generate { stream: true },
            on_loss: self.on_loss,
        }
    }
}

/// Tells neither what is said nor the headers, in which there is a key.
impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask")
            .field("dialect", &self.dialect)
            .field("operation", &self.operation)
            .field("model", &self.model)
            .field("body", &format_args!("{} bytes", self.body.len()))
            .finish_non_exhaustive()
    }
}

/// What a caller gets, in its own dialect whatever happened.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: AnswerBody,
}

/// The parts of an answer, as they come.
pub type AnswerParts = Box<dyn Stream<Item = Result<Bytes, BrokenOff>> + Send + Unpin>;

/// The body of an answer.
pub enum AnswerBody {
    /// All of it.
    Whole(Bytes),
    /// As it comes. Dropping it ends the exchange.
    Stream(AnswerParts),
}

impl fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(bytes) => write!(f, "Whole({} bytes)", bytes.len()),
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}
