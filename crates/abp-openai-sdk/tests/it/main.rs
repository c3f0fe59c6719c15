//! Tests of the chat family's codec through its public interface.

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod flavours;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod support;
