//! Runs, through the public interface of the runtime.

mod bench;
mod ends;
mod limits;
mod pipeline;
mod streams;
