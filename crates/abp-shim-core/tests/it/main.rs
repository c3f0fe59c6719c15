//! Both ways to a gateway, and streams that end well or not. `daemon` and `documents` are also those
//! of the shims' tests.

#[cfg(test)]
#[expect(dead_code, reason = "the shims' tests use the rest")]
mod daemon;
#[cfg(test)]
#[expect(dead_code, reason = "the shims' tests use it")]
mod documents;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod ways;
