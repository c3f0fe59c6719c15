//! Requests, answers and errors, from and to the intermediate representation.

mod content_in;
mod content_out;
mod error;
mod media;
mod request_in;
mod request_out;
mod response_in;
mod response_out;
mod settings_out;
mod thinking_out;
mod usage;

pub(crate) use content_in::read_part;
pub(crate) use content_out::write_arguments;
pub(crate) use error::{read_error, write_error, write_error_body};
pub(crate) use request_in::read_request;
pub(crate) use request_out::write_request;
pub(crate) use response_in::{
    Finish, block_reason, candidate_index, read_finish, read_response, read_usage_of,
};
pub(crate) use response_out::{write_finish, write_response};
pub(crate) use usage::{read_usage, write_usage};
