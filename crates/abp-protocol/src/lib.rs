//! The wire format between host and sidecar: one JSON object per line, tagged with `t`.
//!
//! Made to be implemented in any language in an evening: [`Envelope`] lists the messages,
//! [`JsonlCodec`] writes and reads them with a limit on line length, and the version helpers say
//! who can talk to whom.

mod codec;
mod envelope;
mod error;
mod version;

pub use codec::{EnvelopeStream, JsonlCodec};
pub use envelope::{Envelope, FatalError};
pub use error::ProtocolError;
pub use version::{is_compatible_version, parse_version};
