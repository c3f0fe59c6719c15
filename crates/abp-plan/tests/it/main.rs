//! Tests of planning.

#[cfg(test)]
mod vendor_requests;
