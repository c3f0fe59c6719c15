//! The place of a piece of work in a trace, as the header `traceparent` carries it.

use std::fmt;

/// A place in a trace: <https://www.w3.org/TR/trace-context/>, version 00.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace. Never all zeros.
    pub trace_id: [u8; 16],
    /// The piece of work. Never all zeros.
    pub span_id: [u8; 8],
    /// Whether the caller records the trace.
    pub is_sampled: bool,
}

impl TraceContext {
    /// Reads the value of a header; `None` where it is not one.
    #[must_use]
    pub fn parse(header: &str) -> Option<Self> {
        let mut parts = header.trim().split('-');
        let (version, trace, span, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        // A later version may have more parts; this one has not.
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let [_] = read_hex::<1>(version)?;
        let context = Self {
            trace_id: read_hex(trace)?,
            span_id: read_hex(span)?,
            is_sampled: u8::from_be_bytes(read_hex(flags)?) & 1 == 1,
        };
        (context.trace_id != [0; 16] && context.span_id != [0; 8]).then_some(context)
    }

    /// The place of a run or an exchange with this id: in the trace of its caller, or else in a trace of its
    /// own. The same id has the same place in every process, so nothing has to be stored.
    #[must_use]
    pub fn of_id(id: [u8; 16], caller: Option<Self>) -> Self {
        let [.., a, b, c, d, e, f, g, h] = id;
        Self {
            trace_id: caller.map_or(id, |caller| caller.trace_id),
            // The random half of an id of version 7.
            span_id: [a, b, c, d, e, f, g, h],
            is_sampled: caller.is_none_or(|caller| caller.is_sampled),
        }
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.is_sampled);
        write!(
            f,
            "00-{}-{}-{flags:02x}",
            hex(&self.trace_id),
            hex(&self.span_id)
        )
    }
}

/// Bytes in lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_lower = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 2 * N || !text.bytes().all(is_lower) {
        return None;
    }
    let mut bytes = [0; N];
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_header_is_read_as_it_is_written() {
        let context = TraceContext::parse(GOOD).unwrap();
        assert_eq!(context.to_string(), GOOD);
        assert!(context.is_sampled);
        let run = TraceContext::of_id([7; 16], Some(context));
        assert_eq!(run.trace_id, context.trace_id);
        assert_eq!(run.span_id, [7; 8]);
        assert_eq!(TraceContext::of_id([7; 16], None).trace_id, [7; 16]);
    }

    #[test]
    fn anything_else_is_not_a_header() {
        for wrong in [
            "",
            "00-a-b-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e47366-0f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        ] {
            assert_eq!(TraceContext::parse(wrong), None, "{wrong}");
        }
    }
}
