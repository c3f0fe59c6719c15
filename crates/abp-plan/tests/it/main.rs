//! Tests of planning.

#[cfg(test)]
mod choice;
#[cfg(test)]
mod output;
#[cfg(test)]
mod support;
#[cfg(test)]
mod vendor_requests;
