//! One bounded JSON reader: a tape over the source bytes, RFC 8785 output, safe admission.
//!
//! JSON is parsed once into a [`Tape`]: one small node for every value and every key, each naming
//! the bytes it was read from. Code reads [`View`]s of the tape, so a number keeps its spelling and
//! foreign JSON can travel on byte for byte. Nothing is allocated for a string until somebody asks
//! for one that holds escapes.
//!
//! ```
//! use abp_json::{Limits, Tape};
//!
//! let tape = Tape::parse(br#"{"model": "m", "temperature": 1.0}"#, &Limits::default())?;
//! let temperature = tape.root().get("temperature");
//! assert_eq!(temperature.map(|view| view.raw()), Some("1.0"));
//! # Ok::<(), abp_json::JsonError>(())
//! ```
//!
//! What the rest of the product relies on:
//!
//! - **Bounded.** [`Limits`] cap bytes, depth and nodes; parsing does not recurse.
//! - **Strict.** RFC 8259 and nothing else. The two things that parsers disagree about, duplicate
//!   keys and lone surrogates, parse and are recorded, so that the caller can refuse them by name.
//! - **One hash per document.** [`canonical`] writes RFC 8785 and refuses what would let two
//!   different documents share a hash.
//! - **Nothing foreign stops a receipt.** [`admit_text`] and [`admit_value`] turn what cannot be
//!   hashed as it is into strings, each change labelled with its place and reason.

mod admit;
pub mod canonical;
mod duplicate;
mod error;
mod finite;
mod number;
mod parse;
mod places;
pub mod pointer;
mod string;
mod tape;
mod view;
mod writer;

pub use admit::{
    AdmissionChange, AdmissionReason, Admitted, MAX_ADMITTED_DEPTH, admit_text, admit_value,
};
pub use error::{CanonicalError, JsonError};
pub use places::Places;
pub use tape::{Duplicate, Limits, NodeId, Tape};
pub use view::{Entries, Items, Kind, View};
pub use writer::{Writer, push_string};
