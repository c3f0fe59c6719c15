//! What the client that follows a run can render, and the envelope it asks in.
//!
//! A client says what it takes as [`ClientCapabilities`]; nobody has to. Several places may say it
//! (the request's body, a header, `Accept`, a protocol's own handshake), each only in part: they
//! are merged field by field into a [`ClientProfile`], which remembers who said what. A client that
//! says nothing is a standard one and takes everything.

mod capabilities;
mod packet;
mod presentation;
mod profile;
mod request;

pub use capabilities::{ClientCapabilities, ImageResolution, PartialCapabilities};
pub use packet::{ErrorSeverity, PacketOp, PacketWriter, StreamError, StreamPacket};
pub use presentation::PresentationType;
pub use profile::{CapabilityOrigins, CapabilitySource, ClientProfile};
pub use request::{AgentRequest, RequestLineage};
