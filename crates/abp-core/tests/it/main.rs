//! The contract, as documents: what is read, what is written, what is hashed.

mod capabilities;
mod documents;
mod hashes;
