//! Streams, detection and validation, by tables, by laws and against recorded traffic.

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod detect;
#[cfg(test)]
mod sse;
#[cfg(test)]
mod sse_laws;
#[cfg(test)]
mod validate;
